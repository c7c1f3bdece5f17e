#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device/simt/float_formats.h"
#include "kernels/device/simt/run_grid.h"
#include "kernels/device/simt/testing/probe_kernels.h"

namespace baton::simt {
namespace {

using emulated_kernels::ProbeParams;

std::vector<uint32_t> RunWarp(const Kernel& kernel, const std::vector<uint32_t>& in, int out_words,
                              int which, uint64_t seed) {
  std::vector<uint32_t> out(out_words);
  const ProbeParams params{out.data(), in.data(), which};
  EXPECT_EQ(RunGrid(kernel, {.threads = 32}, &params, {.seed = seed}), absl::OkStatus());
  return out;
}

TEST(WarpOperationsTest, ShufflesAndBallot) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint32_t> in(32);
    for (uint32_t& x : in) x = random() % 32;
    const auto xored = RunWarp(emulated_kernels::kShuffles, in, 32, 0, seed);
    const auto down = RunWarp(emulated_kernels::kShuffles, in, 32, 1, seed);
    const auto chosen = RunWarp(emulated_kernels::kShuffles, in, 32, 2, seed);
    const auto votes = RunWarp(emulated_kernels::kShuffles, in, 32, 5, seed);
    uint32_t expected_votes = 0;
    for (int lane = 0; lane < 32; ++lane) expected_votes |= uint32_t{in[lane] > 0} << lane;
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(xored[lane], in[lane ^ 5]);
      EXPECT_EQ(down[lane], in[lane + 3 < 32 ? lane + 3 : lane]);
      EXPECT_EQ(chosen[lane], in[lane] + 100);
      EXPECT_EQ(votes[lane], expected_votes);
    }
  }
}

TEST(WarpOperationsTest, SumIsBitForBitTheButterflyAndTheSameInEveryLane) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint32_t> in(32);
    float max = -INFINITY;
    for (uint32_t& x : in) {
      const float value = std::ldexp(static_cast<float>(random() % 2001) - 1000.5f, random() % 40);
      max = std::fmax(max, value);
      x = std::bit_cast<uint32_t>(value);
    }
    const auto sum = RunWarp(emulated_kernels::kShuffles, in, 32, 3, round);
    EXPECT_EQ(sum, RunWarp(emulated_kernels::kShuffles, in, 32, 6, round));
    EXPECT_EQ(sum, std::vector<uint32_t>(32, sum[0]));
    EXPECT_EQ(RunWarp(emulated_kernels::kShuffles, in, 32, 4, round),
              std::vector<uint32_t>(32, std::bit_cast<uint32_t>(max)));
  }
}

// Lane that holds each pair of neighbouring elements: [row][pair] for an 8x8 quarter of A, C or D,
// and [column][pair] for 8 rows of B. From the figures in PTX ISA, "Matrix Fragments for
// mma.m16n8k16" with .bf16 and .f16.
constexpr int kLaneOfPair[8][4] = {{0, 1, 2, 3},     {4, 5, 6, 7},     {8, 9, 10, 11},
                                   {12, 13, 14, 15}, {16, 17, 18, 19}, {20, 21, 22, 23},
                                   {24, 25, 26, 27}, {28, 29, 30, 31}};
// A lane holds two neighbouring elements of a matrix as a pair. These are the indexes of a pair's
// first element among the elements that the lane holds (a0 to a7, b0 to b3, c0 to c3), for each
// quarter of A, and for each half of B and C.
constexpr int kElementOfA[2][2] = {{0, 4}, {2, 6}};  // [row >= 8][column >= 8]
constexpr int kElementOfB[2] = {0, 2};               // [row >= 8]
constexpr int kElementOfC[2] = {0, 2};               // [row >= 8]

TEST(WarpOperationsTest, MmaTakesAndGivesFragmentsAsInThePtxIsa) {
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    const bool of_half = round % 2 == 1;
    const auto encode = of_half ? &FloatToHalf : &FloatToBf16;
    float a[16][16], b[16][8], c[16][8];
    std::array<std::array<uint16_t, 8>, 32> a_of{};
    std::array<std::array<uint16_t, 4>, 32> b_of{};
    std::array<std::array<float, 4>, 32> c_of{};
    // Small integers, so that sums are exact.
    const auto small = [&] { return static_cast<float>(random() % 17) - 8; };
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 16; ++column) {
        a[row][column] = small();
        a_of[kLaneOfPair[row % 8][column % 8 / 2]][kElementOfA[row / 8][column / 8] + column % 2] =
            encode(a[row][column]);
      }
      for (int column = 0; column < 8; ++column) {
        b[row][column] = small();
        b_of[kLaneOfPair[column][row % 8 / 2]][kElementOfB[row / 8] + row % 2] =
            encode(b[row][column]);
        c[row][column] = small();
        c_of[kLaneOfPair[row % 8][column / 2]][kElementOfC[row / 8] + column % 2] = c[row][column];
      }
    }
    std::vector<uint32_t> in;
    for (const auto& lane : a_of) {
      for (int i = 0; i < 8; i += 2) in.push_back(lane[i] | uint32_t{lane[i + 1]} << 16);
    }
    for (const auto& lane : b_of) {
      for (int i = 0; i < 4; i += 2) in.push_back(lane[i] | uint32_t{lane[i + 1]} << 16);
    }
    for (const auto& lane : c_of) {
      for (const float x : lane) in.push_back(std::bit_cast<uint32_t>(x));
    }
    const auto out = RunWarp(emulated_kernels::kMma, in, 128, of_half, round);
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        float sum = c[row][column];
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
        const int at = 4 * kLaneOfPair[row % 8][column / 2] + kElementOfC[row / 8] + column % 2;
        ASSERT_EQ(std::bit_cast<float>(out[at]), sum) << "row " << row << ", column " << column;
      }
    }
  }
}

TEST(WarpOperationsTest, LoadMatrixGivesRowsOrColumnsAsInThePtxIsa) {
  std::mt19937 random(3);
  std::vector<uint32_t> in(128);
  for (uint32_t& x : in) x = random();
  const auto element = [&](int matrix, int row, int column) {
    const uint32_t word = in[4 * (8 * matrix + row) + column / 2];
    return column % 2 == 0 ? word & 0xffff : word >> 16;
  };
  for (int which = 0; which < 4; ++which) {
    const auto out = RunWarp(emulated_kernels::kLoadMatrix, in, 128, which, which);
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int row = 0; row < 8; ++row) {
        for (int pair = 0; pair < 4; ++pair) {
          const uint32_t got = out[4 * kLaneOfPair[row][pair] + matrix];
          uint32_t low = element(matrix, row, 2 * pair), high = element(matrix, row, 2 * pair + 1);
          if (which % 2 == 1) {
            low = element(matrix, 2 * pair, row);
            high = element(matrix, 2 * pair + 1, row);
          }
          // LoadMatrix2 loads only the first two matrices
          if (which >= 2 && matrix >= 2) low = high = 0;
          ASSERT_EQ(got, low | high << 16) << which << " " << matrix << " " << row << " " << pair;
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::simt
