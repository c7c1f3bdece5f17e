#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/goodput/http/http_caller.h"
#include "tests/goodput/http/sse_parser.h"
#include "tests/goodput/load/request_stream.h"
#include "tests/goodput/results/record.h"

namespace baton {

class JsonValue;

// Counts of answers that a reader of the results should know of. Any thread.
struct OpenAiCounts {
  std::atomic<uint32_t> ended = 0;   // Answers that ended whole.
  std::atomic<uint32_t> uneven = 0;  // Whole answers that had more or fewer tokens than events.
  std::atomic<uint64_t> uneven_events = 0,
                        uneven_tokens = 0;  // Events and tokens of these answers.
  std::atomic<uint32_t> without_usage = 0;  // Whole answers without token ids and without usage.
};

// A request to a server with OpenAI's API: /v1/completions with a stream of events. The time of a
// token is the time at which the bytes that complete its event were read.
//
// Events need not be tokens. If they have token ids, these are counted. Otherwise the answer's
// usage says at its end how many tokens there were, and these are spread evenly over the events
// with text: the times of the first and of the last token stay exact. Without usage each event with
// text counts as a token.
class OpenAiStream final : public RequestStream, private HttpReceiver {
 public:
  // See ServerConnection::NewStream. `caller` and `counts` must outlive the stream. `call` has all
  // of the request but its body and its latency targets.
  OpenAiStream(HttpCaller* caller, HttpCall call, RequestRecord record, Clock::time_point start,
               bool keep_token_ids, OnEnded on_ended, OpenAiCounts* counts);

  void Start(const OutgoingRequest& request, absl::Duration timeout) override;
  void Stop() override;
  RequestRecord& record() override { return record_; }

 private:
  // An event that has a choice, and no token ids.
  struct Event {
    double at_s;
    bool has_text;
    bool finishes;  // Has a finish_reason.
  };

  void OnSend(Time now) override;
  void OnHead(int status) override;
  bool OnBody(absl::string_view bytes, Time read) override;
  void OnEnd(absl::Status status) override;
  absl::Status Take(absl::string_view data, double at_s);
  absl::Status TakeChoice(const JsonValue& choice, double at_s);
  void TakeUsage(const JsonValue& usage);
  void TakeTiming(absl::string_view data);
  void TakeError(const JsonValue& error);
  // Sets the times of the tokens from the events and the usage.
  void SetTokenTimes();
  // Counts a whole answer.
  void Count();
  StreamEnd EndOf(const absl::Status& status) const;
  double Since(Time time) const;

  HttpCaller* const caller_;
  HttpCall call_;
  const uint64_t id_;
  RequestRecord record_;
  const Clock::time_point start_;
  const bool keep_token_ids_;
  const OnEnded on_ended_;
  OpenAiCounts* const counts_;
  std::atomic<bool> stopped_ = false;

  // The members below belong to the I/O thread.
  int http_status_ = 0;
  std::string error_body_;  // Body of an answer with another status than 200.
  SseParser parser_;
  std::vector<Event> events_;
  bool has_token_ids_ = false;
  size_t id_events_ = 0;       // Events that have token ids.
  int64_t usage_tokens_ = -1;  // Tokens of the answer according to its usage; -1: no usage.
  bool done_ = false;          // [DONE] has come.
  double done_s_ = 0;
  std::string contradiction_;
  bool has_error_ = false;  // An event with an error has come.
  absl::StatusCode error_code_ = absl::StatusCode::kUnknown;
  std::string error_message_;
};

}  // namespace baton
