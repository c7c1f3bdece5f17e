#pragma once

// The work of one warp on a tile of kAttentionTileKeys keys and kAttentionTileRows rows of q:
// matrix multiplications by mma, online softmax (Milakov & Gimelshein 2018), and merging the sums
// of several ranges of keys. The results have the same bits in every kernel that uses this file. A
// lane holds rows lane / 4 and lane / 4 + 8 of an mma result. Included by kernels only.

#include <type_traits>

#include "kernels/cuda/kernels/attention_score.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Distance between rows of a tile in shared memory, in elements.
template <int kHeadDim>
constexpr int kTilePitch = kHeadDim + 8;

static_assert(kAttentionTileKeys == 32 && kAttentionTileRows == 16, "as the code below has them");

// Two elements of value 1, packed into one register as in a fragment.
template <typename T>
constexpr uint32_t kOnes = std::is_same_v<T, Half> ? 0x3c003c00 : 0x3f803f80;

// The rows of q. They are held as fragments in registers if there are enough registers.
template <typename T, int kHeadDim>
struct TileQueries {
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr bool kHeld =
      kHeadDim <= 128 && kHeadDim != 80;  // head_dim 80 needs two registers too many

  const T* rows;  // in shared memory, [16, kTilePitch]
  uint32_t held[kHeld ? kSteps : 1][4];

  BATON_DEVICE void Load(int step, uint32_t fragment[4]) const {
    LoadMatrix4(fragment, &rows[Lane() % 16 * kTilePitch<kHeadDim> + 16 * step + Lane() / 16 * 8]);
  }
  BATON_DEVICE void Hold() {
    if constexpr (kHeld) {
      BATON_UNROLL
      for (int step = 0; step < kSteps; ++step) Load(step, held[step]);
    }
  }
};

// First and last key that each of a lane's two rows sees.
struct TileView {
  int first[2], last[2];
};

// Running sums of the attention of one tile of rows over one range of keys.
template <int kHeadDim>
struct TileState {
  float values[kHeadDim / 8][4] = {};  // in the layout of an mma result, like AddTile's `scores`
  float sum[4] = {};                   // sums of the weights, the same in every column
  float max[2] = {-kInfinity, -kInfinity};
};

// Adds one more tile of keys and values to the sums in `state`. The keys and values are in shared
// memory, [32, kTilePitch]. `tile` is the position of the first key. Elements that no row sees must
// be numbers, not NaN.
template <typename T, int kHeadDim>
BATON_DEVICE void AddTile(const TileQueries<T, kHeadDim>& queries, const T* keys, const T* values,
                          int tile, const TileView& view, const ScoreScale& scale,
                          TileState<kHeadDim>* state) {
  constexpr int kPitch = kTilePitch<kHeadDim>;
  const int lane = Lane();

  // The lane's part of four mma results. scores[j] has four scores for keys 8 j to 8 j + 7 of the
  // tile. Elements 0 and 1 belong to row lane / 4 of q, elements 2 and 3 to row lane / 4 + 8. In
  // each pair, the keys are 8 j + 2 * (lane % 4) and the next one.
  float scores[4][4] = {};
  BATON_UNROLL
  for (int step = 0; step < kHeadDim / 16; ++step) {
    uint32_t loaded[4];
    if constexpr (!TileQueries<T, kHeadDim>::kHeld) queries.Load(step, loaded);
    const uint32_t* const q = TileQueries<T, kHeadDim>::kHeld
                                  ? queries.held[TileQueries<T, kHeadDim>::kHeld ? step : 0]
                                  : loaded;
    BATON_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      uint32_t k[4];  // fragment of 16 keys
      LoadMatrix4(
          k, &keys[(16 * pair + lane / 16 * 8 + lane % 8) * kPitch + 16 * step + lane / 8 % 2 * 8]);
      Mma<T>(scores[2 * pair], q, k);
      Mma<T>(scores[2 * pair + 1], q, k + 2);
    }
  }

  BATON_UNROLL
  for (int i = 0; i < 16; ++i) scores[i / 4][i % 4] = scale.Of(scores[i / 4][i % 4]);
  // One branch for all scores, so that a model without a soft cap pays only for the branch.
  if (scale.capped()) {
    BATON_UNROLL
    for (int i = 0; i < 16; ++i) scores[i / 4][i % 4] = scale.Capped(scores[i / 4][i % 4]);
  }
  float max[2] = {state->max[0], state->max[1]};
  BATON_UNROLL
  for (int j = 0; j < 4; ++j) {
    BATON_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = i / 2, key = tile + 8 * j + lane % 4 * 2 + i % 2;
      const bool seen = key >= view.first[row] && key <= view.last[row];
      if (!seen) {
        scores[j][i] = -kInfinity;
      }
      max[row] = fmaxf(max[row], scores[j][i]);
    }
  }
  float base[2], shrink[2];
  BATON_UNROLL
  for (int row = 0; row < 2; ++row) {
    max[row] = fmaxf(max[row], ShuffleXor(max[row], 1));
    max[row] = fmaxf(max[row], ShuffleXor(max[row], 2));
    // A row that has seen no key yet gets the base 0, which makes its weights zero. With the base
    // -infinity its weights would be NaN.
    base[row] = max[row] == -kInfinity ? 0.0f : max[row];
    shrink[row] = Exp2(state->max[row] - base[row]);
    state->max[row] = max[row];
  }

  uint32_t weights[2][4];  // two fragments of 16 keys each
  BATON_UNROLL
  for (int step = 0; step < 2; ++step) {
    BATON_UNROLL
    for (int part = 0; part < 4; ++part) {
      const float* const score = scores[2 * step + part / 2] + part % 2 * 2;
      weights[step][part] =
          Pack<T>(Exp2(score[0] - base[part % 2]), Exp2(score[1] - base[part % 2]));
    }
  }

  BATON_UNROLL
  for (int i = 0; i < 4; ++i) {
    state->sum[i] *= shrink[i / 2];
  }
  constexpr uint32_t kColumnOfOnes[2] = {kOnes<T>, kOnes<T>};
  BATON_UNROLL
  for (int step = 0; step < 2; ++step) Mma<T>(state->sum, weights[step], kColumnOfOnes);

  BATON_UNROLL
  for (int n = 0; n < kHeadDim / 8; n += 2) {
    BATON_UNROLL
    for (int i = 0; i < 4; ++i) {
      state->values[n][i] *= shrink[i / 2];
      state->values[n + 1][i] *= shrink[i / 2];
    }
    BATON_UNROLL
    for (int step = 0; step < 2; ++step) {
      uint32_t v[4];
      LoadMatrix4Transposed(
          v, &values[(16 * step + lane / 8 % 2 * 8 + lane % 8) * kPitch + 8 * n + lane / 16 * 8]);
      Mma<T>(state->values[n], weights[step], v);
      Mma<T>(state->values[n + 1], weights[step], v + 2);
    }
  }
}

// Adds the sums of a range of keys to the sums of earlier ranges. Both are scaled to the larger of
// their two maxima. The first range is added to a sum of 0 and a maximum of -infinity. Every added
// range must have a key.
struct RangeMerge {
  float keep, add;

  BATON_DEVICE RangeMerge(float* max, float range_max) {
    const float larger = fmaxf(*max, range_max);
    keep = Exp2(*max - larger);
    add = Exp2(range_max - larger);
    *max = larger;
  }
  BATON_DEVICE float Of(float before, float range) const {
    return Fma(range, add, Mul(before, keep));
  }
};

}  // namespace baton::BATON_DEVICE_NAMESPACE
