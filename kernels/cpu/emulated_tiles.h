#pragma once

#include <cstring>

// The tile instructions that tiles.h lists, as plain code, after the pseudocode of Intel's
// Architecture Instruction Set Extensions, chapter 3. Where the processor would raise an exception
// for a wrong configuration, the process ends.
namespace baton::cpu {
namespace {

class EmulatedTiles {
 public:
  void SetUp(const TileConfig& config) {
    Require(config.palette == 1 && config.start_row == 0);
    for (const uint8_t byte : config.reserved) Require(byte == 0);
    for (int tile = 8; tile < 16; ++tile) {
      Require(config.rows[tile] == 0 && config.row_bytes[tile] == 0);
    }
    for (int tile = 0; tile < 8; ++tile) {
      Require(config.rows[tile] <= 16 && config.row_bytes[tile] <= 64);
      Require((config.rows[tile] == 0) == (config.row_bytes[tile] == 0));
    }
    config_ = config;
    std::memset(tiles_, 0, sizeof(tiles_));
  }
  void Release() { config_ = {.palette = 0}; }
  void Load(int tile, const void* base, ptrdiff_t stride) {
    RequireUsed(tile);
    std::memset(tiles_[tile], 0, sizeof(tiles_[tile]));
    for (int row = 0; row < config_.rows[tile]; ++row) {
      std::memcpy(tiles_[tile][row], static_cast<const char*>(base) + row * stride,
                  config_.row_bytes[tile]);
    }
  }
  void Store(int tile, void* base, ptrdiff_t stride) const {
    RequireUsed(tile);
    for (int row = 0; row < config_.rows[tile]; ++row) {
      std::memcpy(static_cast<char*>(base) + row * stride, tiles_[tile][row],
                  config_.row_bytes[tile]);
    }
  }
  void Zero(int tile) {
    RequireUsed(tile);
    std::memset(tiles_[tile], 0, sizeof(tiles_[tile]));
  }
  void DotBytes(int sums, int left, int right) {
    RequireUsed(sums);
    RequireUsed(left);
    RequireUsed(right);
    Require(sums != left && left != right && sums != right);
    Require(config_.rows[sums] == config_.rows[left]);
    Require(config_.row_bytes[sums] == config_.row_bytes[right]);
    Require(config_.row_bytes[left] == 4 * config_.rows[right]);
    for (int m = 0; m < config_.rows[sums]; ++m) {
      for (int k = 0; k < config_.rows[right]; ++k) {
        for (int n = 0; n < config_.row_bytes[sums] / 4; ++n) {
          int32_t sum;
          std::memcpy(&sum, &tiles_[sums][m][4 * n], sizeof(sum));
          for (int i = 0; i < 4; ++i) {
            sum += static_cast<int8_t>(tiles_[left][m][4 * k + i]) * tiles_[right][k][4 * n + i];
          }
          std::memcpy(&tiles_[sums][m][4 * n], &sum, sizeof(sum));
        }
      }
    }
  }

 private:
  static void Require(bool is_so) {
    if (!is_so) __builtin_trap();
  }
  void RequireUsed(int tile) const { Require(config_.palette == 1 && config_.rows[tile] > 0); }

  TileConfig config_ = {.palette = 0};
  uint8_t tiles_[8][16][64] = {};
};

thread_local EmulatedTiles emulated_tiles;

}  // namespace
}  // namespace baton::cpu

#define BATON_TILES_SET_UP(config) emulated_tiles.SetUp(config)
#define BATON_TILES_RELEASE() emulated_tiles.Release()
#define BATON_TILE_LOAD(tile, base, stride) emulated_tiles.Load(tile, base, stride)
#define BATON_TILE_STORE(tile, base, stride) emulated_tiles.Store(tile, base, stride)
#define BATON_TILE_ZERO(tile) emulated_tiles.Zero(tile)
#define BATON_TILE_DOT_BYTES(sums, left, right) emulated_tiles.DotBytes(sums, left, right)
