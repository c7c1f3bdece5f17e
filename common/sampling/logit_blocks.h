#pragma once

#include <cstddef>

namespace baton {

// Passes over all logits, in blocks of 64; the last may be shorter. Every instruction set gives the
// same bits: each element is computed by the same additions and multiplications, and a block is
// summed as eight lanes (element i in lane i mod 8, in order), then lanes pairwise.
inline constexpr size_t kLogitBlock = 64;
inline constexpr size_t LogitBlocks(size_t logits) {
  return (logits + kLogitBlock - 1) / kLogitBlock;
}

// e^x for x <= 0, 0 from -708 down. Relative error below 1e-13, which is far below what a float
// logit can tell apart.
double ExpNegative(double x);

// The weight of a token is ExpNegative((logit - largest) * scale): 1 for the best, and 0 for
// -infinity.
struct LogitKernels {
  const char* name;  // of the instruction set
  // out[b], [LogitBlocks(n)]: the largest logit of block b. False when any is NaN or +infinity.
  bool (*maxima)(const float* logits, size_t n, float* out);
  // out[b], [LogitBlocks(n)]: the sum of the weights of block b.
  void (*sums)(const float* logits, size_t n, float largest, double scale, double* out);
  // out[i], [n]: the weight of each; n is at most a block.
  void (*weights)(const float* logits, size_t n, float largest, double scale, double* out);
};

// The fastest that this machine can run, and all that it can.
const LogitKernels& BestLogitKernels();
const LogitKernels* AllLogitKernels(size_t* count);

}  // namespace baton
