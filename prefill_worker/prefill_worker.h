#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/pulse.h"
#include "common/engine/finish.h"
#include "common/engine/step_size.h"
#include "common/engine/worker_load.h"
#include "common/model/model.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"
#include "kv_transfer/kv_plane.h"
#include "kv_transfer/kv_publisher.h"
#include "prefill_worker/prefill_metrics.h"

namespace baton {

// One prompt to compute, everything decided.
struct PrefillJob {
  std::string request_id;  // for messages
  uint32_t attempt = 0;
  std::vector<TokenId> tokens;  // the prompt and every token that was generated before
  int original_prompt_tokens = 0;
  SamplingOptions sampling;
  absl::Time arrival;  // `queue` counts from here
};

// Some tokens of the prompt with their logprobs, if sampling.prompt_logprobs is set.
struct PrefillPromptTokens {
  std::vector<SampledToken> tokens;  // in order of position; the first has no logprob
};

struct PrefillFirstToken {
  SampledToken token;
  // This token already ends the answer: nobody needs the KV, and who submitted the job cancels it.
  std::optional<FinishReason> finish;
  absl::Duration queue;    // from `arrival` until the first chunk began
  absl::Duration prefill;  // from then until the token was sampled
};

struct PrefillEnded {
  // OK: a reader has the KV. FailedPrecondition: the lease ran out. Cancelled: by Cancel().
  // Internal: the step failed.
  absl::Status status;
};

// In this order: KvTicket, PrefillPromptTokens (many), PrefillFirstToken, PrefillEnded. The last
// comes exactly once.
using PrefillUpdate = std::variant<KvTicket, PrefillPromptTokens, PrefillFirstToken, PrefillEnded>;

// The prefill worker's core: a bounded queue of prompts -> steps of chunks -> KV in the pool,
// handed over, and one token each. First come, first served: the oldest prompt's chunk goes first,
// what the step has left goes to the next ones, and while the oldest in the queue waits for blocks
// nobody overtakes it. Starts no thread and reads no clock.
class PrefillWorker {
 public:
  using JobId = uint64_t;
  using Update = std::function<void(PrefillUpdate)>;

  // The most that Options::chunk_tokens may be.
  static constexpr int kMostChunk = 1 << 20;

  struct Options {
    int max_queue = 256;     // prompts that have not begun; beyond it ResourceExhausted
    int chunk_tokens = 512;  // of one step over all prompts; a multiple of block_tokens
    int max_batch = 64;      // prompts in one step
    int context = 0;         // longest prompt + answer, tokens; 0 takes the model's
    // Slices of fewer bytes are joined with those of the next layers, within a chunk.
    size_t slice_bytes = 256 << 10;
    bool reuse_last_freed = false;      // for tests: blocks are reused last in, first out
    std::function<void()> wake;         // any thread: RunOnce has something to do; may be empty
    Pulse* pulse = nullptr;             // beats while a step gets on; may be null
    PrefillMetrics* metrics = nullptr;  // outlives the worker; null: nobody looks
  };

  // Of a step of such a worker; of options that Create would refuse something.
  static StepSize MostInAStep(const Options& options);

  // All must outlive the worker. `on_kv_thread` runs closures on the KV thread in the order given
  // (inline will do when all is one thread). `chunk_tokens`, `context` and the pool must fit:
  // InvalidArgument with the arithmetic.
  static absl::StatusOr<std::unique_ptr<PrefillWorker>> Create(
      Options options, const Model* model, Backend* backend, KvPlane* plane, KvPublisher* publisher,
      std::function<void(std::function<void()>)> on_kv_thread);
  // Loop and KV thread have stopped. Jobs that have not ended never will.
  ~PrefillWorker();

  // Any thread. `update` is called from RunOnce and must not block. InvalidArgument: no tokens, ids
  // outside the vocabulary, no room for an answer in the context. ResourceExhausted: the queue is
  // full. Unavailable: draining. After an error `update` is never called.
  absl::StatusOr<JobId> Submit(PrefillJob job, Update update);
  // Any thread, in any state of the job. Ended(Cancelled) follows unless it had ended. Unknown jobs
  // are ignored.
  void Cancel(JobId job);
  // Any thread. Submit refuses from now on; what has been taken goes on.
  void Drain();
  // Any thread. As of the last RunOnce, but for what waits, which is as of now.
  WorkerLoad Load() const;
  // Any thread. Jobs submitted and not ended; 0 after Drain means that the worker may go.
  int jobs() const;

  // Loop thread. Takes what has arrived and runs at most one step. What a step found is handed out
  // by the next call, whose `now` is when the step had ended; so call again at once while it
  // returns true.
  bool RunOnce(absl::Time now);

 private:
  class Core;
  explicit PrefillWorker(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace baton
