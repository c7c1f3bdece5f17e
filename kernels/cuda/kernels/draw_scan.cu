#include "kernels/cuda/kernels/draw_weight.h"
#include "kernels/cuda/kernels/octet.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each thread block takes a chunk of a row, each thread eight logits. Reads 4 bytes per logit.
BATON_KERNEL(draw_scan, DrawParams, kDrawThreads) {
  BATON_SHARED(float, maxima, kDrawThreads / 32);
  static_assert(kDrawThreads * kOctet == kDrawChunk);
  const DrawMemory& memory = params.memory;
  const int row = BlockY(), chunk = BlockX();
  const DrawRow& ask = memory.rows[row];
  if (ask.slot < 0 || (params.edited && !ask.edits)) return;
  const int first = chunk * kDrawChunk + ThreadIndex() * kOctet, count = params.vocab - first;
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
  constexpr int kThreadsOfBlock = kDrawBlock / kOctet;
  BATON_UNROLL
  for (int mask = 1; mask < kThreadsOfBlock; mask *= 2) {
    const float other = ShuffleXor(largest, mask);
    largest = other > largest ? other : largest;
  }
  if (Lane() % kThreadsOfBlock == 0 && count > 0) {
    memory.block_maxima[static_cast<int64_t>(row) * params.blocks + first / kDrawBlock] = largest;
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
    for (int bin = chunk * BlockThreads() + ThreadIndex(); bin < kDrawBins;
         bin += GridX() * BlockThreads()) {
      memory.bin_counts[row * kDrawBins + bin] = 0;
      memory.bin_masses[row * kDrawBins + bin] = 0;
    }
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
