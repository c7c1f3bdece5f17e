#include "kernels/device/code/device_code.h"
#include "kernels/device/simt/testing/sample_kernels.h"

namespace baton::BATON_DEVICE_NAMESPACE {
namespace {

constexpr float kNone = -1e30f;  // less than every score

BATON_DEVICE float Larger(float a, float b) { return a > b ? a : b; }
BATON_DEVICE int Smaller(int a, int b) { return a < b ? a : b; }

}  // namespace

BATON_KERNEL(kNormalize, NormalizeParams, kNormalizeThreads) {
  constexpr int kWarps = kNormalizeThreads / 32;
  BATON_SHARED(float, of_warp, kWarps);
  const float* in = params.in + BlockX() * params.columns;
  float* out = params.out + BlockX() * params.columns;

  float sum = 0;
  for (int i = ThreadIndex(); i < params.columns; i += BlockThreads()) {
    sum += in[i] * in[i];
  }
  sum = WarpSum(sum);
  if (Lane() == 0) of_warp[Warp()] = sum;
  SyncThreads();
  float total = 0;
  for (int i = 0; i < kWarps; ++i) total += of_warp[i];
  const float scale = ReciprocalSqrt(total / params.columns);

  float largest = 0;
  for (int i = ThreadIndex(); i < params.columns; i += BlockThreads()) {
    const float value = in[i] * scale;
    largest = Larger(largest, value < 0 ? -value : value);
    out[i] = value;
  }
  largest = WarpMax(largest);
  // The barrier is needed because of_warp is used again.
  SyncThreads();
  if (Lane() == 0) of_warp[Warp()] = largest;
  SyncThreads();
  if (Warp() == 0) {
    largest = WarpMax(Lane() < kWarps ? of_warp[Lane()] : 0.0f);
    if (Lane() == 0) {
      params.largest[BlockX()] = largest;
    }
  }
}

BATON_KERNEL(kTileGemm, TileGemmParams, kGemmThreads) {
  // kPitch: elements from one row to the next in shared memory.
  constexpr int kStages = 3, kDepth = 32, kPitch = kDepth + 8;
  constexpr int kRows = kGemmRows + kGemmColumns;
  constexpr int kChunks = kDepth / 8;  // chunks of 16 bytes per row
  static_assert(kGemmSharedBytes == kStages * kRows * kPitch * sizeof(Bf16));
  BATON_DYNAMIC_SHARED(Bf16, stages);  // [kStages][kRows][kPitch]: rows of a, then of b
  const auto* a = static_cast<const Bf16*>(params.a);
  const auto* b = static_cast<const Bf16*>(params.b);
  const int first_row = BlockY() * kGemmRows, first_column = BlockX() * kGemmColumns;
  const int tiles = (params.k + kDepth - 1) / kDepth;

  const auto load = [&](int tile) {
    const int stage = tile % kStages;
    for (int i = ThreadIndex(); i < kRows * kChunks; i += kGemmThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int k = tile * kDepth + 8 * chunk;
      const bool of_a = row < kGemmRows;
      const int line = of_a ? first_row + row : first_column + row - kGemmRows;
      const bool valid = line < (of_a ? params.m : params.n) && k < params.k;
      CopyAsync16(&stages[(stage * kRows + row) * kPitch + 8 * chunk],
                  (of_a ? a : b) + static_cast<int64_t>(line) * params.k + k, valid);
    }
  };

  for (int tile = 0; tile < kStages - 1; ++tile) {
    if (tile < tiles) load(tile);
    CopyAsyncCommit();
  }
  float sums[kGemmColumns / 8][4] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    CopyAsyncWait<kStages - 2>();
    SyncThreads();
    // Fills the stage that all threads finished reading before the barrier.
    const int next = tile + kStages - 1;
    if (next < tiles) load(next);
    CopyAsyncCommit();

    const Bf16* rows = stages + tile % kStages * kRows * kPitch;
    const Bf16* columns = rows + kGemmRows * kPitch;
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t left[4], right[2];
      LoadMatrix4(left, &rows[(16 * Warp() + Lane() % 16) * kPitch + k + Lane() / 16 * 8]);
      for (int n = 0; n < kGemmColumns / 8; ++n) {
        LoadMatrix2(right, &columns[(8 * n + Lane() % 8) * kPitch + k + Lane() / 8 % 2 * 8]);
        Mma<Bf16>(sums[n], left, right);
      }
    }
  }
  for (int n = 0; n < kGemmColumns / 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + 16 * Warp() + Lane() / 4 + i / 2 * 8;
      const int column = first_column + 8 * n + Lane() % 4 * 2 + i % 2;
      if (row < params.m && column < params.n) {
        params.out[static_cast<int64_t>(row) * params.n + column] = sums[n][i];
      }
    }
  }
}

BATON_KERNEL(kSplitAttention, SplitAttentionParams, 128) {
  constexpr int kDim = SplitAttentionParams::kHeadDim, kTokens = SplitAttentionParams::kPageTokens;
  constexpr int kWarps = 4, kStages = 3, kPage = kTokens * kDim;
  BATON_SHARED(Vector16, keys, kStages * kPage / 8);
  BATON_SHARED(Vector16, values, kStages * kPage / 8);
  BATON_SHARED(float, of_warp, kWarps*(kDim + 2));
  const int split = BlockX(), head = BlockY(), sequence = BlockZ();
  const int length = params.lengths[sequence];
  const int pages = (length + kTokens - 1) / kTokens;
  const int share = (pages + params.splits - 1) / params.splits;
  const int begin = Smaller(split * share, pages);
  const int end = Smaller(begin + share, pages);
  const int* table = params.pages + sequence * params.max_pages;
  const float* query = params.query + (sequence * params.heads + head) * kDim + 2 * Lane();
  const float query0 = query[0], query1 = query[1];

  const auto load = [&](int page) {
    const int64_t at = (static_cast<int64_t>(table[page]) * params.heads + head) * kPage;
    // Each thread copies one chunk of 16 bytes of keys and one of values.
    const int chunk = ThreadIndex();
    const bool valid = page * kTokens + chunk / 8 < length;
    CopyAsync16(&keys[page % kStages * kPage / 8 + chunk],
                static_cast<const Bf16*>(params.keys) + at + 8 * chunk, valid);
    CopyAsync16(&values[page % kStages * kPage / 8 + chunk],
                static_cast<const Bf16*>(params.values) + at + 8 * chunk, valid);
  };

  for (int i = 0; i < kStages - 1; ++i) {
    if (begin + i < end) load(begin + i);
    CopyAsyncCommit();
  }
  float maximum = kNone, sum = 0, out0 = 0, out1 = 0;
  for (int page = begin; page < end; ++page) {
    CopyAsyncWait<kStages - 2>();
    SyncThreads();
    if (page + kStages - 1 < end) load(page + kStages - 1);
    CopyAsyncCommit();
    const auto* key = reinterpret_cast<const Bf16*>(keys + page % kStages * kPage / 8);
    const auto* value = reinterpret_cast<const Bf16*>(values + page % kStages * kPage / 8);
    for (int token = Warp(); token < kTokens; token += kWarps) {
      const int at = token * kDim + 2 * Lane();
      const bool seen = page * kTokens + token < length;
      const float dot = WarpSum(query0 * ToFloat(key[at]) + query1 * ToFloat(key[at + 1]));
      const float score = seen ? dot * 0.125f : kNone;
      const float larger = Larger(maximum, score);
      const float keep = Exp(maximum - larger);
      const float weight = seen ? Exp(score - larger) : 0.0f;
      sum = sum * keep + weight;
      out0 = out0 * keep + weight * ToFloat(value[at]);
      out1 = out1 * keep + weight * ToFloat(value[at + 1]);
      maximum = larger;
    }
  }

  float* own = of_warp + Warp() * (kDim + 2);
  if (Lane() == 0) {
    own[0] = maximum;
    own[1] = sum;
  }
  own[2 + 2 * Lane()] = out0;
  own[3 + 2 * Lane()] = out1;
  SyncThreads();
  if (ThreadIndex() < kDim) {
    float max = kNone, total = 0, out = 0;
    for (int i = 0; i < kWarps; ++i) max = Larger(max, of_warp[i * (kDim + 2)]);
    for (int i = 0; i < kWarps; ++i) {
      const float* warp = of_warp + i * (kDim + 2);
      const float keep = Exp(warp[0] - max);
      total += warp[1] * keep;
      out += warp[2 + ThreadIndex()] * keep;
    }
    float* partial =
        params.partial +
        ((static_cast<int64_t>(sequence) * params.heads + head) * params.splits + split) *
            (kDim + 2);
    if (ThreadIndex() == 0) partial[0] = max;
    if (ThreadIndex() == 0) partial[1] = total;
    partial[2 + ThreadIndex()] = out;
  }
}

BATON_KERNEL(kMergeSplits, SplitAttentionParams, 32) {
  constexpr int kDim = SplitAttentionParams::kHeadDim;
  const int row = BlockY() * params.heads + BlockX();
  const float* partial = params.partial + static_cast<int64_t>(row) * params.splits * (kDim + 2);
  float max = kNone;
  for (int i = 0; i < params.splits; ++i) max = Larger(max, partial[i * (kDim + 2)]);
  float total = 0, out0 = 0, out1 = 0;
  for (int i = 0; i < params.splits; ++i) {
    const float* split = partial + i * (kDim + 2);
    const float keep = Exp(split[0] - max);
    total += split[1] * keep;
    out0 += split[2 + 2 * Lane()] * keep;
    out1 += split[3 + 2 * Lane()] * keep;
  }
  params.out[row * kDim + 2 * Lane()] = out0 / total;
  params.out[row * kDim + 2 * Lane() + 1] = out1 / total;
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
