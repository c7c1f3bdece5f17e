#pragma once

#include <random>
#include <string>
#include <vector>

#include "baton/v1/inference.pb.h"
#include "common/base/types.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/truth.h"
#include "tests/faults/cpu_judge.h"

namespace baton {

// A request and its right answer.
struct Case {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
  v1::ServingMode mode = v1::SERVING_MODE_DISAGGREGATED;
  std::vector<TokenId> expected;
  std::vector<SampledToken> scores;  // Logprobs of the prompt, if the request asks for them.
  CpuJudge* judge = nullptr;         // Set if `expected` is only one of several right answers.

  v1::GenerateRequest Request() const;
  // Returns true if all tokens of `answer` are right. The answer may be incomplete.
  bool Begins(const Answer& answer) const;
  // Returns true if `answer` is complete and right.
  bool Is(const Answer& answer) const;
};

// Makes a case with a random prompt. `truth` computes its answer.
Case MakeCase(Truth& truth, std::mt19937& random, int prompt_tokens, SamplingOptions sampling);

// The backend of the workers. `judge` compares their answers with the CPU's. If it is null, answers
// must equal those of a single process with the same kind of backend.
struct Workers {
  std::string backend;
  CpuJudge* judge = nullptr;
};

// Makes cases with long prompts and long answers, so that kills often hit prefill, the pull of KV,
// and decode.
std::vector<Case> MakeCases(const std::string& model, const Workers& workers, int longest,
                            std::mt19937& random);

}  // namespace baton
