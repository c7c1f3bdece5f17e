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

// A request and its right answers, which a single process has computed without a prefix cache.
struct Case {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
  v1::ServingMode mode = v1::SERVING_MODE_DISAGGREGATED;
  std::string cache_salt;
  bool prefix_cache = true;
  std::vector<std::vector<TokenId>> expected;  // The request asks for as many answers as are here.
  std::vector<SampledToken> scores;  // Logprobs of the prompt, if the request asks for them.
  CpuJudge* judge = nullptr;         // Set if `expected` has only some of several right answers.
  // True if no earlier request can have left KV of this prompt that this request may use.
  bool first_of_its_salt = false;

  v1::GenerateRequest Request() const;
  // Returns true if all tokens of `answer` are right. The answer may be incomplete.
  bool Begins(const Answer& answer) const;
  // Returns true if `answer` is complete and right.
  bool Is(const Answer& answer) const;
  // Checks the numbers of cached tokens of a complete answer. Returns what is wrong with them, or
  // an empty string. A request that lost a worker may find what its earlier attempts left; set
  // `may_have_migrated` if the answer does not say so.
  std::string WrongAboutCache(const Answer& answer, bool may_have_migrated) const;

 private:
  bool TokensBegin(const std::vector<TokenId>& ids, size_t index) const;
};

// Makes a case of `answers` answers. `truth` computes them.
Case MakeCase(Truth& truth, std::vector<TokenId> prompt, SamplingOptions sampling, int answers = 1);
// Makes a case with a random prompt.
Case MakeCase(Truth& truth, std::mt19937& random, int prompt_tokens, SamplingOptions sampling);

// The backend of the workers. `judge` compares their answers with the CPU's. If it is null, answers
// must equal those of a single process with the same kind of backend.
struct Workers {
  std::string backend;
  CpuJudge* judge = nullptr;
};

// The turns of a conversation. The prompt of a turn is the prompt of the turn before, the expected
// answer to it, and some new tokens.
using Conversation = std::vector<Case>;

struct Cases {
  std::vector<Case> alone;  // Requests that do not continue another one.
  std::vector<Conversation> conversations;
};

// Makes this number of conversations, and four times as many requests that stand alone. Their
// prompts and answers are long, so that kills often hit prefill, the pull of KV, and decode. Some
// prompts begin with a part of the same documents, some have a cache_salt, and some must not use
// the prefix cache.
Cases MakeCases(const std::string& model, const Workers& workers, int longest, int conversations,
                std::mt19937& random);

}  // namespace baton
