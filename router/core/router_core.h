#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "router/core/core_events.h"
#include "router/core/request_metrics.h"
#include "router/core/served_identity.h"

namespace baton {

// Turns the ids of one answer into text, token by token. Both return whole characters only.
struct TextDecoder {
  std::function<std::string(TokenId)> next;
  std::function<std::string()> flush;  // what is left at the end, half characters as U+FFFD
};

struct RouterCoreOptions {
  std::string model_name = "model";
  int context_tokens = 0;  // the model's; prompt and answer together
  int vocab = 0;           // token ids from workers beyond it are DataLoss
  std::function<TextDecoder()>
      new_decoder;  // null: answers have no text, and stop strings do nothing

  // Of requests that name none.
  v1::ServingMode mode = v1::SERVING_MODE_DISAGGREGATED;
  // Under AUTO: prompts of at most so many tokens are computed by the decode worker, and so are
  // those that would find more prompt tokens than that waiting at every prefill worker.
  int auto_prompt_tokens = 64;
  int auto_queue_tokens = 4096;

  // The identity to serve. What is left empty is chosen by the number of usable workers, and
  // changes only after another identity has had more of them for `identity_lead`.
  FixedIdentity serve_identity;
  absl::Duration identity_lead = absl::Seconds(10);

  int max_queued = 1024;            // requests that wait for a worker; more: ResourceExhausted
  int max_prompts_per_worker = 64;  // prompts at one worker before its first token of them
  int max_migrations = 64;          // times a request may go back to prefill; more: Unavailable
  int client_buffer_tokens = 512;   // tokens that wait for a slow client before its sequence pauses
  absl::Duration slow_client_limit = absl::Seconds(30);  // paused longer: ResourceExhausted
  absl::Duration pair_wait = absl::Seconds(30);          // without any pair of workers: Unavailable
  absl::Duration room_wait =
      absl::Seconds(30);  // refused as full by all workers: ResourceExhausted
  absl::Duration report_limit = absl::Seconds(3);  // older load report: no new work
  absl::Duration stall_limit = absl::Seconds(5);   // silent leg at such a worker: as if it had died
  absl::Duration forget_after = absl::Seconds(3);  // a detached worker without legs is forgotten
  RequestMetrics* metrics = nullptr;               // outlives the core; null: nobody looks
};

// Since start; for logs and tests.
struct RouterCounters {
  uint64_t arrived = 0;
  uint64_t finished_ok = 0;
  uint64_t finished_error = 0;
  uint64_t shed = 0;              // refused because the queue was full
  uint64_t colocated = 0;         // prompts given to decode workers
  uint64_t migrations = 0;        // requests sent back to prefill
  uint64_t outgrown = 0;          // sent there because their rotary table had come to its end
  uint64_t data_loss = 0;         // legs that failed with DataLoss or broke the protocol
  uint64_t diverged = 0;          // requests failed because a position had two different tokens
  uint64_t prefill_refused = 0;   // ResourceExhausted from prefill workers
  uint64_t decode_refused = 0;    // ResourceExhausted from decode workers
  uint64_t identity_changes = 0;  // times another identity than before was served
};

// The router's logic: admission, the choice of workers, both legs of every request, the failure
// table of the design, text and stop strings. It does no I/O and has no thread, clock or socket: it
// takes events and leaves actions. Runs on one thread. Deterministic: the same events at the same
// times give the same actions.
class RouterCore {
 public:
  explicit RouterCore(RouterCoreOptions options);
  ~RouterCore();

  // Takes one event. `now` never goes back.
  void Handle(CoreEvent event, absl::Time now);
  // Runs what is due: timers, then hands waiting requests to workers. Call after a batch of events
  // and at NextWake().
  void RunOnce(absl::Time now);
  // The actions since the last call, oldest first. Each must be carried out; in this order per
  // request, leg and attach stream.
  std::vector<CoreAction> TakeActions();
  // When RunOnce has something to do though no event came; InfiniteFuture when never.
  absl::Time NextWake() const;

  // Requests whose ClientGone has not come, legs whose LegEnded has not come.
  size_t requests() const;
  size_t legs() const;
  size_t queued() const;
  const RouterCounters& counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
