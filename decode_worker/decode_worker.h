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
#include "decode_worker/decode_metrics.h"
#include "kv_transfer/kv_plane.h"
#include "kv_transfer/kv_puller.h"

namespace baton {

// One sequence for this worker to continue. Its KV is pulled from a prefill worker, or computed
// here.
struct DecodeJob {
  std::string request_id;          // for log and error messages
  uint32_t attempt = 0;            // number of this attempt at the ticket; grows with each attempt
  std::optional<KvTicket> ticket;  // absent: this worker computes the KV, in chunks
  // The prompt, then the tokens that earlier attempts generated. The KV of all these tokens is
  // pulled from the prefill worker that `ticket` names, or computed here if there is no ticket.
  std::vector<TokenId> tokens;
  int original_prompt_tokens = 0;  // length of the prompt at the beginning of `tokens`
  SamplingOptions sampling;
  uint64_t caller = 0;     // equal for all jobs of one caller; callers take turns (CallerTurns)
  std::string cache_salt;  // shares cached KV only with jobs of the same salt
  // Jobs that want logprobs of a prompt that is computed here find nothing in the cache, whatever
  // this says.
  CacheUse cache = CacheUse::kOn;
};

// Sent once the worker has reserved KV blocks for the sequence, so the router may show the first
// token to the client. If the worker has no ticket, it sends this before it computes the first
// chunk of the prompt.
struct DecodeReserved {
  // Tokens at the beginning of the job whose KV was found in the cache: they are neither pulled nor
  // computed.
  int cached_tokens = 0;
};

// Some tokens of the prompt with their logprobs. Sent only if the prompt is computed here and
// sampling.prompt_logprobs is set.
struct DecodePromptTokens {
  std::vector<SampledToken> tokens;  // in order of position; the first has no logprob
};

// New tokens of the answer. If the KV was pulled from a prefill worker, the first token is the one
// that the prefill worker sampled and has reported already.
struct DecodeTokens {
  std::vector<SampledToken> tokens;  // in order of position
};

// The answer is complete. Without a ticket, the durations of the hand-over are 0.
struct DecodeFinished {
  FinishReason reason = FinishReason::kStop;
  std::optional<TokenId> stop_token;  // the stop token that ended the answer, if any
  absl::Duration handover_hidden;     // time of the pull before the prefill worker had finished
  absl::Duration handover_exposed;    // time of the pull after the prefill worker had finished
  // Time from the moment when the KV was complete and the first token known, until the first decode
  // step.
  absl::Duration decode_wait;
  absl::Duration decode;  // time from the first decode step to the last token
  std::string link;       // transport that carried the KV (link_names.h); empty without a ticket
};

// The next token cannot be computed from this KV, because the sequence has outgrown its rotary
// table (rope_config.h). This is not a failure: the router sends all tokens to a prefill worker
// again.
struct DecodeOutgrown {};

// The job has ended. The worker holds nothing for the job any more, except blocks that a running
// step still writes to.
struct DecodeEnded {
  // OK: DecodeFinished came before.
  // FailedPrecondition: DecodeOutgrown came before.
  // ResourceExhausted: too few free blocks, too many sequences, preempted, or paused for too long.
  // The router treats all of these alike and tries another worker.
  // Cancelled: by Cancel().
  // Internal: the step failed, or the logits were not numbers.
  // InvalidArgument: the sampling options exclude every token.
  // DataLoss: the prefill worker's note about the first token makes no sense.
  // Any other error, or one of these codes for another reason: the pull ended with it (PullResult).
  absl::Status status;
};

// One report about a job. Reports come in this order: DecodeReserved, DecodePromptTokens (any
// number), DecodeTokens (any number), DecodeFinished or DecodeOutgrown, DecodeEnded. DecodeEnded
// comes exactly once; each of the others may be missing.
using DecodeUpdate = std::variant<DecodeReserved, DecodePromptTokens, DecodeTokens, DecodeFinished,
                                  DecodeOutgrown, DecodeEnded>;

// The decode worker's core. It reserves KV blocks, pulls KV or computes it, and generates tokens in
// batches. Each step has a new batch of all sequences whose KV is complete. The other tokens of the
// step go to chunks of the prompts that are computed here, in turns of callers, so that no prompt
// delays the streams for longer than its chunk takes (Sarathi-Serve, arXiv:2403.02310). Block
// tables grow with their sequences. A new sequence leaves one free block for each running one. When
// no block is free nevertheless, the youngest sequence is preempted.
//
// Full blocks of prompts and answers stay in the prefix cache when their sequence has ended. The
// leading blocks that a new sequence finds there are neither pulled nor computed. If the
// sequence needs a further block, and another sequence is just pulling or computing that block, it
// waits for that block.
//
// RunOnce starts at most one step and waits for at most one. If the backend samples on the device,
// RunOnce waits for the step before the one that it has started; otherwise it waits for the step
// that it has started. A cancelled job ends once no read into its blocks is outstanding.
class DecodeWorker : public WorkerCore {
 public:
  // Receives the reports about one job. Called on the loop thread, possibly before Submit has
  // returned the job's id. Must not block. May call the functions of the worker that any thread may
  // call, such as Cancel.
  using Update = std::function<void(DecodeUpdate)>;

  // The largest values of Options::max_batch and Options::chunk_tokens.
  static constexpr int kMaxBatch = 1 << 14, kMaxChunk = 1 << 20;

  struct Options {
    // Max sequences in one step. If more are ready, the step has those that have waited longest.
    int max_batch = 64;
    // Max number of sequences that have reserved blocks, and max number of queued prompts. A job
    // beyond its limit ends with ResourceExhausted.
    int max_sequences = 128;
    int chunk_tokens = 256;  // max tokens in one step, batch and prompts together
    // Max jobs that were submitted and that RunOnce has not taken yet. If there are more, Submit
    // returns ResourceExhausted.
    int max_inbox = 256;
    int context = 0;  // longest prompt and answer together, in tokens; 0: the model's limit
    absl::Duration pause_limit = absl::Seconds(30);  // a sequence that is paused for longer ends
    PrefixCacheSettings cache;
    bool reuse_last_freed = false;     // for tests: the block that was freed last is reused first
    std::function<void()> wake;        // called on any thread when RunOnce has work; may be empty
    Pulse* pulse = nullptr;            // gets a beat whenever a step makes progress; may be null
    DecodeMetrics* metrics = nullptr;  // not owned; outlives the worker; may be null
  };

  // Returns the size of the largest step of a worker with these options. Any thread. Values of
  // max_batch and chunk_tokens that Create would refuse are clamped to their range.
  static StepSize MaxStep(const Options& options);

  // Creates a worker. Any thread, before the loop runs. The worker does not own the objects that it
  // gets; all must outlive it. Returns InvalidArgument, with the numbers, if an option is out of
  // range, or if the model or the pool is too small for `context`; returns ResourceExhausted if the
  // backend has too little memory. After an error nothing is left of the worker.
  //
  // Destroy the worker only after the loop and the KV thread have stopped. Jobs that have not ended
  // by then never get DecodeEnded. Their pulls go on until the puller, which is destroyed later,
  // ends them.
  static absl::StatusOr<std::unique_ptr<DecodeWorker>> Create(Options options, const Model* model,
                                                              Backend* backend, KvPlane* plane,
                                                              KvPuller* puller,
                                                              KvThread on_kv_thread);

  // Queues a job for RunOnce and returns its id. Any thread. `update` is called from RunOnce and
  // must not block. After an error the job is dropped and `update` is never called. Errors:
  //   InvalidArgument    the ticket does not fit the tokens, there are no tokens, an id is outside
  //                      the vocabulary, or the context or max_tokens leaves no space for another
  //                      token
  //   ResourceExhausted  the inbox is full
  //   Unavailable        the worker is draining
  virtual absl::StatusOr<JobId> Submit(DecodeJob job, Update update) = 0;
  // Pauses or resumes a job. Any thread; unknown jobs are ignored. A paused sequence keeps its
  // blocks and takes part in no new step, but tokens of steps that already run may still come. A
  // sequence that is paused for longer than `pause_limit` ends with ResourceExhausted.
  virtual void SetPaused(JobId job, bool paused) = 0;

 protected:
  using WorkerCore::WorkerCore;
};

}  // namespace baton
