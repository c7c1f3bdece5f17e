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
#include "common/model/model.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"
#include "common/worker/worker_core.h"
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
  // OK: a reader has the KV. FailedPrecondition: the lease (KvPublisher) ran out. Cancelled: by
  // Cancel(). Internal: the step failed.
  absl::Status status;
};

// In this order: KvTicket, PrefillPromptTokens (many), PrefillFirstToken, PrefillEnded. The last
// comes exactly once.
using PrefillUpdate = std::variant<KvTicket, PrefillPromptTokens, PrefillFirstToken, PrefillEnded>;

// The prefill worker's core: a bounded queue of prompts -> steps of chunks -> KV in the pool,
// handed over, and one token each. First come, first served: the oldest prompt's chunk goes first,
// what the step has left goes to the next ones, and while the oldest in the queue waits for blocks
// no prompt overtakes it (PrefillCore::Admit and PlanChunks, prefill_worker.cc).
class PrefillWorker : public WorkerCore {
 public:
  using Update = std::function<void(PrefillUpdate)>;

  // The largest value of Options::chunk_tokens.
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

  // The largest step of a worker with these options, also of options that Create refuses.
  static StepSize MostInAStep(const Options& options);

  // All must outlive the worker. `chunk_tokens`, `context` and the pool must fit: InvalidArgument
  // with the arithmetic. The worker is destroyed after loop and KV thread have stopped; jobs that
  // have not ended by then never will.
  static absl::StatusOr<std::unique_ptr<PrefillWorker>> Create(Options options, const Model* model,
                                                               Backend* backend, KvPlane* plane,
                                                               KvPublisher* publisher,
                                                               KvThread on_kv_thread);

  // Any thread. `update` is called from RunOnce and must not block. InvalidArgument: no tokens, ids
  // outside the vocabulary, no room for an answer in the context. ResourceExhausted: the queue is
  // full. Unavailable: draining. After an error `update` is never called.
  virtual absl::StatusOr<JobId> Submit(PrefillJob job, Update update) = 0;

 protected:
  using WorkerCore::WorkerCore;
};

}  // namespace baton
