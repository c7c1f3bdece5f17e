#pragma once

// Parameters of the CUDA backend's kernels, and what each kernel does. Pointers are device memory.
// Activations and weights are bf16. Rows of a tensor are `*_stride` elements apart. Rows may have
// any alignment: aligned rows are accessed 16 bytes at a time, and unaligned rows give the same
// bits. The result of a row does not depend on other rows. The reference implementations in plain
// C++ are in testing/reference_kernels.h.

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/device/runtime/kernel.h"
#include "kernels/formats/dtype.h"

namespace baton {

// out[r] is the row of `table` for one token: tokens[r] or, if follows[r] is not negative,
// sampled[follows[r]], which the previous step sampled.
struct EmbeddingParams {
  const void* table;       // [vocab, hidden]
  const int32_t* tokens;   // [rows], each in [0, vocab)
  const int32_t* follows;  // [rows], or null if no row follows another one
  // Tokens sampled by the previous step. `follows` holds indices into this array. The tokens at
  // these indices are in [0, vocab).
  const int32_t* sampled;
  void* out;  // [rows, hidden]
  int64_t out_stride;
  int32_t rows, hidden;
};

// out[i] = in[rows[i]]. Gathers the rows whose logits are wanted.
struct GatherRowsParams {
  const void* in;
  int64_t in_stride;
  const int32_t* rows;  // [count]
  void* out;            // [count, cols], without padding
  int32_t count, cols;
};

// out = in / sqrt(mean(in^2) + epsilon) * weight, for each of a row's `groups` ranges of n columns.
// Squares are summed in float. The order of this sum depends only on n: one warp sums up to
// kMaxColumnsOfOneWarp columns, kRmsNormWarps warps sum more. `out` may be `in`.
constexpr int kMaxColumnsOfOneWarp = 1024;
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

// Writes the bias to every row: out = bias or, if `accumulate` is true, out += bias. The GEMM that
// follows adds its result to `out`, so a bias that was written first costs no extra rounding.
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
  int32_t first_position;  // absolute position of first_row
  int32_t first_block;     // index into StepRows::blocks
};

// The sequence and position of each row of a step.
struct StepRows {
  const int32_t* sequence_of_row;   // [rows]; -1: a padding row, which kernels leave unchanged
  const DeviceSequence* sequences;  // [sequences]
  const int32_t* blocks;            // the sequences' block tables, each in token order
  int32_t rows;
};

// One layer of a paged pool with the layout of kv_layout.h.
struct LayerPages {
  void* data;                        // start of the pool
  int64_t block_bytes;               // from one block to the next
  int64_t key_offset, value_offset;  // offset of this layer's keys and values in a block
  int64_t head_bytes;                // from one head of a plane to the next
  int32_t block_tokens;
  int32_t kv_heads, head_dim;
  DType type;
};

// Describes the rotary table of one sequence's rows; its frequencies are a part of
// RopeTableParams::frequencies.
struct DeviceRope {
  int32_t first_frequency;
  int32_t pairs;  // 1 to head_dim / 2
  float scale;
};

// Computes cosine and sine of position * frequency, each times scale, once for all layers of a
// step. The angle is rounded to float, as it was when models were trained.
struct RopeTableParams {
  StepRows step;
  const DeviceRope* ropes;  // [sequences], or a single one for all if `shared`
  const float* frequencies;
  float* table;  // [rows, 2, max_pairs]: cosines, then sines; only a row's own pairs are written
  int32_t max_pairs;
  bool shared;
};

// Rotates q in place, rotates k, and writes k and v into their slots. Values are rounded once, to
// the pool's type. In each head, element i is rotated with element i + pairs, for i < pairs
// (DeviceRope). Elements from 2 * pairs on keep their values.
struct RopeWriteKvParams {
  StepRows step;
  const DeviceRope* ropes;
  const float* table;  // the table that rope_table computed
  int32_t max_pairs;
  bool shared;
  void* q;        // [rows, heads * head_dim]
  const void* k;  // [rows, kv_heads * head_dim]
  const void* v;  // [rows, kv_heads * head_dim]
  int64_t q_stride, k_stride, v_stride;
  int32_t heads;
  LayerPages pages;
};

constexpr int kMaxHeadDim = 256;         // max head_dim of paged_attention
constexpr int kPagedAttentionWarps = 8;  // max warps of a thread block

// Causal attention. Each row attends to the positions of its sequence up to and including its own.
// If `window` is not 0, it attends only to the last `window` of these positions. Softmax is online
// (Milakov & Gimelshein 2018) over tiles of 32 keys that begin at multiples of 32, and sums are
// float. So chunks, other rows and block tables change no bit of the result. Slots of other
// positions are never read.
struct PagedAttentionParams {
  StepRows step;
  const void* q;  // [rows, heads * head_dim], rotated
  void* out;      // [rows, heads * head_dim]; may not overlap q
  int64_t q_stride, out_stride;
  int32_t heads;  // a multiple of pages.kv_heads; head h reads KV head h / (heads / kv_heads)
  int32_t window;
  float scale;     // factor of the products q . k
  float soft_cap;  // scores become soft_cap * tanh(score / soft_cap); 0: no soft cap
  LayerPages pages;
};

// Split attention: the attention of PagedAttentionParams on tensor cores. It needs pools of 16-bit
// elements, up to 16 query heads per KV head, and a head_dim in kAttentionHeadDims (see
// attention_choice.h). Keys are cut into ranges that begin at multiples of kAttentionRange
// positions (Flash-Decoding, Dao et al. 2023), and ranges into tiles of kAttentionTileKeys. A row's
// softmax is online over the tiles of a range, and its ranges are merged in ascending order. So the
// order of a row's sums depends on its own position alone. Queries and weights are rounded to the
// pool's type before they are multiplied by keys and values. The result is divided by the sum of
// these rounded weights.
constexpr int kAttentionHeadDims[] = {64, 80, 96, 128, 256};
constexpr int kAttentionRange = 256;     // keys per range
constexpr int kAttentionTileKeys = 32;   // keys of one tile, which is one stage of the pipeline
constexpr int kAttentionTileRows = 16;   // rows of an mma: query heads of neighbouring rows
constexpr int kMergeAttentionWarps = 4;  // warps of a thread block, each for one head

// Number of stages of the pipeline that loads keys and values. They fit in 99 KiB of shared memory,
// which a thread block can have on all devices from sm_80 on.
template <int kHeadDim>
constexpr int kAttentionStages = kHeadDim <= 128 ? 3 : 2;

// Bytes of shared memory of a thread block of split_attention, which is one warp. They hold the
// queries, and the keys and values of all stages of the pipeline. Each row is padded by 16 bytes,
// to avoid bank conflicts.
constexpr size_t SplitAttentionSharedBytes(int head_dim) {
  const int stages = head_dim <= 128 ? kAttentionStages<128> : kAttentionStages<256>;
  return (kAttentionTileRows + stages * 2 * kAttentionTileKeys) * (head_dim + size_t{8}) * 2;
}

// A work item: one range of keys for one tile of rows.
struct AttentionItem {
  int32_t row;  // first row of the tile
  int32_t range;
};

// Lists the work items of the rows [first_row, first_row + rows) of a step, in the order of rows.
// The rows of each sequence in this range are cut into tiles of `tile_rows` rows; the last tile may
// be smaller. Sequences that have `prefill_rows` rows or more in the step are left out, because
// prefill_attention computes them.
struct AttentionPlanParams {
  StepRows step;
  int32_t first_row, rows;  // rows of the step
  int32_t prefill_rows;     // at least 1
  int32_t tile_rows;
  int32_t window;
  // [rows + 1]: entry r is the number of work items of all tiles that begin before row first_row +
  // r. If a tile begins with this row, the entry is also the index of the tile's first item. The
  // last entry is the number of all items.
  int32_t* first_item;
  AttentionItem* items;  // large enough for all items
};

// split_attention writes the partial results of all work items (AttentionItem), and merge_attention
// merges them. Thread blocks take items until none is left, so any number of blocks will do. A
// launch does not depend on the lengths of sequences, so it can be recorded in a graph.
struct SplitAttentionParams {
  PagedAttentionParams attention;
  AttentionPlanParams plan;  // the plan, after attention_plan has run
  int32_t blocks;            // grid size of split_attention
  // Partial results for each item, KV head, row of the tile, and head of the group. Scores are
  // exponents of 2, and a key's weight is 2^(score - largest score). `values` is the sum of
  // weighted values. `sums` holds the largest score and the sum of the weights.
  float* values;  // [items, kv_heads, tile_rows * group, head_dim]
  float* sums;    // [items, kv_heads, tile_rows * group, 2]
};

// prefill_attention computes the same attention as split_attention, with the same bits, for
// sequences with many rows in the step. A thread block computes tile_rows rows over all keys that
// they see. Rows of sequences with fewer than prefill_rows rows are not written.
constexpr int kPrefillAttentionWarps = 4;
constexpr size_t PrefillAttentionSharedBytes(int head_dim) {
  // Adds up three parts: the shared memory of split_attention, which has the queries of one warp;
  // the queries of the other warps; and every warp's sums over the ranges.
  return SplitAttentionSharedBytes(head_dim) +
         (kPrefillAttentionWarps - 1) * kAttentionTileRows * (head_dim + size_t{8}) * 2 +
         kPrefillAttentionWarps * kAttentionTileRows * size_t{4} * head_dim;
}
struct PrefillAttentionParams {
  PagedAttentionParams attention;
  int32_t sequences;     // number of sequences in attention.step
  int32_t prefill_rows;  // at least 1; sequences with fewer rows in the step have no tiles
  int32_t tile_rows;     // rows of a tile, for one thread block; a multiple of the number of warps
  int32_t tiles;         // number of tiles of the sequences that have at least prefill_rows rows
};
inline int32_t TilesOf(int32_t rows, int32_t tile_rows) {
  return (rows + tile_rows - 1) / tile_rows;
}

// Finds the token with the largest logit of each row; among equal logits, the token with the lowest
// id. The result is -1 if a logit is NaN or +infinity, or if all are -infinity.
struct ArgmaxParams {
  const float* logits;  // [rows, vocab], without padding
  int32_t* tokens;      // [rows]
  int32_t rows, vocab;
};

// The kernels, as one compiler has compiled them: for the emulated runtime or for CUDA. launches.h
// has their launch shapes.
struct KernelTable {
  Kernel embedding, gather_rows, rms_norm, bias_rows, silu_mul, rope_table, rope_write_kv,
      paged_attention, attention_plan, merge_attention, argmax;
  Kernel kv_checksum;  // parameters: kv_checksum.h
  Kernel sample_scan, sample_weigh, sample_alternatives, sample_edit,
      sample_token;  // parameters: sample_kernels.h
  // One for each head_dim, first for bf16, then for f16 (attention_choice.h).
  Kernel split_attention[2 * std::size(kAttentionHeadDims)];
  Kernel prefill_attention[2 * std::size(kAttentionHeadDims)];
};
// The kernels for the emulated runtime.
KernelTable EmulatedKernels();
// The kernels for the CUDA runtime. Only in builds with CUDA.
KernelTable CudaKernels();

}  // namespace baton
