#include "tests/goodput/load/openai_status.h"

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "common/base/json_value.h"

namespace baton {
namespace {

constexpr size_t kLongestBody = 300;  // Max length in bytes of a body that is used as a message.

}  // namespace

absl::StatusCode CodeOfHttpStatus(int status) {
  static constexpr struct {
    int status;
    absl::StatusCode code;
  } kCodes[] = {
      {401, absl::StatusCode::kUnauthenticated},   {403, absl::StatusCode::kPermissionDenied},
      {404, absl::StatusCode::kNotFound},          {405, absl::StatusCode::kUnimplemented},
      {408, absl::StatusCode::kDeadlineExceeded},  {409, absl::StatusCode::kAborted},
      {429, absl::StatusCode::kResourceExhausted}, {499, absl::StatusCode::kCancelled},
      {501, absl::StatusCode::kUnimplemented},     {502, absl::StatusCode::kUnavailable},
      {503, absl::StatusCode::kUnavailable},       {504, absl::StatusCode::kDeadlineExceeded},
      {529, absl::StatusCode::kResourceExhausted},
  };
  for (const auto& one : kCodes) {
    if (one.status == status) return one.code;
  }
  switch (status / 100) {
    case 2:
      return absl::StatusCode::kOk;
    case 4:
      return absl::StatusCode::kInvalidArgument;
    case 5:
      return absl::StatusCode::kInternal;
    default:
      return absl::StatusCode::kUnknown;
  }
}

std::string MessageOfErrorBody(absl::string_view body) {
  if (const auto text = JsonText::Parse(body); text.ok()) {
    const std::optional<JsonValue> error = (*text)->root().Member("error");
    for (const std::optional<JsonValue>& message :
         {error ? error->Member("message") : std::nullopt, error, (*text)->root().Member("message"),
          (*text)->root().Member("detail")}) {
      if (message && message->String()) return std::string(*message->String());
    }
  }
  return std::string(absl::StripAsciiWhitespace(body).substr(0, kLongestBody));
}

}  // namespace baton
