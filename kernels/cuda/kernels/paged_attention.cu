#include "kernels/cuda/kernels/attention_score.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"
#include "kernels/cuda/kernels/step_rows.h"

namespace baton::BATON_DEVICE_NAMESPACE {

namespace {

constexpr int kTile = 32;  // keys of a tile, one for each lane

static_assert(kMaxHeadDim <= kTile * kOctet, "a lane holds at most one octet of a head");

// Shared memory of one warp.
struct WarpScratch {
  float q[kMaxHeadDim];     // followed by zeros up to a whole octet
  float weights[2][kTile];  // [0] for keys of even tiles, [1] for odd tiles
  // Sums of values, kOctet for each lane. The sums of two lanes begin 9 floats apart, not 8, to
  // avoid bank conflicts.
  float parts[kTile * (kOctet + 1)];
};

// Returns q . k over head_dim elements. The order of the sum is the same for every alignment of k.
template <typename T>
BATON_DEVICE float Dot(const float* q, const T* k, int head_dim) {
  float sums[kOctet] = {};
  for (int begin = 0; begin < head_dim; begin += kOctet) {
    float values[kOctet];
    LoadOctet(k + begin, head_dim - begin, values);
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) sums[i] += q[begin + i] * values[i];
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Computes the attention of one row and head with one warp, one tile of keys after another. First
// each lane scores one key of the tile. Then the warp sums the values: its lanes form g = 32 /
// `octets` groups, each group takes every g-th key, and each lane of a group sums eight elements of
// the head.
template <typename T>
BATON_DEVICE void AttendHead(const PagedAttentionParams& params, int row, const RowPlace& place,
                             int head, int kv_head, WarpScratch* scratch) {
  const LayerPages& pages = params.pages;
  const int head_dim = pages.head_dim, octets = Octets(head_dim), lane = Lane();
  const int groups = 32 / octets, group = lane / octets, begin = lane % octets * kOctet;
  const bool takes_values = group < groups;
  const Bf16* const q = static_cast<const Bf16*>(params.q) + row * params.q_stride +
                        static_cast<int64_t>(head) * head_dim;

  // Overwrites the q of the previous head. No lane still reads it, because all lanes have finished
  // the loop over that head's keys.
  if (lane < octets) {
    LoadOctet(q + lane * kOctet, head_dim - lane * kOctet, scratch->q + lane * kOctet);
  }
  SyncWarp();

  const int32_t* const blocks = BlocksOf(params.step, place);
  const int last = place.position;
  const int first = params.window > 0 && last >= params.window ? last + 1 - params.window : 0;
  const ScoreScale scale(params.scale, params.soft_cap);
  float max = -kInfinity;  // max of all scores so far, as an exponent of 2
  float sum = 0;           // sum of the weights of this lane's keys, relative to `max`
  float parts[kOctet] = {};
  for (int tile = first / kTile * kTile; tile <= last; tile += kTile) {
    const int key = tile + lane;
    const bool seen = key >= first && key <= last;
    float score = -kInfinity;
    if (seen) {
      score = scale.Of(
          Dot(scratch->q, Slot<T>(pages, pages.key_offset, blocks, key, kv_head), head_dim));
      if (scale.capped()) score = scale.Capped(score);
    }
    const float new_max = WarpMax(fmaxf(max, score));
    const float shrink = Exp2(max - new_max);
    const float weight = seen ? Exp2(score - new_max) : 0.0f;
    max = new_max;
    sum = sum * shrink + weight;
    float* const weights = scratch->weights[tile / kTile % 2];
    weights[lane] = weight;
    // After this barrier, the loop below can read the weights that all lanes wrote for this tile.
    // All lanes have also finished with the previous tile, so the next tile may overwrite its
    // weights.
    SyncWarp();
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      parts[i] *= shrink;
    }
    if (takes_values) {
      for (int other = group; other < kTile; other += groups) {
        if (tile + other < first || tile + other > last) {
          continue;
        }
        float values[kOctet];
        LoadOctet(Slot<T>(pages, pages.value_offset, blocks, tile + other, kv_head) + begin,
                  head_dim - begin, values);
        BATON_UNROLL
        for (int i = 0; i < kOctet; ++i) parts[i] += weights[other] * values[i];
      }
    }
  }

  const float whole = WarpSum(sum);
  BATON_UNROLL
  for (int i = 0; i < kOctet; ++i) scratch->parts[lane * (kOctet + 1) + i] = parts[i];
  SyncWarp();
  if (lane < octets) {
    float out[kOctet] = {};
    for (int other = 0; other < groups; ++other) {
      BATON_UNROLL
      for (int i = 0; i < kOctet; ++i) {
        out[i] += scratch->parts[(other * octets + lane) * (kOctet + 1) + i];
      }
    }
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) out[i] /= whole;
    StoreOctet(static_cast<Bf16*>(params.out) + row * params.out_stride +
                   static_cast<int64_t>(head) * head_dim + begin,
               head_dim - begin, out);
  }
}

}  // namespace

// Each thread block takes a row (x) and a KV head (y). Its warps share out the query heads that
// read this KV head. Each warp reads all keys and values of the row, 2 * head_dim elements of the
// pool's type per key: the first read comes from memory, later ones from the cache. This kernel is
// made to be correct, not fast: a step of few rows uses few multiprocessors.
BATON_KERNEL(paged_attention, PagedAttentionParams, kPagedAttentionWarps * 32) {
  BATON_SHARED(WarpScratch, scratch, kPagedAttentionWarps);
  const int row = BlockX(), kv_head = BlockY();
  const RowPlace place = PlaceOf(params.step, row);
  const int group = place.sequence < 0 ? 0 : params.heads / params.pages.kv_heads;
  for (int i = Warp(); i < group; i += BlockThreads() / 32) {
    const int head = kv_head * group + i;
    switch (params.pages.type) {
      case DType::kF32:
        AttendHead<float>(params, row, place, head, kv_head, &scratch[Warp()]);
        break;
      case DType::kF16:
        AttendHead<Half>(params, row, place, head, kv_head, &scratch[Warp()]);
        break;
      case DType::kBF16:
        AttendHead<Bf16>(params, row, place, head, kv_head, &scratch[Warp()]);
        break;
    }
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
