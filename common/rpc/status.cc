#include "common/rpc/status.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "baton/v1/error_details.pb.h"
#include "common/rpc/retry_after.h"

namespace baton {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  v1::StatusDetails details;
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
    google::protobuf::Any* any = details.add_details();
    any->set_type_url(std::string(type_url));
    any->set_value(std::string(payload));
  });
  const auto code = static_cast<grpc::StatusCode>(status.code());
  std::string message(status.message());
  if (details.details().empty()) return grpc::Status(code, std::move(message));
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  return grpc::Status(code, std::move(message), details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status converted(static_cast<absl::StatusCode>(status.error_code()),
                         status.error_message());
  v1::StatusDetails details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) {
    return converted;
  }
  for (const google::protobuf::Any& any : details.details()) {
    converted.SetPayload(any.type_url(), absl::Cord(any.value()));
  }
  return converted;
}

void AddRetryPushback(const absl::Status& status, grpc::ServerContextBase* context) {
  if (const auto delay = RetryAfter(status)) {
    context->AddTrailingMetadata(kRetryPushback, absl::StrCat(absl::ToInt64Milliseconds(*delay)));
  }
}

}  // namespace baton
