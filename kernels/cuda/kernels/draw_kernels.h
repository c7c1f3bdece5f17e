#pragma once

// What the kernels that draw tokens take and do (device_sampler.h). They are run one after the
// other over one DrawParams, over rows of logits [rows, vocab] f32:
//
//   draw_scan          the largest of each block and chunk; clears histograms
//   draw_weigh         sums of weights at temperature 1, for logprobs
//   draw_alternatives  the most likely tokens, and the sum of all weights
//   draw_edit          bias, penalties, banned tokens, into the logits
//   draw_scan          of rows that were edited, again
//   draw_weigh         sums of weights at the row's temperature; or where some order of preference
//                      cuts them, their histogram
//   draw_token         cuts, draws, and appends to the sequence's history
//
// Weights are the integers of TokenWeight (common/sampling/logit_blocks.h), so sums have no order.

#include <cstddef>
#include <cstdint>

namespace baton {

constexpr int kMostDrawVocab = 500000;
constexpr int kDrawBlock = 64;    // logits of which only the largest is looked at first
constexpr int kDrawChunk = 2048;  // logits that a block of threads scans and weighs
constexpr int kDrawBins = 1024;   // of a histogram
constexpr int kDrawThreads = 256;
constexpr int kDrawTokenThreads = 768;  // of draw_token, at most: leaves 80 registers for each
constexpr int kMostAlternatives = 20;
constexpr int kDrawWeightBits = 39;  // kWeightBits there

// What one row asks. Lists are its slot's.
struct DrawRow {
  int32_t slot;          // -1: nobody's
  int32_t biases, bans;  // how many of the slot's count
  bool penalties;        // the slot's history counts, and grows
  bool edits;            // any of these
  bool greedy;
  bool logprobs;
  int32_t alternatives;  // with logprobs
  int32_t top_k;         // 0: all; neither it nor top_p where it is greedy
  float repetition, frequency, presence;
  uint64_t min_weight;  // at least 1
  uint64_t uniform;     // 53 bits
  double scale;         // 1 / temperature
  double top_p;
};

struct DrawBias {
  int32_t token;
  float bias;
  float given;  // the logit before
};
// One token of a sequence, once.
struct DrawHistory {
  int32_t token;
  int32_t times;  // in the answer
  float given;    // the logit before
};

enum DrawStatus : int32_t {
  kDrawn,
  kUnsound,      // NaN or +infinity among the logits, as given or edited
  kNothing,      // all are -infinity
  kNothingLeft,  // all are, edited
};
struct DrawResult {
  int32_t token;
  int32_t status;
  float logit;    // with logprobs: the token's, as given
  float largest;  // with logprobs: of all as given
  uint64_t sum;   // with logprobs: of the weights at temperature 1
};
struct DrawAlternative {
  int32_t token;
  float logit;
};

// Device memory of a DeviceSampler. Chunks and blocks are of a row.
struct DrawMemory {
  DrawRow* rows;                  // [rows]
  DrawResult* results;            // [rows]
  DrawAlternative* alternatives;  // [rows, kMostAlternatives]
  DrawBias* biases;               // [slots, most_biases]
  int32_t* bans;                  // [slots, most_bans]
  DrawHistory* history;           // [slots, most_history]
  int32_t* history_tokens;        // [slots]: how many
  float* block_maxima;            // [rows, blocks]
  float* chunk_maxima[2];         // [rows, chunks]: as given, edited; NaN: of unsound logits
  uint64_t* chunk_sums;           // [rows, chunks]
  uint32_t* bin_counts;           // [rows, kDrawBins]
  uint64_t* bin_masses;           // [rows, kDrawBins]
  int32_t most_biases, most_bans, most_history;
};

struct DrawParams {
  DrawMemory memory;
  float* logits;    // [rows, vocab], without padding
  int32_t* tokens;  // [rows]
  int32_t rows, vocab;
  int32_t blocks, chunks;  // DrawBlocks and DrawChunks of the vocabulary
  // Of draw_scan: only rows that were edited. Of draw_weigh: at temperature 1, for logprobs.
  bool edited, for_logprobs;
};

constexpr int DrawBlocks(int vocab) { return (vocab + kDrawBlock - 1) / kDrawBlock; }
constexpr int DrawChunks(int vocab) { return (vocab + kDrawChunk - 1) / kDrawChunk; }

}  // namespace baton
