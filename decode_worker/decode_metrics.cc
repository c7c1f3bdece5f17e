#include "decode_worker/decode_metrics.h"

#include <algorithm>
#include <string>

namespace baton {

void DecodeMetrics::Pulled(const PullResult& result) {
  pulls[std::clamp(static_cast<int>(result.status.code()), 0, kCodes - 1)].Add();
  if (!result.status.ok()) return;
  pulled_bytes[LinkIndex(result.link)].Add(result.bytes);
  pull_hidden.Observe(result.hidden);
  pull_exposed.Observe(result.exposed);
}

void DecodeMetrics::AddTo(MetricRegistry* registry) const {
  registry->AddHistogram("baton_decode_step_seconds", "Time of a step.", {}, &step_seconds);
  registry->AddHistogram("baton_decode_step_sequences",
                         "Batch size: sequences that got a token in a step.", {}, &step_sequences);
  registry->AddHistogram("baton_decode_step_prompt_tokens",
                         "Tokens of prompts in a step, of those that had some.", {},
                         &step_prompt_tokens);
  registry->AddCounter("baton_decode_steps_ahead_total",
                       "Steps that were started before it was known what the one before drew.", {},
                       &steps_ahead);
  registry->AddCounter("baton_decode_surplus_tokens_total",
                       "Tokens sampled, in such steps, for sequences that had ended.", {},
                       &surplus_tokens);
  registry->AddCounter("baton_decode_generated_tokens_total", "Tokens generated here.", {},
                       &generated_tokens);
  registry->AddCounter("baton_decode_prompt_tokens_total",
                       "Tokens of prompts that were computed here.", {}, &prompt_tokens);
  registry->AddCounter("baton_decode_preemptions_total",
                       "Sequences sent away because KV blocks ran out.", {}, &preemptions);
  for (int code = 0; code < kCodes; ++code) {
    registry->AddCounter("baton_decode_pulls_total", "Pulls of a sequence's KV, by how they ended.",
                         {{"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}},
                         &pulls[code]);
  }
  for (size_t link = 0; link < pulled_bytes.size(); ++link) {
    registry->AddCounter("baton_decode_pulled_bytes_total", "Bytes of KV pulled, by transport.",
                         {{"link", std::string(kLinkNames[link])}}, &pulled_bytes[link]);
  }
  constexpr char kPullHelp[] = "Time of a pull, hidden behind prefill and exposed after it.";
  registry->AddHistogram("baton_decode_pull_seconds", kPullHelp, {{"part", "hidden"}},
                         &pull_hidden);
  registry->AddHistogram("baton_decode_pull_seconds", kPullHelp, {{"part", "exposed"}},
                         &pull_exposed);
}

}  // namespace baton
