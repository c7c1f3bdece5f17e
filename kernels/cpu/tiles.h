#pragma once

#include <cstddef>
#include <cstdint>

// Instructions on the tile registers of AMX, written as assembly, because GCC 12 declares its
// intrinsics without the memory that they read. The compiler itself never uses a tile register.
// Only files of kernels for AMX include this file; everything here has internal linkage. With
// BATON_EMULATED_TILES, plain code takes the instructions' place, for tests on any processor.
namespace baton::cpu {
namespace {

// The operand of ldtilecfg: the size of each tile.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void Set(int tile, int its_rows, int bytes) {
    rows[tile] = static_cast<uint8_t>(its_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace
}  // namespace baton::cpu

#ifdef BATON_EMULATED_TILES
#include "kernels/cpu/emulated_tiles.h"
#else
#define BATON_TILES_SET_UP(config) asm volatile("ldtilecfg %0" ::"m"(config))
// Returns the tiles to their initial state, so that the operating system need not save them when it
// switches threads.
#define BATON_TILES_RELEASE() asm volatile("tilerelease" ::)
#define BATON_TILE_LOAD(tile, base, stride)                                                        \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(base), "r"(static_cast<ptrdiff_t>(stride)) \
               : "memory")
#define BATON_TILE_STORE(tile, base, stride)                       \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(base), \
               "r"(static_cast<ptrdiff_t>(stride))                 \
               : "memory")
#define BATON_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::)
// Adds left x right to sums. The arguments are numbers of tile registers. Every four bytes of a
// tile are two bf16, or four bytes: signed ones on the left, unsigned ones on the right.
#define BATON_TILE_DOT_BF16(sums, left, right) \
  asm volatile("tdpbf16ps %%tmm" #right ", %%tmm" #left ", %%tmm" #sums ::)
#define BATON_TILE_DOT_BYTES(sums, left, right) \
  asm volatile("tdpbsud %%tmm" #right ", %%tmm" #left ", %%tmm" #sums ::)
#endif
