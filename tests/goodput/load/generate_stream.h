#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "tests/goodput/results/record.h"

namespace baton {

// One request in flight, and the record that it fills.
class GenerateStream final : public grpc::ClientReadReactor<v1::GenerateEvent> {
 public:
  using Clock = std::chrono::steady_clock;

  // `record` must have index, mode, measured, scheduled_s, wanted_tokens and forced_length. Times
  // in the record count from `start`. `on_end` is called once, on a gRPC thread, when no further
  // event will come. The callback may destroy the stream.
  GenerateStream(RequestRecord record, Clock::time_point start, bool keep_token_ids,
                 std::function<void(GenerateStream*)> on_end);

  // Sends the request; `request` need not outlive the call. The stream ends `timeout` after the
  // request's scheduled time, or earlier.
  void Start(v1::Inference::Stub* stub, const v1::GenerateRequest& request, absl::Duration timeout);

  // Any thread. Cancels the request. Its outcome is then kStopped, unless the request had already
  // ended.
  void Stop();

  // Returns the record. Call only after the stream has ended.
  RequestRecord& record() { return record_; }

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  // Processes an event. Returns a description of the event's error, or an empty text if it is
  // valid.
  std::string Take(const v1::GenerateEvent& event);
  std::string TakeTokens(const v1::Delta& delta);
  void TakeSummary(const v1::Summary& summary);
  Outcome OutcomeOf(const grpc::Status& status) const;
  double NowS() const;

  RequestRecord record_;
  const Clock::time_point start_;
  const bool keep_token_ids_;
  const std::function<void(GenerateStream*)> on_end_;
  grpc::ClientContext context_;
  v1::GenerateEvent event_;
  bool accepted_ = false;
  bool finished_ = false;
  std::string contradiction_;  // Set if an event of the stream contradicts an earlier one.
  std::atomic<bool> stopped_ = false;
};

// Returns gRPC's spelling of a status code, such as "RESOURCE_EXHAUSTED".
const char* StatusName(grpc::StatusCode code);

}  // namespace baton
