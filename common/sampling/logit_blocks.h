#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

// Passes over all logits, in blocks of 64; the last may be shorter. Every instruction set gives the
// same bits, and so does a GPU (kernels/cuda/kernels/draw_kernels.h): each element is computed by
// the same additions and multiplications of doubles and rounded to an integer, and integers have
// the same sum in any order.
inline constexpr size_t kLogitBlock = 64;
inline constexpr size_t LogitBlocks(size_t logits) {
  return (logits + kLogitBlock - 1) / kLogitBlock;
}

// The weight of the most likely token. 2^24 of them have a sum in 64 bits.
inline constexpr int kWeightBits = 39;
inline constexpr uint64_t kWholeWeight = uint64_t{1} << kWeightBits;

// e^x for x <= 0 in units of 2^-kWeightBits, to nearest: 0 from -27.8 down. Its relative error
// before rounding is below 1e-13.
uint64_t TokenWeight(double x);

// The weight of a token is TokenWeight((logit - largest) * scale): kWholeWeight for the best, and 0
// for -infinity.
struct LogitKernels {
  const char* name;  // of the instruction set
  // out[b], [LogitBlocks(n)]: the largest logit of block b. False when any is NaN or +infinity.
  bool (*maxima)(const float* logits, size_t n, float* out);
  // out[b], [LogitBlocks(n)]: the sum of the weights of block b.
  void (*sums)(const float* logits, size_t n, float largest, double scale, uint64_t* out);
  // out[i], [n]: the weight of each; n is at most a block.
  void (*weights)(const float* logits, size_t n, float largest, double scale, uint64_t* out);
};

// The fastest that this machine can run, and all that it can.
const LogitKernels& BestLogitKernels();
const LogitKernels* AllLogitKernels(size_t* count);

}  // namespace baton
