#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

// Number of logits in a block. Code that goes over all logits works block by block; the last block
// may be shorter. Every instruction set gives the same bits, and so does a GPU
// (kernels/cuda/kernels/sample_kernels.h), for two reasons. Each element is computed with the same
// additions and multiplications of doubles, then rounded to an integer. And a sum of integers does
// not depend on the order of its terms.
inline constexpr size_t kLogitBlock = 64;
inline constexpr size_t LogitBlocks(size_t logits) {
  return (logits + kLogitBlock - 1) / kLogitBlock;
}

// The most likely token has the weight 2^kWeightBits. The sum of 2^24 such weights fits in 64 bits.
inline constexpr int kWeightBits = 39;
inline constexpr uint64_t kWholeWeight = uint64_t{1} << kWeightBits;

// Returns e^x for x <= 0, in units of 2^-kWeightBits, rounded to nearest: 0 for x below -27.8. The
// relative error before rounding is below 1e-13.
uint64_t TokenWeight(double x);

// Passes over the logits for one instruction set. The weight of a token is TokenWeight((logit -
// largest) * scale): kWholeWeight for the best token, 0 for a logit of -infinity.
struct LogitKernels {
  const char* name;  // name of the instruction set
  // Sets out[b] to the largest logit of block b, for all LogitBlocks(n) blocks. Returns false if
  // any logit is NaN or +infinity.
  bool (*maxima)(const float* logits, size_t n, float* out);
  // Sets out[b] to the sum of the weights of block b, for all LogitBlocks(n) blocks.
  void (*sums)(const float* logits, size_t n, float largest, double scale, uint64_t* out);
  // Sets out[i] to the weight of token i, for n tokens; `n` is at most kLogitBlock.
  void (*weights)(const float* logits, size_t n, float largest, double scale, uint64_t* out);
};

// BestLogitKernels returns the fastest kernels that this machine can run. AllLogitKernels returns
// all kernels that it can run, slowest first, and sets `*count` to their number.
const LogitKernels& BestLogitKernels();
const LogitKernels* AllLogitKernels(size_t* count);

}  // namespace baton
