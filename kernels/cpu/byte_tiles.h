#pragma once

#include "kernels/cpu/tiles.h"

// Products of quantised weights by AMX tiles. Included after bytes_vnni.h and quantised_inl.h.
namespace baton::cpu {
namespace {

// Tiles for products of up to sixteen rows of activations with Group::w, which is a tile as it is.
class ByteTiles {
 public:
  static constexpr int kRows = 16;

  // For `rows` rows in all, of which `bytes` bytes are multiplied at once.
  ByteTiles(int rows, int bytes) {
    TileConfig config;
    config.Set(0, kRows, 64);  // sums
    config.Set(1, kRows, bytes);
    config.Set(2, bytes / 4, 64);  // weights
    if (rows % kRows != 0) {
      config.Set(3, rows % kRows, 64);
      config.Set(4, rows % kRows, bytes);
    }
    BATON_TILES_SET_UP(config);
  }
  ~ByteTiles() { BATON_TILES_RELEASE(); }
  ByteTiles(const ByteTiles&) = delete;
  ByteTiles& operator=(const ByteTiles&) = delete;

  // Sets dots[r][lane] to the products of the activation rows, `stride` bytes apart, with the
  // weights of each lane. `rows` is kRows, or what is left at the end.
  void Dot(int rows, const int8_t* x, ptrdiff_t stride, const Ints* w,
           int32_t (*dots)[kPanel]) const {
    BATON_TILE_LOAD(2, w, 64);
    if (rows == kRows) {
      BATON_TILE_ZERO(0);
      BATON_TILE_LOAD(1, x, stride);
      BATON_TILE_DOT_BYTES(0, 1, 2);
      BATON_TILE_STORE(0, dots, 64);
    } else {
      BATON_TILE_ZERO(3);
      BATON_TILE_LOAD(4, x, stride);
      BATON_TILE_DOT_BYTES(3, 4, 2);
      BATON_TILE_STORE(3, dots, 64);
    }
  }
};

}  // namespace
}  // namespace baton::cpu
