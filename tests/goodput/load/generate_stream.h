#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "tests/goodput/results/record.h"

namespace baton {

// One request on its way, and the record that it leaves.
class GenerateStream final : public grpc::ClientReadReactor<v1::GenerateEvent> {
 public:
  using Clock = std::chrono::steady_clock;

  // `record` has index, mode, measured, scheduled_s, wanted_tokens and forced_length. Times count
  // from `start`. `on_end` is called once, from a thread of gRPC's, when nothing follows; it may
  // destroy the stream.
  GenerateStream(RequestRecord record, Clock::time_point start, bool keep_token_ids,
                 std::function<void(GenerateStream*)> on_end);

  // Sends it; `request` need not outlive the call. It ends `timeout` after its scheduled time at
  // the latest.
  void Start(v1::Inference::Stub* stub, const v1::GenerateRequest& request, absl::Duration timeout);

  // Any thread. The outcome is then kStopped, unless it had ended already.
  void Stop();

  // Once ended.
  RequestRecord& record() { return record_; }

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  // What is wrong with an event; empty when nothing is.
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
  std::string contradiction_;  // of the stream with itself
  std::atomic<bool> stopped_ = false;
};

// "RESOURCE_EXHAUSTED": as gRPC writes it.
const char* StatusName(grpc::StatusCode code);

}  // namespace baton
