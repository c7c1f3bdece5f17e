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
  registry->AddHistogram("baton_prefill_step_seconds", "Time of a step.", {}, &step_seconds);
  registry->AddHistogram("baton_prefill_step_tokens", "Prompt tokens of a step.", {}, &step_tokens);
  registry->AddHistogram("baton_prefill_step_prompts", "Prompts with a chunk in a step.", {},
                         &step_prompts);
  registry->AddHistogram("baton_prefill_queue_seconds",
                         "From a prompt's arrival here to its first chunk.", {}, &queue_seconds);
  registry->AddHistogram("baton_prefill_prompt_seconds",
                         "From a prompt's first chunk to its first token.", {}, &prefill_seconds);
  registry->AddCounter("baton_prefill_prompt_tokens_total", "Prompt tokens computed.", {},
                       &prompt_tokens);
  for (const auto& [outcome, counter] :
       {std::pair{"read", &read}, std::pair{"expired", &expired},
        std::pair{"cancelled", &cancelled}, std::pair{"failed", &failed}}) {
    registry->AddCounter("baton_prefill_handovers_total", "Prompts by how their KV ended.",
                         {{"outcome", outcome}}, counter);
  }
  for (const auto& [state, gauge] : {std::pair{"computing", &computing}, std::pair{"held", &held},
                                     std::pair{"ending", &ending}}) {
    registry->AddGauge("baton_prefill_kv_leases", "Prompts whose KV blocks are taken, by state.",
                       {{"state", state}}, [g = gauge] { return double(g->value()); });
  }
}

}  // namespace baton
