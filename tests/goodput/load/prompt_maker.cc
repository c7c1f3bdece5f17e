#include "tests/goodput/load/prompt_maker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "tests/goodput/load/serving_mode.h"
#include "tests/goodput/traces/random_stream.h"

namespace baton {
namespace {

void Append(RandomStream random, const std::vector<int32_t>& population, size_t count,
            std::vector<int32_t>* tokens) {
  for (size_t i = 0; i < count; ++i)
    tokens->push_back(population[random.Below(static_cast<uint32_t>(population.size()))]);
}

}  // namespace

std::vector<int32_t> PromptMaker::Tokens(uint32_t index) const {
  BATON_CHECK(!tokens_.empty());
  const PlannedRequest& planned = schedule_.requests[index];
  const uint64_t seed = spec_.seed ^ (spec_.prompt_salt * 0x9e3779b97f4a7c15u);
  std::vector<int32_t> tokens;
  tokens.reserve(planned.prompt_tokens);
  if (!schedule_.trace.rows.empty()) {
    for (const uint64_t block : schedule_.trace.rows[planned.row].blocks) {
      const size_t left = planned.prompt_tokens - tokens.size();
      Append(RandomStream(seed + planned.pass, RandomStream::kBlocks, block), tokens_,
             std::min<size_t>(left, schedule_.block_tokens), &tokens);
    }
  }
  Append(RandomStream(seed, RandomStream::kPrompts, index), tokens_,
         planned.prompt_tokens - tokens.size(), &tokens);
  return tokens;
}

v1::GenerateRequest PromptMaker::Make(uint32_t index) const {
  const PlannedRequest& planned = schedule_.requests[index];
  v1::GenerateRequest request;
  request.set_request_id(absl::StrCat(name_, "-", index));
  request.set_model(spec_.model);
  if (schedule_.prompts.empty()) {
    const std::vector<int32_t> tokens = Tokens(index);
    request.mutable_token_ids()->mutable_ids()->Add(tokens.begin(), tokens.end());
  } else if (const FilePrompt& prompt = schedule_.prompts[planned.row];
             // If the planned prompt is shorter than the text, only the text's first tokens are
             // sent.
             planned.prompt_tokens < prompt.tokens) {
    request.mutable_token_ids()->mutable_ids()->Add(
        prompt.token_ids.begin(), prompt.token_ids.begin() + planned.prompt_tokens);
  } else {
    request.set_text(prompt.text);
  }
  request.set_mode(ServingModeOf(spec_.mode).value_or(v1::SERVING_MODE_UNSPECIFIED));
  // The router needs the targets to attribute a missed target to a phase.
  if (spec_.targets.ttft_s.has_value())
    request.mutable_slo()->set_ttft_ms(*spec_.targets.ttft_s * 1e3);
  if (spec_.targets.tpot_s.has_value())
    request.mutable_slo()->set_tpot_ms(*spec_.targets.tpot_s * 1e3);
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_temperature(static_cast<float>(spec_.temperature));
  sampling.set_seed(RandomStream(spec_.seed, RandomStream::kSamples, index).Next());
  sampling.set_max_tokens(planned.output_tokens);
  if (spec_.workload.forced_length) {
    sampling.set_min_tokens(planned.output_tokens);
    sampling.set_ignore_eos(true);
  }
  return request;
}

uint64_t PromptMaker::Fingerprint(const v1::GenerateRequest& request) {
  v1::GenerateRequest bare = request;
  bare.clear_request_id();
  bare.clear_model();
  bare.clear_mode();
  bare.clear_slo();
  return Hash64(bare.SerializeAsString());
}

}  // namespace baton
