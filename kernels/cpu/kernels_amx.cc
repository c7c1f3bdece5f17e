// The order of the headers matters: each one uses the headers above it.
// clang-format off
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/dot_inl.h"
#include "kernels/cpu/bf16_kernels.h"
#include "kernels/cpu/tiles.h"
// clang-format on

// GEMMs with tdpbf16ps. The weights are the left operand: 32 elements of each of sixteen weight
// rows form a tile exactly as they lie in the model's file. So for few activations no weights are
// copied, and all processes can share the mapped file. The activations are the right operand. They
// are packed as
//   [m / 16][k / 32][16 pairs][rows][2]
// where a pair is two neighbouring inputs. A tile has up to sixteen activation rows, which are its
// columns. A tile of sums is [16 outputs][rows].
namespace baton::cpu {
namespace {

constexpr int kPanel = 32;    // weight rows per step: two by two tiles of sums
constexpr int kGroup = 128;   // weight rows that stay in the second-level cache together
constexpr int kFewRows = 32;  // max activation rows for which weights are not copied
constexpr int kBlock = 512;   // max activation rows per call
// Weights are used in parts of up to this many elements of each weight row, so that the parts of
// all rows of a group (kGroup) stay in the cache together.
constexpr ptrdiff_t kKPart = 2048;
constexpr ptrdiff_t kTileBytes = 1024;

// Sets up the tile registers: tiles 0 to 3 hold sums, 4 and 5 weights, 6 and 7 activations. A
// column of an activation tile holds one row of activations; `columns` is the number of columns.
class TilesInUse {
 public:
  explicit TilesInUse(int columns) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.Set(tile, 16, tile == 4 || tile == 5 ? 64 : 4 * columns);
    }
    BATON_TILES_SET_UP(config);
  }
  ~TilesInUse() { BATON_TILES_RELEASE(); }
};

inline int Columns(int m) { return m < 16 ? m : 16; }

// Rounds 32 floats to bf16, to nearest even. Only the first n floats are read; the others count as
// zero. Denormals become zero.
inline __m512i Narrow32(const float* p, ptrdiff_t n) {
  const Vec low = n >= 16 ? Load(p) : LoadWidePartial(p, n);
  const Vec high = n >= 32 ? Load(p + 16) : n > 16 ? LoadWidePartial(p + 16, n - 16) : Zero();
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Rounds activation rows m0 to m0 + 15 to bf16 and packs them, one tile for every 32 inputs. A row
// of a tile holds two neighbouring inputs of each activation row.
void AmxPack(const float* x, ptrdiff_t x_stride, int m, ptrdiff_t k, int m0, char* packed) {
  const int rows = m - m0 < 16 ? m - m0 : 16, columns = Columns(m);
  const ptrdiff_t bytes = 64 * columns;
  char* to = packed + m0 / 16 * (RoundUp32(k) / 32) * bytes;
  const __mmask16 kept = static_cast<__mmask16>((1u << columns) - 1);
  const float* from = x + m0 * x_stride;
  for (ptrdiff_t i = 0; i < k; i += 32, to += bytes) {
    if (columns == 1) {
      _mm512_storeu_si512(to, Narrow32(from + i, k - i));
      continue;
    }
    __m512i pairs[16];
    for (int r = 0; r < 16; ++r) {
      pairs[r] = r < rows ? Narrow32(from + r * x_stride + i, k - i) : _mm512_setzero_si512();
    }
    Transpose16(pairs);
    for (int p = 0; p < 16; ++p) _mm512_mask_storeu_epi32(to + p * 4 * columns, kept, pairs[p]);
  }
}
size_t AmxPackedBytes(int m, ptrdiff_t k) {
  return (m + 15) / 16 * (RoundUp32(k) / 32) * static_cast<size_t>(64 * Columns(m));
}

// The place in memory of the weight tiles of one panel, which is kPanel weight rows.
struct Weights {
  const char* at;
  ptrdiff_t row_bytes;   // from one row of a tile to the next
  ptrdiff_t step_bytes;  // from 32 inputs to the next 32
  ptrdiff_t next;        // from the first sixteen weight rows to the second sixteen
  char* copy;            // copy of the tiles, in PackPanel's layout; may be null
};

// Multiplies `steps` groups of 32 inputs. Adds the products of the first sixteen activation rows to
// tiles 0 and 1. With kTwo, also adds the products of the next sixteen activation rows to tiles 2
// and 3. With kCopy, also stores the tiles of weights at w.copy.
template <bool kTwo, bool kCopy = false>
inline void Steps(Weights w, const char* x0, const char* x1, int columns, ptrdiff_t steps) {
  const ptrdiff_t x_row = 4 * columns, x_step = 64 * columns;
  for (; steps > 0; --steps) {
    BATON_TILE_LOAD(6, x0, x_row);
    BATON_TILE_LOAD(4, w.at, w.row_bytes);
    BATON_TILE_DOT_BF16(0, 4, 6);
    if (kTwo) {
      BATON_TILE_LOAD(7, x1, x_row);
      BATON_TILE_DOT_BF16(2, 4, 7);
    }
    BATON_TILE_LOAD(5, w.at + w.next, w.row_bytes);
    BATON_TILE_DOT_BF16(1, 5, 6);
    if (kTwo) BATON_TILE_DOT_BF16(3, 5, 7);
    if (kCopy) {
      BATON_TILE_STORE(4, w.copy, 64);
      BATON_TILE_STORE(5, w.copy + kTileBytes, 64);
      w.copy += 2 * kTileBytes;
    }
    w.at += w.step_bytes;
    x0 += x_step;
    x1 += x_step;
  }
}

// Writes one stored tile of sums to the outputs [n, n + 16) of the activation rows [m, m +
// columns), but to no output from n1 on. Adds the bias and the old output if the task asks for
// them.
inline void FinishTile(const Bf16Task& task, const float* sums, int m, int columns, int n, int n1) {
  const int count = n1 - n < 16 ? n1 - n : 16;
  if (count <= 0) return;
  const __mmask16 kept = static_cast<__mmask16>((1u << count) - 1);
  const Vec bias = task.bias == nullptr ? Zero() : _mm512_maskz_loadu_ps(kept, task.bias + n);
  __m512i rows[16];
  for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_si512(sums + i * 16);
  Transpose16(rows);
  for (int c = 0; c < columns; ++c) {
    float* out = task.out + static_cast<ptrdiff_t>(m + c) * task.out_stride + n;
    Vec value = _mm512_castsi512_ps(rows[c]);
    if (task.bias != nullptr) value = Add(value, bias);
    if (task.accumulate) value = Add(_mm512_maskz_loadu_ps(kept, out), value);
    _mm512_mask_storeu_ps(out, kept, value);
  }
}

inline void StoreSums(bool two, float* sums) {
  BATON_TILE_STORE(0, sums, 64);
  BATON_TILE_STORE(1, sums + 256, 64);
  if (two) {
    BATON_TILE_STORE(2, sums + 512, 64);
    BATON_TILE_STORE(3, sums + 768, 64);
  }
}
inline void ZeroSums() {
  BATON_TILE_ZERO(0);
  BATON_TILE_ZERO(1);
  BATON_TILE_ZERO(2);
  BATON_TILE_ZERO(3);
}
inline void FinishSums(const Bf16Task& task, const float* sums, int m, int m1, int n, int n1) {
  for (int tile = 0; tile < 4; ++tile) {
    const int first = m + tile / 2 * 16;
    if (first >= m1) break;
    FinishTile(task, sums + tile * 256, first, m1 - first < 16 ? m1 - first : 16, n + tile % 2 * 16,
               n1);
  }
}

// Computes up to kFewRows activation rows with whole panels of weights, which are read in place.
// kTwo is true for more than sixteen activation rows.
template <bool kTwo>
void FewRows(const Bf16Task& task, int m0, int m1, int n0, int n1, float* sums) {
  const int columns = Columns(task.m);
  const ptrdiff_t steps = task.k / 32, left = task.k % 32, row_bytes = 2 * task.k;
  const char* x0 = task.x + m0 / 16 * (RoundUp32(task.k) / 32) * 64 * columns;
  const char* x1 = x0 + RoundUp32(task.k) / 32 * 64 * columns;
  for (int n = n0; n < n1; n += kPanel) {
    const char* at = reinterpret_cast<const char*>(task.w + n * task.k);
    ZeroSums();
    Steps<kTwo>({.at = at, .row_bytes = row_bytes, .step_bytes = 64, .next = 16 * row_bytes}, x0,
                x1, columns, steps);
    if (left > 0) {
      alignas(64) Bf16 last[kPanel][32] = {};
      for (int c = 0; c < kPanel; ++c) {
        __builtin_memcpy(last[c], at + c * row_bytes + steps * 64, left * sizeof(Bf16));
      }
      Steps<kTwo>({.at = reinterpret_cast<const char*>(last), .row_bytes = 64, .next = kTileBytes},
                  x0 + steps * 64 * columns, x1 + steps * 64 * columns, columns, 1);
    }
    StoreSums(kTwo, sums);
    FinishSums(task, sums, m0, m1, n, n1);
  }
}

// Packs inputs [k0, k1) of up to kPanel weight rows, two tiles for every 32 inputs: a tile is [16
// rows][32 inputs]. Missing rows and inputs are zeros.
inline void PackPanel(const Bf16Task& task, int n0, int n1, ptrdiff_t k0, ptrdiff_t k1,
                      char* packed) {
  const ptrdiff_t whole = (k1 - k0) / 32, left = (k1 - k0) % 32;
  for (int c = 0; c < kPanel; ++c) {
    char* to = packed + c * 64;
    const bool there = n0 + c < n1;
    const Bf16* from = task.w + (there ? n0 + c : n0) * task.k + k0;
    for (ptrdiff_t s = 0; s < whole; ++s, from += 32, to += 2 * kTileBytes) {
      _mm512_store_si512(to, there ? _mm512_loadu_si512(from) : _mm512_setzero_si512());
    }
    if (left > 0) {
      const __mmask32 kept = there ? static_cast<__mmask32>((1u << left) - 1) : 0;
      _mm512_store_si512(to, _mm512_maskz_loadu_epi16(kept, from));
    }
  }
}

// Computes up to kBlock activation rows. While it computes the first 32 rows, it copies the tiles
// of weights into `scratch`. For the other rows it reads this copy.
void ManyRows(const Bf16Task& task, int m0, int m1, int n0, int n1, char* scratch) {
  const int columns = Columns(task.m), pairs = (m1 - m0 + 31) / 32;
  const ptrdiff_t x_tile = RoundUp32(task.k) / 32 * 64 * columns;  // bytes of sixteen activations
  const ptrdiff_t row_bytes = 2 * task.k;
  float* sums = reinterpret_cast<float*>(scratch + kGroup * kKPart * 2);
  for (int group = n0; group < n1; group += kGroup) {
    const int end = n1 - group < kGroup ? n1 : group + kGroup;
    const int panels = (end - group + kPanel - 1) / kPanel;
    for (ptrdiff_t k0 = 0; k0 < task.k; k0 += kKPart) {
      const ptrdiff_t k1 = k0 + kKPart < task.k ? k0 + kKPart : task.k;
      const ptrdiff_t steps = RoundUp32(k1 - k0) / 32;
      for (int pair = 0; pair < pairs; ++pair) {
        const int m = m0 + 32 * pair;
        const bool two = m1 - m > 16;
        const char* x0 = task.x + m / 16 * x_tile + k0 / 32 * 64 * columns;
        for (int panel = 0; panel < panels; ++panel) {
          const int n = group + kPanel * panel;
          float* tile_sums = sums + (panel * pairs + pair) * 1024;
          if (k0 == 0) {
            ZeroSums();
          } else {
            BATON_TILE_LOAD(0, tile_sums, 64);
            BATON_TILE_LOAD(1, tile_sums + 256, 64);
            if (two) {
              BATON_TILE_LOAD(2, tile_sums + 512, 64);
              BATON_TILE_LOAD(3, tile_sums + 768, 64);
            }
          }
          char* packed = scratch + panel * kPanel * kKPart * 2;
          const bool whole = n + kPanel <= end && (k1 - k0) % 32 == 0;
          const Weights copied{
              .at = packed, .row_bytes = 64, .step_bytes = 2 * kTileBytes, .next = kTileBytes};
          if (pair == 0 && whole && two) {
            Steps<true, true>({.at = reinterpret_cast<const char*>(task.w + n * task.k + k0),
                               .row_bytes = row_bytes,
                               .step_bytes = 64,
                               .next = 16 * row_bytes,
                               .copy = packed},
                              x0, x0 + x_tile, columns, steps);
          } else {
            if (pair == 0) PackPanel(task, n, end, k0, k1, packed);
            if (two) {
              Steps<true>(copied, x0, x0 + x_tile, columns, steps);
            } else {
              Steps<false>(copied, x0, x0, columns, steps);
            }
          }
          StoreSums(two, tile_sums);
          if (k1 == task.k) FinishSums(task, tile_sums, m, m1, n, end);
        }
      }
    }
  }
}

size_t AmxScratchBytes(int rows, ptrdiff_t) {
  return kGroup * kKPart * 2 +
         static_cast<size_t>(kGroup / kPanel) * ((rows + 31) / 32) * 4 * kTileBytes;
}

void AmxGemm(const Bf16Task& task, int m0, int m1, int n0, int n1, char* scratch) {
  const TilesInUse tiles(Columns(task.m));
  int n = n0;
  if (m1 - m0 <= kFewRows) {
    n = n0 + (n1 - n0) / kPanel * kPanel;
    float* sums = reinterpret_cast<float*>(scratch);
    if (m1 - m0 > 16) {
      FewRows<true>(task, m0, m1, n0, n, sums);
    } else {
      FewRows<false>(task, m0, m1, n0, n, sums);
    }
  }
  if (n < n1) ManyRows(task, m0, m1, n, n1, scratch);
}

}  // namespace

const Bf16Kernels kAmxTiles = {.name = "amx",
                               .panel_cols = kPanel,
                               .group_cols = kGroup,
                               .block_rows = kBlock,
                               .pack = AmxPack,
                               .packed_bytes = AmxPackedBytes,
                               .gemm = AmxGemm,
                               .scratch_bytes = AmxScratchBytes};

}  // namespace baton::cpu
