#include "tests/faults/cases.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "common/base/check.h"

namespace baton {

v1::GenerateRequest Case::Request() const {
  v1::GenerateRequest request = TokenRequest(prompt, sampling.max_tokens);
  *request.mutable_sampling() = SamplingToProto(sampling);
  request.mutable_sampling()->set_ignore_eos(true);
  request.set_mode(mode);
  return request;
}

bool Case::Begins(const Answer& answer) const {
  const std::vector<TokenId> ids = answer.ids();
  if (ids.size() > expected.size() || answer.prompt.size() > scores.size()) return false;
  for (size_t i = 0; i < answer.prompt.size(); ++i) {
    const v1::Token& token = answer.prompt[i];
    if (token.token_id() != prompt[i] || token.has_logprob() != (i > 0) ||
        !(std::abs(token.logprob() - scores[i].logprob.value_or(0)) <=
          (judge != nullptr ? judge->max_apart() : 0))) {
      return false;
    }
  }
  if (judge != nullptr) return judge->Chose(prompt, ids, sampling);
  return std::equal(ids.begin(), ids.end(), expected.begin());
}

bool Case::Is(const Answer& answer) const {
  return Begins(answer) && answer.tokens.size() == expected.size() &&
         answer.prompt.size() == scores.size();
}

Case MakeCase(Truth& truth, std::mt19937& random, int prompt_tokens, SamplingOptions sampling) {
  Case c;
  const int vocab = truth.config().vocab;
  for (int t = 0; t < prompt_tokens; ++t) {
    c.prompt.push_back(std::uniform_int_distribution<TokenId>(0, vocab - 1)(random));
  }
  c.sampling = std::move(sampling);
  const auto expected = truth.FullAnswer(c.prompt, c.sampling);
  BATON_CHECK(expected.ok()) << expected.status();
  for (const SampledToken& token : expected->tokens) c.expected.push_back(token.id);
  c.scores = expected->prompt;
  return c;
}

std::vector<Case> MakeCases(const std::string& model, const Workers& workers, int longest,
                            std::mt19937& random) {
  const bool device = workers.backend != "cpu";
  const auto truth =
      device && workers.judge == nullptr ? Truth::LoadOnEmulatedDevice(model) : Truth::Load(model);
  BATON_CHECK(truth.ok()) << truth.status();
  std::vector<Case> cases;
  for (int i = 0; i < 48; ++i) {
    const int length = std::uniform_int_distribution<int>(
        1, i % 3 == 0 ? longest : std::min(longest / 2, 400))(random);
    SamplingOptions sampling;
    sampling.max_tokens = std::uniform_int_distribution<int>(8, device ? 40 : 160)(random);
    if (i % 2 != 0) {
      sampling.temperature = workers.judge != nullptr ? workers.judge->temperature() : 1;
      sampling.seed = random();
    }
    // Half of the cases use sampling options that depend on earlier tokens.
    if (i % 4 >= 2 && workers.judge == nullptr) {
      sampling.repetition_penalty = 1.2f;
      sampling.frequency_penalty = 0.3f;
      sampling.bad_words = {{5}, {11, 12}};
    }
    if (i % 5 == 0) sampling.prompt_logprobs = 1;
    cases.push_back(MakeCase(**truth, random, length, std::move(sampling)));
    cases.back().judge = workers.judge;
    if (i % 8 == 3) cases.back().mode = v1::SERVING_MODE_COLOCATED;
    if (i % 8 == 6) cases.back().mode = v1::SERVING_MODE_AUTO;
  }
  return cases;
}

}  // namespace baton
