#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/metrics/metric_registry.h"
#include "common/rpc/connections.h"
#include "common/rpc/limits.h"
#include "router/core/router_core.h"
#include "router/door/api_keys.h"
#include "router/door/request_check.h"
#include "router/door/shared_budget.h"
#include "router/http/http_door.h"

namespace baton {

// A running router: the core with its loop thread, a gRPC server for clients and workers, and gRPC
// clients of the workers. Owns the thread and the server.
class RouterServer {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";
    absl::Duration connection_age = absl::InfiniteDuration();  // See the same option of RpcServer.
    std::string token;  // Shared token of Attach and of the legs; empty: none.
    ServedModel model;  // Its tokeniser outlives the server.
    RequestLimits limits;
    ConnectionLimits connections;
    // If a worker does not answer within this time at the address that it registered, the router
    // refuses it.
    absl::Duration connect_limit = absl::Milliseconds(kConnectLimitMs);
    // Max Tokenize and Detokenize calls at one time, of which one caller gets three quarters.
    // Further calls end with ResourceExhausted.
    int max_text_calls = 64;
    // Max bytes of all open requests (their prompts and what is kept beside these), of which one
    // caller gets three quarters. Further requests end with ResourceExhausted. One alone may have
    // more.
    size_t max_open_bytes = 256 << 20;
    // The keys that clients need; null: none.
    std::shared_ptr<ApiKeys> keys;
    // The door for HTTP. Without `listen` there is none. Start() sets the counts of connections,
    // the keys, the limits of bytes, and how the door learns whether the router serves.
    HttpDoor::Options http;
    // While the loop has made no progress for longer than this, health is NOT_SERVING.
    absl::Duration hang_limit = absl::Seconds(10);
    RouterCoreOptions
        core;  // Start() sets model_name, context_tokens, vocab and new_decoder from `model`.
  };
  // Starts the router. Returns InvalidArgument or Unavailable, and leaves nothing running, if it
  // can't listen.
  static absl::StatusOr<std::unique_ptr<RouterServer>> Start(Options options);
  // Shuts down without grace if Shutdown() was not called.
  ~RouterServer();

  // HOST:PORT that the server listens on, and the same for HTTP ("" if it does not). Any thread.
  const std::string& address() const;
  std::string http_address() const;
  // Refuses new requests, lets running ones finish for up to `grace`, then ends the rest with
  // Unavailable. No thread of the server runs afterwards. Call it on one thread, which must not be
  // one of the server's own. A second call does nothing.
  void Shutdown(absl::Duration grace);
  // The values that the counters had at the last turn of the event loop. Any thread.
  RouterCounters counters() const;
  // Metrics as they are now. Any thread.
  const RequestMetrics& request_metrics() const;
  // Numbers of open requests, of queued requests and of legs (RPCs to workers), as of the last pass
  // of the event loop. Any thread.
  size_t requests() const;
  size_t queued() const;  // Requests in the queue.
  size_t legs() const;
  // The connections of clients and workers. Any thread.
  ConnectionCounters connections() const;
  // The limit of Tokenize and Detokenize calls. Any thread. A share taken from it must be given
  // back before the server is destroyed.
  SharedBudget& text_calls();
  // Number of Tokenize and Detokenize calls that were refused because of a limit that they share.
  // Any thread.
  uint64_t text_calls_refused() const;
  // Number of tool calls in conversations whose arguments were no JSON object. Any thread.
  uint64_t tool_arguments_dropped() const;
  // Adds the metrics of the door for HTTP, if there is one. The server outlives the registry's last
  // Text().
  void AddHttpMetrics(MetricRegistry* registry) const;
  // Bytes of all open requests. Any thread.
  size_t open_bytes() const;

 private:
  struct Parts;
  RouterServer();
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton
