#include "router/http/openai_error.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/error_details.h"
#include "common/rpc/retry_after.h"
#include "router/http/json_writer.h"

namespace baton {
namespace {

constexpr absl::string_view kInvalidRequest = "invalid_request_error";
constexpr absl::string_view kServerError = "server_error";

constexpr std::array<OpenAiErrorKind, 16> kErrorKinds = {{
    {absl::StatusCode::kInvalidArgument, 400, kInvalidRequest, ""},
    {absl::StatusCode::kOutOfRange, 400, kInvalidRequest, ""},
    {absl::StatusCode::kUnauthenticated, 401, "authentication_error", "invalid_api_key"},
    {absl::StatusCode::kPermissionDenied, 403, "permission_error", "permission_denied"},
    {absl::StatusCode::kNotFound, 404, kInvalidRequest, "not_found"},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error", "rate_limit_exceeded"},
    {absl::StatusCode::kCancelled, 499, kInvalidRequest, "request_cancelled"},
    {absl::StatusCode::kInternal, 500, kServerError, "internal_error"},
    {absl::StatusCode::kUnknown, 500, kServerError, "internal_error"},
    {absl::StatusCode::kDataLoss, 500, kServerError, "internal_error"},
    {absl::StatusCode::kAborted, 500, kServerError, "internal_error"},
    {absl::StatusCode::kAlreadyExists, 500, kServerError, "internal_error"},
    {absl::StatusCode::kFailedPrecondition, 500, kServerError, "internal_error"},
    {absl::StatusCode::kUnimplemented, 501, kServerError, "not_implemented"},
    {absl::StatusCode::kUnavailable, 503, kServerError, "unavailable"},
    {absl::StatusCode::kDeadlineExceeded, 504, "timeout_error", "deadline_exceeded"},
}};

// A status beyond the table is an internal error too.
const OpenAiErrorKind& KindOfError(absl::StatusCode code) {
  const auto* const found =
      std::find_if(kErrorKinds.begin(), kErrorKinds.end(),
                   [code](const OpenAiErrorKind& kind) { return kind.status == code; });
  return found == kErrorKinds.end() ? KindOfError(absl::StatusCode::kInternal) : *found;
}

// Returns how many whole units a time has, rounded up, and at least one.
int64_t UnitsRoundedUp(absl::Duration time, absl::Duration unit) {
  return std::max<int64_t>(absl::Ceil(time, unit) / unit, 1);
}

void AppendStringOrNull(absl::string_view text, std::string* out) {
  if (text.empty()) {
    out->append("null");
  } else {
    AppendJsonString(text, out);
  }
}

void AppendErrorBody(absl::string_view message, absl::string_view type, absl::string_view param,
                     absl::string_view code, std::string* out) {
  out->append("{\"error\":{\"message\":");
  AppendJsonString(message, out);
  out->append(",\"type\":");
  AppendJsonString(type, out);
  out->append(",\"param\":");
  AppendStringOrNull(param, out);
  out->append(",\"code\":");
  AppendStringOrNull(code, out);
  out->append("}}");
}

}  // namespace

absl::Span<const OpenAiErrorKind> OpenAiErrorKinds() { return kErrorKinds; }

void AppendOpenAiErrorBody(const absl::Status& status, std::string* out) {
  const OpenAiErrorKind& kind = KindOfError(status.code());
  const std::string reason = ReasonOf(status);
  AppendErrorBody(status.message(), kind.type, ParameterOf(status),
                  reason.empty() ? kind.code : absl::string_view(reason), out);
}

OpenAiError ToOpenAiError(const absl::Status& status) {
  BATON_CHECK(!status.ok());
  OpenAiError error;
  error.http = KindOfError(status.code()).http;
  error.fields.emplace_back("Content-Type", "application/json");
  std::optional<absl::Duration> delay = RetryAfter(status);
  if (!delay && absl::IsUnavailable(status)) delay = absl::Seconds(1);
  if (delay) {
    error.fields.emplace_back("Retry-After",
                              absl::StrCat(UnitsRoundedUp(*delay, absl::Seconds(1))));
    error.fields.emplace_back("retry-after-ms",
                              absl::StrCat(UnitsRoundedUp(*delay, absl::Milliseconds(1))));
  }
  if (absl::IsDeadlineExceeded(status) || absl::IsUnimplemented(status)) {
    error.fields.emplace_back("x-should-retry", "false");
  }
  AppendOpenAiErrorBody(status, &error.body);
  return error;
}

OpenAiError MakeOpenAiError(int http, absl::string_view message, absl::string_view code,
                            absl::string_view type) {
  OpenAiError error;
  error.http = http;
  error.fields.emplace_back("Content-Type", "application/json");
  AppendErrorBody(message, type.empty() ? kInvalidRequest : type, "", code, &error.body);
  return error;
}

}  // namespace baton
