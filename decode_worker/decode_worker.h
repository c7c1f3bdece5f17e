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

// One sequence to continue, everything decided: taken over from a prefill worker, or computed here.
struct DecodeJob {
  std::string request_id;          // for messages
  uint32_t attempt = 0;            // tries at this ticket
  std::optional<KvTicket> ticket;  // none: this worker computes the KV, in chunks
  std::vector<TokenId> tokens;     // what the ticket's KV was computed from, or is to be
  int original_prompt_tokens = 0;
  SamplingOptions sampling;
};

// The worker keeps room for this sequence: its first token may be shown. Without a ticket: its
// first chunk is about to run.
struct DecodePromised {};

// Some tokens of the prompt with their logprobs, where they are computed here and asked for.
struct DecodePromptTokens {
  std::vector<SampledToken> tokens;  // in order of position; the first has no logprob
};

struct DecodeTokens {
  std::vector<SampledToken>
      tokens;  // in order of position; with a ticket the prefill worker's comes first, again
};

struct DecodeFinished {
  FinishReason reason = FinishReason::kStop;
  std::optional<TokenId> stop_token;  // the token that ended it, if one did
  absl::Duration handover_hidden;     // pulling before the first token was known
  absl::Duration handover_exposed;    // pulling after that
  absl::Duration decode_wait;         // from complete KV and first token to the first decode step
  absl::Duration decode;              // from then to the last token
  std::string link;                   // that carried the KV; empty without a ticket
};

// The next token can't be computed from this KV: the sequence has outgrown its rotary table
// (rope_config.h). To be taken to a prefill worker with all its tokens; nobody has failed.
struct DecodeOutgrown {};

struct DecodeEnded {
  // OK: DecodeFinished came before. FailedPrecondition: after DecodeOutgrown. ResourceExhausted: no
  // room now, preempted, or paused for too long; the router treats the three alike, and tries
  // another worker. Cancelled: by Cancel(). Internal: the step failed.
  // Otherwise what the pull ended with (PullResult).
  absl::Status status;
};

// In this order: DecodePromised, DecodePromptTokens (many), DecodeTokens (many), DecodeFinished or
// DecodeOutgrown, DecodeEnded. The last comes exactly once.
using DecodeUpdate = std::variant<DecodePromised, DecodePromptTokens, DecodeTokens, DecodeFinished,
                                  DecodeOutgrown, DecodeEnded>;

// The decode worker's core: promises room, pulls KV or computes it, and batches token generation,
// recomposing the batch every step from all sequences whose KV is complete. What a step has left
// beside them goes to chunks of the prompts that are computed here, oldest first, so that no prompt
// holds up the streams for longer than its chunk (Sarathi-Serve, arXiv:2403.02310). Block tables
// grow as sequences do; when blocks run out the youngest sequence is preempted.
//
// RunOnce starts at most one step and waits for at most one: for the one it has started, or, with a
// backend that draws, for the one before that. A cancelled job ends once no read into its blocks is
// outstanding.
class DecodeWorker : public WorkerCore {
 public:
  using Update = std::function<void(DecodeUpdate)>;

  // The largest values of Options::max_batch and Options::chunk_tokens.
  static constexpr int kMostBatch = 1 << 14, kMostChunk = 1 << 20;

  struct Options {
    int max_batch = 64;  // sequences in one step; with more, those that waited longest
    int max_sequences =
        128;                 // promised, and prompts queued, at one time; beyond: ResourceExhausted
    int chunk_tokens = 256;  // of one step, the batch's and those of prompts together
    int max_inbox = 256;     // submitted and not yet looked at; beyond it ResourceExhausted
    int context = 0;         // longest prompt + answer, tokens; 0 takes the model's
    absl::Duration pause_limit = absl::Seconds(30);
    bool reuse_last_freed = false;     // for tests: blocks are reused last in, first out
    std::function<void()> wake;        // any thread: RunOnce has something to do; may be empty
    Pulse* pulse = nullptr;            // beats while a step gets on; may be null
    DecodeMetrics* metrics = nullptr;  // outlives the worker; null: nobody looks
  };

  // The largest step of a worker with these options, also of options that Create refuses.
  static StepSize MostInAStep(const Options& options);

  // All must outlive the worker. `context` and the pool must fit: InvalidArgument with the
  // arithmetic. The worker is destroyed after loop and KV thread have stopped; jobs that have not
  // ended by then never will.
  static absl::StatusOr<std::unique_ptr<DecodeWorker>> Create(Options options, const Model* model,
                                                              Backend* backend, KvPlane* plane,
                                                              KvPuller* puller,
                                                              KvThread on_kv_thread);

  // Any thread. `update` is called from RunOnce and must not block. InvalidArgument: ticket and
  // tokens do not belong together, ids outside the vocabulary, no room for an answer in the
  // context. ResourceExhausted: the inbox is full. Unavailable: draining. After an error `update`
  // is never called.
  virtual absl::StatusOr<JobId> Submit(DecodeJob job, Update update) = 0;
  // Any thread. A paused sequence keeps its blocks and is left out of steps; tokens of steps that
  // run now may still come. A sequence that is paused for longer than `pause_limit` ends.
  virtual void SetPaused(JobId job, bool paused) = 0;

 protected:
  using WorkerCore::WorkerCore;
};

}  // namespace baton
