#include "tests/goodput/load/request_stream.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr size_t kLongestMessage = 500;  // Max length in bytes of a status message in a record.

Outcome OutcomeOf(const StreamEnd& end, const RequestRecord& record) {
  if (!end.contradiction.empty()) return Outcome::kFailed;
  switch (end.code) {
    case absl::StatusCode::kOk:
      if (!end.finished) return Outcome::kFailed;
      if (!record.forced_length) {
        return record.token_s.empty() ? Outcome::kWrongLength : Outcome::kCompleted;
      }
      return record.token_s.size() == record.wanted_tokens ? Outcome::kCompleted
                                                           : Outcome::kWrongLength;
    case absl::StatusCode::kCancelled:
      return end.stopped ? Outcome::kStopped : Outcome::kFailed;
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kTimedOut;
    case absl::StatusCode::kResourceExhausted:
      return record.token_s.empty() ? Outcome::kRejected : Outcome::kFailed;
    default:
      return Outcome::kFailed;
  }
}

}  // namespace

const char* StatusName(absl::StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

void EndRecord(const StreamEnd& end, double now_s, RequestRecord* record) {
  record->ended_s = now_s;
  record->outcome = OutcomeOf(end, *record);
  record->status = StatusName(end.code);
  record->message = end.message.substr(0, kLongestMessage);
  if (!end.contradiction.empty()) {
    record->status = StatusName(absl::StatusCode::kDataLoss);
    record->message = end.contradiction.substr(0, kLongestMessage);
  } else if (end.code == absl::StatusCode::kOk && !end.finished) {
    record->status = StatusName(absl::StatusCode::kDataLoss);
    record->message = "the server ended its stream before the answer was complete";
  } else if (record->outcome == Outcome::kWrongLength) {
    record->message = absl::StrCat(record->token_s.size(), " tokens came of ",
                                   record->wanted_tokens, " asked for");
  }
}

}  // namespace baton
