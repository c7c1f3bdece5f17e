#include "prefill_worker/prefill_metrics.h"

#include <utility>

namespace baton {

void PrefillMetrics::Ended(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return read.Add();
    case absl::StatusCode::kFailedPrecondition:
      return expired.Add();
    case absl::StatusCode::kCancelled:
      return cancelled.Add();
    default:
      return failed.Add();
  }
}

void PrefillMetrics::AddTo(MetricRegistry* registry) const {
  registry->AddHistogram("baton_prefill_step_seconds", "Time of a step, in seconds.", {},
                         &step_seconds);
  registry->AddHistogram("baton_prefill_step_tokens", "Prompt tokens in a step.", {}, &step_tokens);
  registry->AddHistogram("baton_prefill_step_prompts", "Prompts with a chunk in a step.", {},
                         &step_prompts);
  registry->AddHistogram(
      "baton_prefill_queue_seconds",
      "Time from a prompt's arrival at this worker to its first chunk, in seconds.", {},
      &queue_seconds);
  registry->AddHistogram(
      "baton_prefill_prompt_seconds",
      "Time from the start of a prompt's first chunk to its first token, in seconds.", {},
      &prefill_seconds);
  registry->AddCounter("baton_prefill_prompt_tokens_total",
                       "Prompt tokens computed by this worker.", {}, &prompt_tokens);
  registry->AddCounter("baton_prefill_cached_tokens_total",
                       "Prompt tokens whose KV was found in the prefix cache.", {}, &cached_tokens);
  registry->AddCounter("baton_prefill_evicted_blocks_total",
                       "KV blocks that the prefix cache has evicted.", {}, &evicted_blocks);
  for (const auto& [outcome, counter] :
       {std::pair{"read", &read}, std::pair{"expired", &expired},
        std::pair{"cancelled", &cancelled}, std::pair{"failed", &failed}}) {
    registry->AddCounter("baton_prefill_handovers_total",
                         "Prompts that have ended, by what happened to their KV: read by a decode "
                         "worker, expired at the end of the lease, cancelled or failed.",
                         {{"outcome", outcome}}, counter);
  }
  for (const auto& [state, gauge] : {std::pair{"computing", &computing}, std::pair{"held", &held},
                                     std::pair{"ending", &ending}}) {
    registry->AddGauge(
        "baton_prefill_kv_leases",
        "Prompts that hold KV blocks, by state: computing, held for a decode worker, or ending.",
        {{"state", state}}, [g = gauge] { return double(g->value()); });
  }
}

}  // namespace baton
