#include "kernels/cuda/kernels/sample_cut.h"

namespace baton::BATON_DEVICE_NAMESPACE {
namespace {

// Scales the 53-bit random number `uniform` to [0, sum), as sampler.h does.
BATON_DEVICE uint64_t SampledUnit(uint64_t uniform, uint64_t sum) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(uniform) * sum >> 53);
}

BATON_DEVICE int Greedy(const SampledRow& row) {
  const float largest = static_cast<float>(row.tempered.largest);
  const auto is_largest = [&](int, float logit) { return static_cast<uint64_t>(logit == largest); };
  const auto none_before = [](uint64_t) { return uint64_t{0}; };
  const int block =
      Locate(
          0, row.blocks, [&](int i) { return row.maxima[i]; }, is_largest, none_before, row.sums)
          .index;
  const int first = block * kSampleBlock;
  return Locate(
             first, first + kSampleBlock < row.vocab ? first + kSampleBlock : row.vocab,
             [&](int token) { return row.logits[token]; }, is_largest, none_before, row.sums)
      .index;
}

BATON_DEVICE int Sample(const SampledRow& row, const SampleRow& ask, const SampleMemory& memory,
                        int index) {
  const auto unit = [&](uint64_t total) { return SampledUnit(ask.uniform, total); };
  int first = 0, end = row.vocab;
  Cut cut = NoCut();
  Located chunk = {};
  if (HasHistogram(ask)) {
    cut = FindCut(row, ask, memory.bin_counts + index * kSampleBins,
                  memory.bin_masses + index * kSampleBins);
  } else {
    const int chunks = row.chunks;
    const uint64_t* const sums = memory.chunk_sums + static_cast<int64_t>(index) * chunks;
    chunk = Locate(
        0, chunks, [&](int i) { return sums[i]; }, AsFetched(), unit, row.sums);
    first = chunk.index * kSampleChunk;
    end = first + kSampleChunk < end ? first + kSampleChunk : end;
  }
  return Locate(
             first, end, [&](int token) { return row.Fetch(token, cut.key); },
             [&](int token, float logit) {
               return row.KeptWeight(token, logit, cut, ask.min_weight);
             },
             [&](uint64_t total) { return HasHistogram(ask) ? unit(total) : chunk.rest; }, row.sums)
      .index;
}

}  // namespace

// Each thread block takes a row. Without top_k and top_p, it reads the sums of the row's chunks,
// and the logits of one chunk. With top_k or top_p, it reads the row several times, except the
// blocks of logits that top_k and top_p leave out.
BATON_KERNEL(sample_token, SampleParams, kSampleTokenThreads) {
  BATON_SHARED(uint64_t, sums, kMaxWarps);
  BATON_SHARED(uint32_t, counts, kSampleBins);
  BATON_SHARED(uint32_t, digits, kDigits * kSampleBins);
  BATON_SHARED(int32_t, found, 2);
  const SampleMemory& memory = params.memory;
  const int index = BlockX(), vocab = params.vocab, chunks = params.chunks;
  const SampleRow& ask = memory.rows[index];
  if (ask.slot < 0) return;
  SampleResult& result = memory.results[index];
  int status = kSampled;
  float largest = RowLargest(memory.chunk_maxima[0] + static_cast<int64_t>(index) * chunks, chunks);
  if (largest == kInfiniteLogit) {
    status = kUnsound;
  } else if (largest == -kInfiniteLogit) {
    status = kNothing;
  } else if (ask.edits) {
    largest = RowLargest(memory.chunk_maxima[1] + static_cast<int64_t>(index) * chunks, chunks);
    if (largest == kInfiniteLogit) status = kUnsound;
    if (largest == -kInfiniteLogit) status = kNothingLeft;
  }
  if (status != kSampled) {
    if (ThreadIndex() == 0) {
      result.token = 0;
      result.status = status;
      params.tokens[index] = 0;
    }
    return;
  }
  const SampledRow row = {
      .tempered = {largest, ask.scale},
      .logits = params.logits + static_cast<int64_t>(index) * vocab,
      .maxima = memory.block_maxima + static_cast<int64_t>(index) * params.blocks,
      .vocab = vocab,
      .blocks = params.blocks,
      .chunks = params.chunks,
      .sums = sums,
      .counts = counts,
      .digits = digits,
  };
  const int token = ask.greedy ? Greedy(row) : Sample(row, ask, memory, index);

  // The row's slot holds a list of biases and the history of a sequence. Finds the sampled token in
  // both.
  SampleBias* const biases = memory.biases + static_cast<int64_t>(ask.slot) * memory.max_biases;
  SampleHistory* const history =
      memory.history + static_cast<int64_t>(ask.slot) * memory.max_history;
  const int tokens = ask.penalties ? memory.history_tokens[ask.slot] : 0;
  if (ThreadIndex() < 2) found[ThreadIndex()] = -1;
  SyncThreads();
  for (int i = ThreadIndex(); i < tokens; i += BlockThreads()) {
    if (history[i].token == token) found[0] = i;
  }
  for (int i = ThreadIndex(); i < ask.biases; i += BlockThreads()) {
    if (biases[i].token == token) found[1] = i;
  }
  SyncThreads();
  if (ThreadIndex() != 0) return;
  params.tokens[index] = token;
  result.token = token;
  result.status = kSampled;
  // Reports the token's logit before all edits. In both lists, `given` is the logit before
  // sample_edit applied the list. sample_edit applies biases first, so if the token has a bias,
  // `given` in the list of biases is the original logit.
  if (ask.logprobs) {
    result.logit = found[1] >= 0   ? biases[found[1]].given
                   : found[0] >= 0 ? history[found[0]].given
                                   : row.logits[token];
  }
  if (!ask.penalties) return;
  if (found[0] >= 0) {
    history[found[0]].times += 1;
  } else if (tokens < memory.max_history) {
    history[tokens] = {token, 1, 0};
    memory.history_tokens[ask.slot] = tokens + 1;
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
