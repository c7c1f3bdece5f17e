#pragma once

// What each kernel of the CUDA backend takes and does. Pointers are device memory, activations and
// weights bf16, rows of a tensor `*_stride` elements apart. Rows may begin anywhere: 16 bytes go at
// once where they are aligned, and the bits are the same where they are not. Every result depends
// on its own row alone. twins.h says the same in plain C++.

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/backend/dtype.h"
#include "kernels/device/runtime/kernel.h"

namespace baton {

// out[r] = table[tokens[r]], or table[drawn[follows[r]]] where follows[r] is not negative.
struct EmbeddingParams {
  const void* table;       // [vocab, hidden]
  const int32_t* tokens;   // [rows], each in [0, vocab)
  const int32_t* follows;  // [rows], or null: all are negative
  const int32_t* drawn;  // what the step before drew, each in [0, vocab); read where it is followed
  void* out;             // [rows, hidden]
  int64_t out_stride;
  int32_t rows, hidden;
};

// out[i] = in[rows[i]]: the rows whose logits are wanted, one after another.
struct GatherRowsParams {
  const void* in;
  int64_t in_stride;
  const int32_t* rows;  // [count]
  void* out;            // [count, cols], without padding
  int32_t count, cols;
};

// out = in / sqrt(mean(in^2) + epsilon) * weight for each of a row's `groups` runs of n columns.
// Squares are summed in float in an order that n alone decides: up to kMostColumnsOfOneWarp by one
// warp, beyond by kRmsNormWarps. `out` may be `in`.
constexpr int kMostColumnsOfOneWarp = 1024;
constexpr int kRmsNormWarps = 8;
struct RmsNormParams {
  const void* in;  // [rows, groups * n]
  int64_t in_stride;
  const void* weight;  // [n]
  void* out;           // [rows, groups * n]
  int64_t out_stride;
  int32_t rows, groups, n;
  float epsilon;
};

// out = bias for every row, or out += bias. A product adds itself to what it finds, so a bias that
// was there before costs no rounding of its own.
struct BiasRowsParams {
  const void* bias;  // [cols]
  void* out;         // [rows, cols]
  int64_t out_stride;
  int32_t rows, cols;
  bool accumulate;
};

// out = gate / (1 + exp(-gate)) * up. `out` may be `gate`.
struct SiluMulParams {
  const void* gate;  // [rows, cols]
  const void* up;
  void* out;
  int64_t gate_stride, up_stride, out_stride;
  int32_t rows, cols;
};

// One sequence of a step.
struct DeviceSequence {
  int32_t first_row, rows;
  int32_t first_position;  // absolute, of first_row
  int32_t first_block;     // index into StepRows::blocks
};

// Which positions of which sequences a step's rows are.
struct StepRows {
  const int32_t* sequence_of_row;   // [rows]; -1: the row is nobody's and stays as it is
  const DeviceSequence* sequences;  // [sequences]
  const int32_t* blocks;            // the sequences' block tables, each in token order
  int32_t rows;
};

// One layer of a paged pool, by kv_layout.h.
struct LayerPages {
  void* data;                        // of the pool
  int64_t block_bytes;               // from one block to the next
  int64_t key_offset, value_offset;  // of the layer's planes in a block
  int64_t head_bytes;                // from one head of a plane to the next
  int32_t block_tokens;
  int32_t kv_heads, head_dim;
  DType type;
};

// The rotary table that one sequence's rows use: its part of RopeTableParams::frequencies.
struct DeviceRope {
  int32_t first_frequency;
  int32_t pairs;  // 1 to head_dim / 2
  float scale;
};

// cosine and sine of position * frequency, each times scale, once for all layers of a step. The
// angle is rounded to float, as models are trained with.
struct RopeTableParams {
  StepRows step;
  const DeviceRope* ropes;  // [sequences], or [1] for all where `shared`
  const float* frequencies;
  float* table;  // [rows, 2, max_pairs]: cosines, then sines; of a row's own pairs
  int32_t max_pairs;
  bool shared;
};

// Rotates q in place, rotates k, and writes k and v into their slots in the pool's type, rounded
// once. Element i < pairs of a head turns with element i + pairs; those from 2 * pairs on stay.
struct RopeWriteKvParams {
  StepRows step;
  const DeviceRope* ropes;
  const float* table;  // of RopeTableParams
  int32_t max_pairs;
  bool shared;
  void* q;        // [rows, heads * head_dim]
  const void* k;  // [rows, kv_heads * head_dim]
  const void* v;  // [rows, kv_heads * head_dim]
  int64_t q_stride, k_stride, v_stride;
  int32_t heads;
  LayerPages pages;
};

constexpr int kMaxHeadDim = 256;         // of paged_attention
constexpr int kPagedAttentionWarps = 8;  // of a block, at most

// Causal attention of every row over its own sequence's positions up to its own, the last `window`
// of them where window > 0. Softmax online (Milakov & Gimelshein 2018) over tiles of 32 keys that
// begin at multiples of 32, sums in float, so that neither chunks, other rows nor block tables
// change a bit. What is in other slots is never read.
struct PagedAttentionParams {
  StepRows step;
  const void* q;  // [rows, heads * head_dim], rotated
  void* out;      // [rows, heads * head_dim]; may not overlap q
  int64_t q_stride, out_stride;
  int32_t heads;  // a multiple of pages.kv_heads; head h reads KV head h / (heads / kv_heads)
  int32_t window;
  float scale;     // multiplies q . k
  float soft_cap;  // scores become soft_cap * tanh(score / soft_cap); 0: they stay
  LayerPages pages;
};

// Split attention: what PagedAttentionParams says, on tensor cores, for pools of 16 bits, up to 16
// query heads of a KV head and the head_dims below (attention_choice.h). Keys are cut into ranges
// that begin at multiples of kAttentionRange positions (Flash-Decoding, Dao et al. 2023), a range
// into tiles of kAttentionTileKeys; a row's softmax is online over the tiles of a range, and its
// ranges are merged in ascending order. So a row's bits are those of its own position alone.
// Queries and weights are rounded to the pool's type before they meet keys and values, weights in
// the sum that divides as well.
constexpr int kAttentionHeadDims[] = {64, 80, 96, 128, 256};
constexpr int kAttentionRange = 256;     // keys
constexpr int kAttentionTileKeys = 32;   // of mma and of a stage of the pipeline
constexpr int kAttentionTileRows = 16;   // query heads of neighbouring rows that one mma takes
constexpr int kMergeAttentionWarps = 4;  // of a block, each with a head

// Of the pipeline: what fits in the 99 KiB of a block that all devices of sm_80 and newer have.
template <int kHeadDim>
constexpr int kAttentionStages = kHeadDim <= 128 ? 3 : 2;

// Shared memory of a block of split_attention, which is a warp: queries, and keys and values of
// the stages; rows 16 bytes further apart than they are long, against conflicts.
constexpr size_t SplitAttentionSharedBytes(int head_dim) {
  const int stages = head_dim <= 128 ? kAttentionStages<128> : kAttentionStages<256>;
  return (kAttentionTileRows + stages * 2 * kAttentionTileKeys) * (head_dim + size_t{8}) * 2;
}

// A range of keys for a tile of rows.
struct AttentionItem {
  int32_t row;  // the tile's first
  int32_t range;
};

// Lists the ranges of the rows [first_row, first_row + rows) of a step, in the order of rows. A
// tile is up to `tile_rows` rows of one sequence, counted from its first one among those. Rows of a
// sequence that has `prefill_rows` rows in the step, or more, are left out: prefill_attention
// computes them.
struct AttentionPlanParams {
  StepRows step;
  int32_t first_row, rows;  // of the step's
  int32_t prefill_rows;     // at least 1
  int32_t tile_rows;
  int32_t window;
  int32_t* first_item;   // [rows + 1]: of the tile that begins with a row; then of all
  AttentionItem* items;  // room for all
};

// split_attention writes partial results of all items, whatever the size of the grid, and
// merge_attention what they come to. Nothing of a launch depends on lengths, so that it can be
// recorded: blocks take items until `plan.first_item` has no more.
struct SplitAttentionParams {
  PagedAttentionParams attention;
  AttentionPlanParams plan;  // as attention_plan had it
  int32_t blocks;            // of split_attention's grid
  // Of item, KV head, row of the tile, head of the group: the sum of weighted values, and the
  // largest score in powers of two and the sum of the weights by it.
  float* values;  // [items, kv_heads, tile_rows * group, head_dim]
  float* sums;    // [items, kv_heads, tile_rows * group, 2]
};

// The same, with the same bits, for sequences with many rows in the step: a thread block takes
// tile_rows of them, and all their keys. The rows of shorter sequences are left as they are.
constexpr int kPrefillAttentionWarps = 4;
constexpr size_t PrefillAttentionSharedBytes(int head_dim) {
  // Further queries than split_attention has, and sums of ranges.
  return SplitAttentionSharedBytes(head_dim) +
         (kPrefillAttentionWarps - 1) * kAttentionTileRows * (head_dim + size_t{8}) * 2 +
         kPrefillAttentionWarps * kAttentionTileRows * size_t{4} * head_dim;
}
struct PrefillAttentionParams {
  PagedAttentionParams attention;
  int32_t sequences;     // of attention.step
  int32_t prefill_rows;  // at least 1; sequences with fewer rows in the step have no tiles
  int32_t tile_rows;     // of a thread block, a multiple of the warps
  int32_t tiles;         // of all sequences, TilesOf each
};
inline int32_t TilesOf(int32_t rows, int32_t tile_rows) {
  return (rows + tile_rows - 1) / tile_rows;
}

// The token of the largest logit of each row, the lowest id among equals; -1 where a logit is NaN
// or +infinity, or all are -infinity.
struct ArgmaxParams {
  const float* logits;  // [rows, vocab], without padding
  int32_t* tokens;      // [rows]
  int32_t rows, vocab;
};

// The kernels as one compiler made them, and how each is launched (launches.h).
struct KernelTable {
  Kernel embedding, gather_rows, rms_norm, bias_rows, silu_mul, rope_table, rope_write_kv,
      paged_attention, attention_plan, merge_attention, argmax;
  Kernel kv_checksum;                                                      // kv_checksum.h
  Kernel draw_scan, draw_weigh, draw_alternatives, draw_edit, draw_token;  // draw_kernels.h
  // By head_dim, for bf16; then for f16 (attention_choice.h).
  Kernel split_attention[2 * std::size(kAttentionHeadDims)];
  Kernel prefill_attention[2 * std::size(kAttentionHeadDims)];
};
// Run by the emulated runtime.
KernelTable EmulatedKernels();
// Run by CUDA's; only in builds with CUDA.
KernelTable CudaKernels();

}  // namespace baton
