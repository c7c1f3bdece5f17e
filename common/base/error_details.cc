#include "common/base/error_details.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr char kBadRequest[] = "type.googleapis.com/google.rpc.BadRequest";
constexpr char kErrorInfo[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr size_t kMaxName = 100;

// Both messages have all they need in field 1, which holds bytes of less than 128: a tag of one
// byte, a length of one byte, and the bytes. common/base knows no protobuf.
constexpr char kFieldOne = 0x0a;

std::string FieldOne(absl::string_view bytes) {
  return absl::StrCat(std::string{kFieldOne, static_cast<char>(bytes.size())}, bytes);
}

// Returns the bytes of field 1; "" if the message does not begin with it.
std::string ReadFieldOne(absl::string_view message) {
  if (message.size() < 2 || message[0] != kFieldOne) return "";
  const auto size = static_cast<unsigned char>(message[1]);
  return size < 128 ? std::string(message.substr(2, size)) : "";
}

std::string PayloadOf(const absl::Status& status, absl::string_view type_url) {
  const auto payload = status.GetPayload(type_url);
  return payload ? ReadFieldOne(std::string(*payload)) : "";
}

}  // namespace

absl::Status BadParameter(absl::string_view parameter, absl::string_view message) {
  return WithParameter(absl::InvalidArgumentError(message), parameter);
}

absl::Status WithParameter(absl::Status status, absl::string_view parameter) {
  // BadRequest.field_violations[0].field
  status.SetPayload(kBadRequest, absl::Cord(FieldOne(FieldOne(parameter.substr(0, kMaxName)))));
  return status;
}

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  status.SetPayload(kErrorInfo, absl::Cord(FieldOne(reason.substr(0, kMaxName))));
  return status;
}

std::string ParameterOf(const absl::Status& status) {
  return ReadFieldOne(PayloadOf(status, kBadRequest));
}

std::string ReasonOf(const absl::Status& status) { return PayloadOf(status, kErrorInfo); }

}  // namespace baton
