#include "kernels/cuda/kernels/octet.h"
#include "kernels/cuda/kernels/sample_weight.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each thread block takes a chunk of a row, and each of its threads takes eight logits. The kernel
// reads 4 bytes per logit.
BATON_KERNEL(sample_scan, SampleParams, kSampleThreads) {
  BATON_SHARED(float, maxima, kSampleThreads / 32);
  static_assert(kSampleThreads * kOctet == kSampleChunk);
  const SampleMemory& memory = params.memory;
  const int row = BlockY(), chunk = BlockX();
  const SampleRow& ask = memory.rows[row];
  if (ask.slot < 0 || (params.edited && !ask.edits)) return;
  const int first = chunk * kSampleChunk + ThreadIndex() * kOctet, count = params.vocab - first;
  float logits[kOctet];
  LoadOctet(params.logits + static_cast<int64_t>(row) * params.vocab + first, count, logits);
  float largest = -kInfiniteLogit;
  BATON_UNROLL
  for (int i = 0; i < kOctet; ++i) {
    // NaN is not less than anything, so it becomes +infinity.
    const float logit = logits[i] < kInfiniteLogit ? logits[i] : kInfiniteLogit;
    if (i < count && logit > largest) {
      largest = logit;
    }
  }
  constexpr int kThreadsOfBlock = kSampleBlock / kOctet;
  BATON_UNROLL
  for (int mask = 1; mask < kThreadsOfBlock; mask *= 2) {
    const float other = ShuffleXor(largest, mask);
    largest = other > largest ? other : largest;
  }
  if (Lane() % kThreadsOfBlock == 0 && count > 0) {
    memory.block_maxima[static_cast<int64_t>(row) * params.blocks + first / kSampleBlock] = largest;
  }
  largest = WarpMax(largest);
  if (Lane() == 0) maxima[Warp()] = largest;
  SyncThreads();
  if (ThreadIndex() == 0) {
    for (int warp = 1; warp < BlockThreads() / 32; ++warp) {
      largest = maxima[warp] > largest ? maxima[warp] : largest;
    }
    memory.chunk_maxima[params.edited][static_cast<int64_t>(row) * GridX() + chunk] = largest;
  }
  if (!params.edited && HasHistogram(ask)) {
    for (int bin = chunk * BlockThreads() + ThreadIndex(); bin < kSampleBins;
         bin += GridX() * BlockThreads()) {
      memory.bin_counts[row * kSampleBins + bin] = 0;
      memory.bin_masses[row * kSampleBins + bin] = 0;
    }
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
