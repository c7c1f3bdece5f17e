#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/types.h"
#include "common/engine/answer_bounds.h"
#include "common/sampling/sampling_options.h"
#include "tests/cluster/truth.h"

namespace baton {

// Compares answers of workers on a device with the CPU backend. For each token, the CPU gets the
// prompt and the tokens that the worker wrote before. Where the CPU's choice is clear
// (answer_bounds.h), the worker must have chosen the same token.
class CpuJudge {
 public:
  CpuJudge(const std::string& model, std::unique_ptr<Truth> truth)
      : bounds_(AnswerBoundsOf(model)), truth_(std::move(truth)) {}

  // Returns true if `ids` has the CPU's token at each position where the CPU's choice is clear,
  // which means that errors of the device can't change it. Any thread.
  bool Chose(const std::vector<TokenId>& prompt, const std::vector<TokenId>& ids,
             const SamplingOptions& sampling);
  // Two prompt logprobs count as equal if they differ by at most this number of nats.
  double max_apart() const { return bounds_.gap / 2; }
  float temperature() const { return bounds_.temperature; }
  // Returns the number of tokens in all distinct answers, and the number of those tokens that were
  // compared, because the CPU's choice was clear (answer_bounds.h).
  std::pair<int, int> counts();

 private:
  const AnswerBounds bounds_;
  Mutex mutex_;
  const std::unique_ptr<Truth> truth_ ABSL_GUARDED_BY(mutex_);
  // The verdicts so far, by prompt with answer, seed and number of the answer.
  std::map<std::tuple<std::vector<TokenId>, uint64_t, uint32_t>, bool> judged_
      ABSL_GUARDED_BY(mutex_);
  int tokens_ ABSL_GUARDED_BY(mutex_) = 0, compared_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton
