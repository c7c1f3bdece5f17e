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

// One prompt for this worker to compute.
struct PrefillJob {
  std::string request_id;          // for log and error messages
  uint32_t attempt = 0;            // number of this attempt at the request; grows with each attempt
  std::vector<TokenId> tokens;     // the prompt, then the tokens that earlier attempts generated
  int original_prompt_tokens = 0;  // length of the prompt at the beginning of `tokens`
  SamplingOptions sampling;
  uint64_t caller = 0;     // equal for all jobs of one caller; callers take turns (CallerTurns)
  std::string cache_salt;  // shares cached KV only with jobs of the same salt
  // Jobs that want logprobs of the prompt find nothing in the cache, whatever this says.
  CacheUse cache = CacheUse::kOn;
  // Time of arrival, on the clock of RunOnce's `now`. PrefillFirstToken::queue begins here.
  absl::Time arrival;
  // Time at which the first token is due, on the same clock. InfiniteFuture: the request has no
  // TTFT target.
  absl::Time due = absl::InfiniteFuture();
};

// The job has its blocks, and its first chunk is about to run. A decode worker may reserve blocks.
struct PrefillBegun {
  KvTicket ticket;        // names the KV that a decode worker can pull
  int cached_tokens = 0;  // tokens at the beginning of the job whose KV was found in the cache
};

// Some tokens of the prompt with their logprobs. Sent only if sampling.prompt_logprobs is set.
struct PrefillPromptTokens {
  std::vector<SampledToken> tokens;  // in order of position; the first has no logprob
};

// The first token of the answer. The KV of the prompt is complete.
struct PrefillFirstToken {
  SampledToken token;
  // Set if this token already ends the answer. The KV is then not needed, and the caller of Submit
  // should cancel the job.
  std::optional<FinishReason> finish;
  absl::Duration queue;    // time from `arrival` to the beginning of the first chunk
  absl::Duration prefill;  // time from the beginning of the first chunk until the token was sampled
};

// The job has ended, and the worker holds no blocks for it any more.
struct PrefillEnded {
  // OK: a reader has the KV.
  // FailedPrecondition: the lease (KvPublisher) ran out.
  // Cancelled: by Cancel().
  // Internal: the step or the device failed, or the logits were not numbers.
  // DataLoss: a reader got other bytes than this worker has written.
  // InvalidArgument: the sampling options exclude every token.
  absl::Status status;
};

// One report about a job. Reports come in this order: PrefillBegun, PrefillPromptTokens (any
// number), PrefillFirstToken, PrefillEnded. PrefillEnded comes exactly once; each of the others may
// be missing.
using PrefillUpdate =
    std::variant<PrefillBegun, PrefillPromptTokens, PrefillFirstToken, PrefillEnded>;

// The prefill worker's core. It queues prompts, computes them in chunks, several prompts in one
// step, and hands their KV over to decode workers, each with the first token of its answer.
//
// A quarter of each step goes to the oldest prompt. The rest goes to the prompts in the order of
// PromptOrder: first those that can still meet their TTFT target, then those with the fewest tokens
// left. Prompts get their blocks in this order too, but the oldest one before all others. While a
// prompt waits for free blocks, no prompt behind it gets any (PrefillCore::Admit and PlanChunks,
// prefill_worker.cc).
//
// Full blocks stay in the prefix cache when their hand-over has ended. A prompt computes only what
// follows the blocks that it finds there. If the first block that it does not find is being
// computed for another prompt, it waits for that block, and prompts behind it may overtake it. The
// prompt that computes the block takes its place in the order.
class PrefillWorker : public WorkerCore {
 public:
  // Receives the reports about one job. Called on the loop thread; must not block.
  using Update = std::function<void(PrefillUpdate)>;

  // The largest value of Options::chunk_tokens.
  static constexpr int kMaxChunk = 1 << 20;

  struct Options {
    // Max prompts that have not begun. If there are more, Submit returns ResourceExhausted.
    int max_queue = 256;
    int chunk_tokens = 512;  // max tokens in one step, over all prompts; a multiple of block_tokens
    int max_batch = 64;      // max prompts in one step
    int context = 0;         // longest prompt and answer together, in tokens; 0: the model's limit
    // The KV of a chunk is published in slices. This is the min number of bytes in a slice. If one
    // layer of the chunk has fewer bytes, a slice takes several layers.
    size_t slice_bytes = 256 << 10;
    PrefixCacheSettings cache;
    bool reuse_last_freed = false;      // for tests: the block that was freed last is reused first
    std::function<void()> wake;         // called on any thread when RunOnce has work; may be empty
    Pulse* pulse = nullptr;             // gets a beat whenever a step makes progress; may be null
    PrefillMetrics* metrics = nullptr;  // not owned; outlives the worker; may be null
  };

  // Returns the size of the largest step of a worker with these options. Any thread. Values of
  // chunk_tokens and max_batch that Create would refuse are clamped to their range.
  static StepSize MaxStep(const Options& options);

  // Creates a worker. Any thread, before the loop runs. The worker does not own the objects that it
  // gets; all must outlive it. Returns InvalidArgument, with the numbers, if an option is out of
  // range, or if the model or the pool is too small for `context`; returns ResourceExhausted if the
  // backend has too little memory. After an error nothing is left of the worker.
  //
  // Destroy the worker only after the loop and the KV thread have stopped. Jobs that have not ended
  // by then never get PrefillEnded.
  static absl::StatusOr<std::unique_ptr<PrefillWorker>> Create(Options options, const Model* model,
                                                               Backend* backend, KvPlane* plane,
                                                               KvPublisher* publisher,
                                                               KvThread on_kv_thread);

  // Queues a job for RunOnce and returns its id. Any thread. `update` is called from RunOnce and
  // must not block. After an error the job is dropped and `update` is never called. Errors:
  //   InvalidArgument    there are no tokens, an id is outside the vocabulary, or the context or
  //                      max_tokens leaves no space for another token
  //   ResourceExhausted  the queue is full
  //   Unavailable        the worker is draining
  virtual absl::StatusOr<JobId> Submit(PrefillJob job, Update update) = 0;

 protected:
  using WorkerCore::WorkerCore;
};

}  // namespace baton
