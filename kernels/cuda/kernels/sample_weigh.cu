#include "kernels/cuda/kernels/octet.h"
#include "kernels/cuda/kernels/sample_locate.h"
#include "kernels/cuda/kernels/sample_weight.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each thread block takes a chunk of a row, and each of its threads takes eight logits. The kernel
// reads 4 bytes per logit. Thread blocks that make histograms sum them in shared memory first.
BATON_KERNEL(sample_weigh, SampleParams, kSampleThreads) {
  BATON_SHARED(uint64_t, sums, kMaxWarps);
  BATON_SHARED(uint32_t, counts, kSampleBins);
  BATON_SHARED(uint32_t, digits, kDigits * kSampleBins);
  const SampleMemory& memory = params.memory;
  const int row = BlockY(), chunk = BlockX();
  const SampleRow& ask = memory.rows[row];
  if (ask.slot < 0 || (params.for_logprobs ? !ask.logprobs : ask.greedy)) return;
  const bool edited = !params.for_logprobs && ask.edits;
  const float largest =
      RowLargest(memory.chunk_maxima[edited] + static_cast<int64_t>(row) * GridX(), GridX());
  if (!(largest > -kInfiniteLogit && largest < kInfiniteLogit)) return;
  const Tempered tempered = {largest, params.for_logprobs ? 1.0 : ask.scale};
  const int first = chunk * kSampleChunk + ThreadIndex() * kOctet, count = params.vocab - first;
  float logits[kOctet];
  LoadOctet(params.logits + static_cast<int64_t>(row) * params.vocab + first, count, logits);

  if (params.for_logprobs || !HasHistogram(ask)) {
    const uint64_t min = params.for_logprobs ? 1 : ask.min_weight;
    uint64_t sum = 0;
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      const uint64_t weight = tempered.Weight(logits[i]);
      if (i < count && weight >= min) {
        sum += weight;
      }
    }
    sum = WarpTotal(sum);
    if (Lane() == 0) sums[Warp()] = sum;
    SyncThreads();
    if (ThreadIndex() == 0) {
      for (int warp = 1; warp < BlockThreads() / 32; ++warp) sum += sums[warp];
      memory.chunk_sums[static_cast<int64_t>(row) * GridX() + chunk] = sum;
    }
    return;
  }

  const bool by_count = ask.top_k > 0, by_mass = ask.top_p < 1;
  for (int bin = ThreadIndex(); bin < kSampleBins; bin += BlockThreads()) {
    counts[bin] = 0;
    for (int d = 0; d < kDigits; ++d) digits[d * kSampleBins + bin] = 0;
  }
  SyncThreads();
  BATON_UNROLL
  for (int i = 0; i < kOctet; ++i) {
    const uint64_t weight = tempered.Weight(logits[i]);
    if (i >= count || weight == 0) continue;
    const int bin = tempered.Bin(logits[i]);
    if (by_count) AtomicAdd(&counts[bin], 1u);
    if (by_mass) AddDigits(&digits[bin], kSampleBins, weight);
  }
  SyncThreads();
  for (int bin = ThreadIndex(); bin < kSampleBins; bin += BlockThreads()) {
    if (counts[bin] != 0) AtomicAdd(&memory.bin_counts[row * kSampleBins + bin], counts[bin]);
    const uint64_t mass = SumOfDigits(&digits[bin], kSampleBins);
    if (mass != 0) AtomicAdd(&memory.bin_masses[row * kSampleBins + bin], mass);
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
