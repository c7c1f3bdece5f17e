#pragma once

// Parameters of the kernels that sample tokens (device_sampler.h). They run one after another with
// one SampleParams, on rows of logits [rows, vocab] f32:
//
//   sample_scan          finds the largest logit of each block and chunk; clears histograms
//   sample_weigh         sums weights at temperature 1, for logprobs
//   sample_alternatives  finds the most likely tokens, and the sum of all weights
//   sample_edit          applies bias, penalties and bans to the logits
//   sample_scan          scans edited rows again
//   sample_weigh         sums weights at the row's temperature; for top_k or top_p, makes
//                      histograms instead
//   sample_token         cuts, samples, and appends to the sequence's history
//
// Weights are the integers of TokenWeight (common/sampling/logit_blocks.h), so sums do not depend
// on their order.

#include <cstddef>
#include <cstdint>

namespace baton {

constexpr int kMaxSampleVocab = 500000;
// Logits per block. Most searches look at the largest logit of each block first, in order to skip
// blocks.
constexpr int kSampleBlock = 64;
constexpr int kSampleChunk = 2048;  // logits that a thread block scans and weighs
constexpr int kSampleBins = 1024;   // bins of a histogram
constexpr int kSampleThreads = 256;
constexpr int kSampleTokenThreads =
    768;  // max threads of sample_token; leaves 80 registers for each
constexpr int kMaxAlternatives = 20;
constexpr int kSampleWeightBits = 39;  // equal to kWeightBits in logit_blocks.h

// Options of one row. The row uses the lists (bias, bans, history) of its slot.
struct SampleRow {
  int32_t slot;          // -1: a padding row
  int32_t biases, bans;  // number of entries of the slot's lists that apply
  bool penalties;        // true: the slot's history applies, and the sampled token is added to it
  bool edits;            // true if the row has bias, bans or penalties
  bool greedy;
  bool logprobs;
  int32_t alternatives;  // number of alternatives, if logprobs
  int32_t top_k;         // 0: all; top_k and top_p are not used if greedy
  float repetition, frequency, presence;
  uint64_t min_weight;  // at least 1
  uint64_t uniform;     // random number of 53 bits
  double scale;         // 1 / temperature
  double top_p;
};

struct SampleBias {
  int32_t token;
  float bias;
  float given;  // the token's logit before the bias is added
};
// One distinct token of a sequence.
struct SampleHistory {
  int32_t token;
  int32_t times;  // number of times that the token occurs in the answer
  float given;    // the token's logit before penalties
};

enum SampleStatus : int32_t {
  kSampled,
  kUnsound,      // NaN or +infinity among the logits, before or after edits
  kNothing,      // all logits are -infinity before edits
  kNothingLeft,  // all logits are -infinity after edits
};
struct SampleResult {
  int32_t token;
  int32_t status;
  float logit;    // only with logprobs: the token's logit before edits
  float largest;  // only with logprobs: the largest logit before edits
  uint64_t sum;   // only with logprobs: sum of the weights at temperature 1
};
struct SampleAlternative {
  int32_t token;
  float logit;
};

// Device memory of a DeviceSampler. Each row is divided into chunks and blocks of logits.
struct SampleMemory {
  SampleRow* rows;                  // [rows]
  SampleResult* results;            // [rows]
  SampleAlternative* alternatives;  // [rows, kMaxAlternatives]
  SampleBias* biases;               // [slots, max_biases]
  int32_t* bans;                    // [slots, max_bans]
  SampleHistory* history;           // [slots, max_history]
  int32_t* history_tokens;          // [slots]: number of tokens in the history
  float* block_maxima;              // [rows, blocks]
  // [rows, chunks]: the largest logit of each chunk, before edits in the first array and after
  // edits in the second one. +infinity if some logits are NaN or +infinity.
  float* chunk_maxima[2];
  uint64_t* chunk_sums;  // [rows, chunks]
  uint32_t* bin_counts;  // [rows, kSampleBins]
  uint64_t* bin_masses;  // [rows, kSampleBins]
  int32_t max_biases, max_bans, max_history;
};

struct SampleParams {
  SampleMemory memory;
  float* logits;    // [rows, vocab], without padding
  int32_t* tokens;  // [rows]
  int32_t rows, vocab;
  int32_t blocks, chunks;  // SampleBlocks and SampleChunks of the vocabulary
  // `edited`: sample_scan scans edited rows only. `for_logprobs`: sample_weigh uses temperature 1.
  bool edited, for_logprobs;
};

constexpr int SampleBlocks(int vocab) { return (vocab + kSampleBlock - 1) / kSampleBlock; }
constexpr int SampleChunks(int vocab) { return (vocab + kSampleChunk - 1) / kSampleChunk; }

}  // namespace baton
