#pragma once

// Finds the cut of a row: the last token that top_k and top_p keep. Included by kernels only.

#include "kernels/cuda/kernels/sample_locate.h"
#include "kernels/cuda/kernels/sample_weight.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// A row in the form in which a thread block of sample_token uses it.
struct SampledRow {
  Tempered tempered;
  const float* logits;
  const float* maxima;  // the largest logit of each block of logits
  int vocab, blocks, chunks;
  // Shared memory of the thread block.
  uint64_t* sums;    // [kMaxWarps]
  uint32_t* counts;  // [kSampleBins]
  uint32_t* digits;  // [kDigits, kSampleBins]

  // Returns the token's logit. Returns -infinity without reading the logit if no logit of its block
  // can reach `min_key`, an OrderKey (an integer that orders logits).
  BATON_DEVICE float Fetch(int token, uint32_t min_key) const {
    return OrderKey(maxima[token / kSampleBlock]) >= min_key ? logits[token] : -kInfiniteLogit;
  }
  // Returns the token's weight, or 0 if the token is cut off or weighs less than `min`.
  BATON_DEVICE uint64_t KeptWeight(int token, float logit, const Cut& cut, uint64_t min) const {
    if (!cut.Keeps(OrderKey(logit), token)) return 0;
    const uint64_t weight = tempered.Weight(logit);
    return weight >= min ? weight : 0;
  }
};

BATON_DEVICE Cut NoCut() { return {0, 0}; }  // cuts nothing: every key is above 0

// Finds the token after which top_k or top_p leaves out the rest of a row. The token is in bin
// `bin` of the row's histogram. It is the first token of the bin, in the order of preference, at
// which the number of tokens exceeds `rest`. If `by_mass`, the weights of the tokens are added up
// instead of their number.
//
// Keys are numbers in the order of the logits (OrderKey). First makes histograms of smaller and
// smaller intervals of keys, until one key is left. Then finds the token by its id among the tokens
// with that key. Each pass over the row skips blocks of logits that are all below the interval.
BATON_DEVICE Cut CutInBin(const SampledRow& row, int bin, uint64_t rest, bool by_mass) {
  const Tempered& tempered = row.tempered;
  // Finds [low, high], the interval of the keys (OrderKey) of all logits in this bin.
  const uint32_t max = OrderKey(static_cast<float>(tempered.largest));
  uint32_t low = OrderKey(-kInfiniteLogit), high = max;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (tempered.Bin(LogitOfKey(middle)) <= bin) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  high = low;
  for (uint32_t last = max; high < last;) {
    const uint32_t middle = last - (last - high) / 2;
    if (tempered.Bin(LogitOfKey(middle)) >= bin) {
      high = middle;
    } else {
      last = middle - 1;
    }
  }
  while (true) {
    int shift = 0;
    while ((high - low) >> shift >= kSampleBins) ++shift;
    // Waits until all threads have finished reading the previous histogram.
    SyncThreads();
    for (int i = ThreadIndex(); i < kSampleBins; i += BlockThreads()) {
      row.counts[i] = 0;
      for (int d = 0; d < kDigits; ++d) row.digits[d * kSampleBins + i] = 0;
    }
    SyncThreads();
    for (int base = ThreadIndex(); base < row.vocab; base += kFetches * BlockThreads()) {
      float logits[kFetches];
      BATON_UNROLL
      for (int j = 0; j < kFetches; ++j) {
        const int token = base + j * BlockThreads();
        logits[j] = token < row.vocab ? row.Fetch(token, low) : -kInfiniteLogit;
      }
      BATON_UNROLL
      for (int j = 0; j < kFetches; ++j) {
        const uint32_t key = OrderKey(logits[j]);
        if (key < low || key > high) continue;
        const uint64_t weight = tempered.Weight(logits[j]);
        if (weight == 0) continue;
        const int part = static_cast<int>((high - key) >> shift);
        if (by_mass) {
          AddDigits(&row.digits[part], kSampleBins, weight);
        } else {
          AtomicAdd(&row.counts[part], 1u);
        }
      }
    }
    SyncThreads();
    const Located located = Locate(
        0, kSampleBins,
        [&](int i) {
          return by_mass ? SumOfDigits(&row.digits[i], kSampleBins)
                         : static_cast<uint64_t>(row.counts[i]);
        },
        AsFetched(), [&](uint64_t) { return rest; }, row.sums);
    rest = located.rest;
    high -= static_cast<uint32_t>(located.index) << shift;
    const uint32_t width = (1u << shift) - 1;
    low = high - low > width ? high - width : low;
    if (shift == 0) break;
  }
  const uint64_t weight = tempered.Weight(LogitOfKey(high));
  const uint64_t nth = by_mass && weight > 0 ? rest / weight : rest;
  const Located last = Locate(
      0, row.vocab, [&](int token) { return row.Fetch(token, high); },
      [&](int, float logit) { return static_cast<uint64_t>(OrderKey(logit) == high); },
      [&](uint64_t) { return nth; }, row.sums);
  return {high, last.index};
}

// Returns the weight that top_p leaves of a row whose weights have this sum. Computes the same as
// MassOf in sampler.h.
BATON_DEVICE uint64_t MassOf(double top_p, uint64_t sum) {
  const double mass = Mul(top_p, static_cast<double>(sum));
  uint64_t units = static_cast<uint64_t>(mass);
  if (static_cast<double>(units) < mass) ++units;
  if (units < 1) units = 1;
  return units < sum ? units : sum;
}

// Returns the place where top_k and then top_p cut the row, found with the row's histogram.
BATON_DEVICE Cut FindCut(const SampledRow& row, const SampleRow& ask, const uint32_t* bin_counts,
                         const uint64_t* bin_masses) {
  const auto count = [&](int bin) { return static_cast<uint64_t>(bin_counts[bin]); };
  const auto mass = [&](int bin) { return bin_masses[bin]; };
  Cut cut = NoCut();
  // top_k leaves out nothing if no more than top_k tokens have a weight above 0. Tokens without a
  // weight are in no bin, and are never sampled.
  if (ask.top_k > 0 &&
      BlockTotal(0, kSampleBins, count, AsFetched(), row.sums) > static_cast<uint64_t>(ask.top_k)) {
    const uint64_t k = ask.top_k;
    const Located located = Locate(
        0, kSampleBins, count, AsFetched(), [&](uint64_t) { return k - 1; }, row.sums);
    cut = CutInBin(row, located.index, located.rest, /*by_mass=*/false);
  }
  if (ask.top_p < 1) {
    const Cut of_k = cut;
    const uint64_t sum =
        of_k.key == 0
            ? BlockTotal(0, kSampleBins, mass, AsFetched(), row.sums)
            : BlockTotal(
                  0, row.vocab, [&](int token) { return row.Fetch(token, of_k.key); },
                  [&](int token, float logit) { return row.KeptWeight(token, logit, of_k, 1); },
                  row.sums);
    const Located located = Locate(
        0, kSampleBins, mass, AsFetched(), [&](uint64_t) { return MassOf(ask.top_p, sum) - 1; },
        row.sums);
    cut = CutInBin(row, located.index, located.rest, /*by_mass=*/true);
  }
  return cut;
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
