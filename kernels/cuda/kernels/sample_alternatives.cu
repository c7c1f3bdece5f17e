#include "kernels/cuda/kernels/sample_locate.h"
#include "kernels/cuda/kernels/sample_weight.h"

namespace baton::BATON_DEVICE_NAMESPACE {
namespace {

constexpr uint64_t kNone = 0;  // a key is never 0

// Returns a number by which candidates are compared: the larger key is better, and among equal keys
// the lower index.
BATON_DEVICE uint64_t Preference(uint32_t key, int index) {
  return Joined(~static_cast<uint32_t>(index), key);
}
BATON_DEVICE uint32_t KeyOf(uint64_t preference) { return static_cast<uint32_t>(preference >> 32); }
BATON_DEVICE int IndexOf(uint64_t preference) {
  return static_cast<int>(~static_cast<uint32_t>(preference));
}

BATON_DEVICE uint64_t WarpMax(uint64_t value) {
  BATON_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t low = ShuffleXor(static_cast<uint32_t>(value), mask);
    const uint32_t high = ShuffleXor(static_cast<uint32_t>(value >> 32), mask);
    value = Joined(low, high) > value ? Joined(low, high) : value;
  }
  return value;
}

}  // namespace

// Each thread block takes a row, before its logits are edited. To find the next best token, the
// threads first choose the block of logits with the best remaining logit, and then search only this
// block.
BATON_KERNEL(sample_alternatives, SampleParams, kSampleThreads) {
  BATON_SHARED(uint64_t, sums, kMaxWarps);
  BATON_SHARED(uint64_t, max, kSampleThreads / 32);
  // For each block of logits: the key (OrderKey) of its best logit that has not been chosen yet.
  BATON_SHARED(uint32_t, heads, (kMaxSampleVocab + kSampleBlock - 1) / kSampleBlock);
  const SampleMemory& memory = params.memory;
  const int row = BlockX(), vocab = params.vocab;
  const int blocks = params.blocks, chunks = params.chunks;
  const SampleRow& ask = memory.rows[row];
  if (ask.slot < 0 || !ask.logprobs) return;
  const float largest =
      RowLargest(memory.chunk_maxima[0] + static_cast<int64_t>(row) * chunks, chunks);
  if (!(largest > -kInfiniteLogit && largest < kInfiniteLogit)) return;
  const uint64_t* const chunk_sums = memory.chunk_sums + static_cast<int64_t>(row) * chunks;
  const uint64_t sum = BlockTotal(
      0, chunks, [&](int chunk) { return chunk_sums[chunk]; }, AsFetched(), sums);
  if (ThreadIndex() == 0) {
    memory.results[row].largest = largest;
    memory.results[row].sum = sum;
  }
  const float* const logits = params.logits + static_cast<int64_t>(row) * vocab;
  const float* const maxima = memory.block_maxima + static_cast<int64_t>(row) * blocks;
  for (int block = ThreadIndex(); block < blocks; block += BlockThreads()) {
    heads[block] = OrderKey(maxima[block]);
  }
  uint64_t last = ~uint64_t{0};
  for (int i = 0; i < ask.alternatives && i < vocab; ++i) {
    // The barrier makes the entries of `heads` that thread 0 wrote visible; a thread reads only
    // entries that it wrote itself or that thread 0 wrote. The barrier also waits until all threads
    // have finished reading `max`, which is written again below.
    SyncThreads();
    uint64_t best = kNone;
    for (int block = ThreadIndex(); block < blocks; block += BlockThreads()) {
      const uint64_t own = heads[block] == 0 ? kNone : Preference(heads[block], block);
      best = own > best ? own : best;
    }
    best = WarpMax(best);
    if (Lane() == 0) max[Warp()] = best;
    SyncThreads();
    for (int warp = 0; warp < BlockThreads() / 32; ++warp)
      best = max[warp] > best ? max[warp] : best;
    const int block = IndexOf(best);
    // All warps make the same search of the chosen block of logits. Only one thread writes the
    // result.
    uint64_t left[kSampleBlock / 32], next = kNone;
    for (int j = 0; j < kSampleBlock / 32; ++j) {
      const int token = block * kSampleBlock + j * 32 + Lane();
      left[j] = token < vocab ? Preference(OrderKey(logits[token]), token) : kNone;
      if (left[j] < last && left[j] > next) {
        next = left[j];
      }
    }
    last = WarpMax(next);
    next = kNone;
    for (int j = 0; j < kSampleBlock / 32; ++j) {
      if (left[j] < last && left[j] > next) next = left[j];
    }
    next = WarpMax(next);
    if (ThreadIndex() == 0) {
      memory.alternatives[row * kMaxAlternatives + i] = {IndexOf(last), LogitOfKey(KeyOf(last))};
      heads[block] = KeyOf(next);
    }
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
