#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "router/core/callers.h"
#include "router/core/request_metrics.h"
#include "router/core/routing_policy.h"
#include "router/core/served_identity.h"
#include "router/core/serving_mode.h"
#include "router/core/text_decoder.h"

namespace baton {

// Settings of a RouterCore. The core reads them when it is made and never changes them.
struct RouterCoreOptions {
  std::string model_name = "model";
  int context_tokens = 0;  // The model's limit for prompt and answer together; 0: none.
  int vocab = 0;           // Size of the vocabulary. Larger token ids from a worker are DataLoss.
  // Makes the decoder of one answer to `prompt`; with `skip_special`, special tokens give no text.
  // Null: answers have no text, and stop strings do nothing.
  std::function<TextDecoder(absl::Span<const TokenId> prompt, bool skip_special)> new_decoder;

  // Mode of requests that name no mode.
  ServingMode mode = ServingMode::kDisaggregated;
  // In mode AUTO, the decode worker computes a prompt of at most `auto_prompt_tokens`, and one of
  // which it has cached some, and all but at most `auto_uncached_tokens`. It also computes longer
  // prompts while every prefill worker has more than `auto_queue_tokens` waiting.
  int auto_prompt_tokens = 64;
  int auto_uncached_tokens = 256;
  int auto_queue_tokens = 4096;

  // The rule by which one of several workers is chosen, and the seed of the rule's random choices.
  RoutingPolicyKind policy = RoutingPolicyKind::kLeastLoaded;
  uint64_t policy_seed = 0;
  // Creates a policy that has no kind, which then replaces `policy`. May be empty.
  std::function<std::unique_ptr<RoutingPolicy>(uint64_t seed)> new_policy;

  // Max memory of the index of KV blocks that workers keep, in bytes; 0: no index. Otherwise at
  // least WorkerCaches::MinBytes().
  size_t prefix_index_bytes = 0;
  uint64_t prefix_index_key = 0;  // PrefixIndex::Options::hash_key.
  // Time for which a worker to which a prompt was sent counts as having the prompt's blocks.
  absl::Duration routed_for = absl::Seconds(5);

  // The identity to serve. A part that is left empty is chosen by the number of usable workers. The
  // choice changes only after another identity has had more usable workers for `identity_lead`.
  FixedIdentity serve_identity;
  absl::Duration identity_lead = absl::Seconds(10);

  // Max number of queued requests that have never run. Further requests end with ResourceExhausted.
  int max_queued = 1024;
  CallerLimits per_caller;  // Limits of each caller.
  // Max time that a request waits to begin. A request that would wait for longer is refused when it
  // arrives.
  absl::Duration max_queue_wait = absl::Seconds(30);
  // Prompts leave the queue only while some worker has less to compute for this router than this.
  // Prompts that wait at a worker can't be overtaken by those of other callers.
  absl::Duration work_ahead = absl::Milliseconds(500);
  int max_prompts_per_worker = 64;  // Max prompts at one worker that have no first token yet.
  // Max times that a request goes back to prefill; then it ends with Unavailable.
  int max_migrations = 64;
  // Max attempts of a request in a row that a living worker breaks without a new token. One more
  // ends the request with Internal.
  int max_broken = 4;
  // A sequence pauses while this many of its tokens wait for the client.
  int client_buffer_tokens = 512;
  // Max time for which client_buffer_tokens may wait for the client. After that the request ends
  // with ResourceExhausted.
  absl::Duration slow_client_limit = absl::Seconds(30);
  // Max time that a request waits while no workers serve it. After that it ends with Unavailable.
  absl::Duration pair_wait = absl::Seconds(30);
  // Max time that a request waits while all workers refuse it as full. After that it ends with
  // ResourceExhausted.
  absl::Duration room_wait = absl::Seconds(30);
  // A worker whose last report is older than this gets no new work.
  absl::Duration report_limit = absl::Seconds(3);
  // A leg (one RPC to a worker) counts as broken if no event has come for this time and the
  // worker's last report is older than report_limit.
  absl::Duration stall_limit = absl::Seconds(5);
  // A leg counts as broken, even if its worker reports its load, if no event has come for this time
  // while the worker computes: from the first token on, and while it computes the prompt. A prompt
  // gets this time for every 1,000 tokens that the worker has to compute, rounded up.
  absl::Duration leg_silence_limit = absl::Seconds(60);
  // Time after which a detached worker without legs is dropped.
  absl::Duration forget_after = absl::Seconds(3);
  RequestMetrics* metrics = nullptr;  // Outlives the core. May be null.
};

}  // namespace baton
