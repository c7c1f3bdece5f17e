#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

namespace {

constexpr int kThreads = 256;
constexpr float kInfinity = __builtin_huge_valf();

struct Best {
  float logit;  // NaN if one of the logits was NaN or +infinity
  int32_t token;
};

BATON_DEVICE Best Better(Best a, Best b) {
  // A NaN wins against every number. All comparisons with NaN are false, so `first` is false if `a`
  // is NaN; the test `a.logit != a.logit` then chooses `a`.
  const bool first = a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  return first || a.logit != a.logit ? a : b;
}

}  // namespace

// Each thread block takes a row. Reads 4 bytes per logit.
BATON_KERNEL(argmax, ArgmaxParams, kThreads) {
  BATON_SHARED(Best, bests, kThreads / 32);
  const float* const logits = params.logits + static_cast<int64_t>(BlockX()) * params.vocab;
  Best best = {-kInfinity, -1};
  for (int token = ThreadIndex(); token < params.vocab; token += BlockThreads()) {
    const float logit = logits[token];
    // +infinity counts as invalid, like NaN. So it is replaced by infinity - infinity, which is
    // NaN.
    if (logit != -kInfinity)
      best = Better(best, {logit == kInfinity ? logit - logit : logit, token});
  }
  BATON_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const Best other = {ShuffleXor(best.logit, mask), ShuffleXor(best.token, mask)};
    best = Better(best, other);
  }
  if (Lane() == 0) bests[Warp()] = best;
  SyncThreads();
  if (ThreadIndex() == 0) {
    for (int warp = 1; warp < BlockThreads() / 32; ++warp) best = Better(best, bests[warp]);
    params.tokens[BlockX()] = best.logit == best.logit ? best.token : -1;
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
