#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/limits.h"
#include "router/call_limit.h"
#include "router/core/router_core.h"
#include "router/request_check.h"

namespace baton {

// A router that serves: the core on its loop thread, with gRPC on both sides of it.
class RouterServer {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";
    absl::Duration connection_age = absl::InfiniteDuration();  // as in RpcServer::Options
    std::string token;                                         // of Attach and of legs; empty: none
    ServedModel model;                                         // its tokeniser outlives the server
    RequestLimits limits;
    // The router refuses a worker when it can't connect within this time to the address that the
    // worker registered.
    absl::Duration connect_limit = absl::Milliseconds(kConnectLimitMs);
    int max_text_calls = 64;  // of Tokenize and Detokenize at one time; more: ResourceExhausted
    RouterCoreOptions
        core;  // model_name, context_tokens, vocab and new_decoder are filled in from `model`
  };
  // InvalidArgument or Unavailable when it can't listen.
  static absl::StatusOr<std::unique_ptr<RouterServer>> Start(Options options);
  ~RouterServer();

  const std::string& address() const;
  // Takes no new requests, lets running ones finish for up to `grace`, then ends the rest with
  // Unavailable. Nothing runs afterwards. Not from one of its own threads.
  void Shutdown(absl::Duration grace);
  // As of the last turn of the loop. Any thread.
  RouterCounters counters() const;
  // As they are now. Any thread.
  const RequestMetrics& request_metrics() const;
  size_t requests() const;
  size_t queued() const;  // of the requests
  size_t legs() const;
  // The places of Tokenize and Detokenize. Any thread; a place goes back before the server does.
  CallLimit& text_calls();

 private:
  struct Parts;
  RouterServer();
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton
