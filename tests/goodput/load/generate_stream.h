#pragma once

#include <atomic>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "tests/goodput/load/request_stream.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Adds the metadata "authorization: Bearer KEY" to a call that has not begun, unless the key is
// empty.
void AddApiKey(const std::string& key, grpc::ClientContext* context);

// A request to a router by gRPC. Ends on a gRPC thread.
class GenerateStream final : public RequestStream,
                             public grpc::ClientReadReactor<v1::GenerateEvent> {
 public:
  // See ServerConnection::NewStream. `stub` must outlive the stream. `api_key` may be empty.
  GenerateStream(v1::Inference::Stub* stub, const std::string& api_key, RequestRecord record,
                 Clock::time_point start, bool keep_token_ids, OnEnded on_ended);

  void Start(const OutgoingRequest& request, absl::Duration timeout) override;
  void Stop() override;
  RequestRecord& record() override { return record_; }

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  // Processes an event. Returns a description of the event's error, or an empty text if it is
  // valid.
  std::string Take(const v1::GenerateEvent& event);
  std::string TakeTokens(const v1::Delta& delta);
  void TakeSummary(const v1::Summary& summary);
  double NowS() const;

  v1::Inference::Stub* const stub_;
  RequestRecord record_;
  const Clock::time_point start_;
  const bool keep_token_ids_;
  const OnEnded on_ended_;
  grpc::ClientContext context_;
  v1::GenerateEvent event_;
  bool accepted_ = false;
  bool finished_ = false;
  std::string contradiction_;  // Set if an event of the stream contradicts an earlier one.
  std::atomic<bool> stopped_ = false;
};

}  // namespace baton
