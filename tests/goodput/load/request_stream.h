#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "tests/goodput/results/record.h"

namespace baton {

// A request that is ready to be sent.
struct OutgoingRequest {
  v1::GenerateRequest message;
  // The request as JSON, for a server that is reached by HTTP. The message then has no prompt.
  std::string body;
};

// One request in flight, and the record that it fills.
class RequestStream {
 public:
  using Clock = std::chrono::steady_clock;
  // Called once, on a thread of the connection, when nothing more will come. May destroy the
  // stream.
  using OnEnded = std::function<void(RequestStream*)>;

  virtual ~RequestStream() = default;
  // Sends the request; `request` need not outlive the call. The stream ends `timeout` after the
  // request's scheduled time, or earlier.
  virtual void Start(const OutgoingRequest& request, absl::Duration timeout) = 0;
  // Any thread. Cancels the request. Its outcome is then kStopped, unless the request had already
  // ended.
  virtual void Stop() = 0;
  // Returns the record. Call only after the stream has ended.
  virtual RequestRecord& record() = 0;
};

// The end of a stream, as its client saw it.
struct StreamEnd {
  absl::StatusCode code = absl::StatusCode::kOk;  // gRPC's codes have the same numbers.
  std::string message;
  bool finished = false;      // True if the server said that the answer is complete.
  bool stopped = false;       // True if this tool cancelled the request.
  std::string contradiction;  // Set if a part of the stream contradicts an earlier one.
};

// Sets the outcome, status, message and end of a record. Its tokens must be complete.
void EndRecord(const StreamEnd& end, double now_s, RequestRecord* record);

// Returns gRPC's spelling of a status code, such as "RESOURCE_EXHAUSTED".
const char* StatusName(absl::StatusCode code);

}  // namespace baton
