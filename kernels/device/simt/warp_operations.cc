// The collectives of a warp: the last lane to arrive computes the results of all lanes. This file
// is compiled without calls to the checker. Otherwise the checker would believe that the last lane
// makes the accesses of all lanes. Instead, each lane reports its own accesses (CheckRegisters,
// CheckRow).

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/device/simt/access_checker.h"
#include "kernels/device/simt/device_calls.h"
#include "kernels/device/simt/float_formats.h"
#include "kernels/device/simt/thread_block.h"

namespace baton::simt {
namespace {

template <typename Post>
Post& At(void* const* posts, int lane) {
  return *static_cast<Post*>(posts[lane]);
}

struct GatherPost {
  uint32_t value;
  int from;
  uint32_t result;
};

void ComputeGather(void* const* posts) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    GatherPost& post = At<GatherPost>(posts, lane);
    post.result = At<GatherPost>(posts, post.from % kWarpLanes).value;
  }
}

// Computes the butterfly of ShuffleXor 16, 8, 4, 2, 1 once for all lanes. After each step, two
// lanes that differ only in the bit of that step hold the same value, because `combine` commutes.
// So every lane's result has the same bits.
template <typename Combine>
void ComputeButterfly(void* const* posts, Combine combine) {
  float values[kWarpLanes];
  for (int lane = 0; lane < kWarpLanes; ++lane) values[lane] = At<float>(posts, lane);
  for (int half = kWarpLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] = combine(values[i], values[i + half]);
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) At<float>(posts, lane) = values[0];
}

void ComputeSum(void* const* posts) {
  ComputeButterfly(posts, [](float a, float b) { return a + b; });
}

void ComputeMax(void* const* posts) {
  ComputeButterfly(posts, [](float a, float b) { return std::fmax(a, b); });
}

void ComputeBallot(void* const* posts) {
  uint32_t votes = 0;
  for (int lane = 0; lane < kWarpLanes; ++lane) votes |= At<uint32_t>(posts, lane) << lane;
  for (int lane = 0; lane < kWarpLanes; ++lane) At<uint32_t>(posts, lane) = votes;
}

// Fragments as in PTX ISA, "Matrix Fragments for mma.m16n8k16", .bf16 or .f16. Lane 4 g + t holds:
//   a[i]: row g + 8 (i % 2), columns 2 t + 8 (i / 2) and the next one
//   b[i]: rows 2 t + 8 i and the next one, column g
//   d[i]: row g + 8 (i / 2), column 2 t + i % 2
struct MmaPost {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

template <float (*kToFloat)(uint16_t)>
void ComputeMma(void* const* posts) {
  float a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const MmaPost& post = At<MmaPost>(posts, lane);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      a[g + 8 * (i % 2)][2 * t + 8 * (i / 2)] = kToFloat(post.a[i] & 0xffff);
      a[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + 1] = kToFloat(post.a[i] >> 16);
      d[g + 8 * (i / 2)][2 * t + i % 2] = post.d[i];
    }
    for (int i = 0; i < 2; ++i) {
      b[2 * t + 8 * i][g] = kToFloat(post.b[i] & 0xffff);
      b[2 * t + 8 * i + 1][g] = kToFloat(post.b[i] >> 16);
    }
  }
  // Products of bf16 or f16 are exact in float. A tensor core may sum them in another order.
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      At<MmaPost>(posts, lane).d[i] = d[g + 8 * (i / 2)][2 * t + i % 2];
    }
  }
}

// Fragments as in PTX ISA, "ldmatrix". In each 8x8 matrix, lane l gets two neighbouring elements of
// row l / 4, from element 2 (l % 4) on. If transposed, it gets these elements of column l / 4.
struct LoadMatrixPost {
  uint32_t* r;
  const void* row;
};

template <int kMatrices, bool kTransposed>
void ComputeLoadMatrix(void* const* posts) {
  uint16_t rows[8 * kMatrices][8];
  for (int i = 0; i < 8 * kMatrices; ++i) {
    std::memcpy(rows[i], At<LoadMatrixPost>(posts, i).row, 16);
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int line = lane / 4, first = lane % 4 * 2;
    for (int m = 0; m < kMatrices; ++m) {
      const uint16_t(*matrix)[8] = rows + 8 * m;
      const uint32_t low = kTransposed ? matrix[first][line] : matrix[line][first];
      const uint32_t high = kTransposed ? matrix[first + 1][line] : matrix[line][first + 1];
      At<LoadMatrixPost>(posts, lane).r[m] = low | high << 16;
    }
  }
}

// Tells the access checker that an instruction accesses a register operand. In the emulator, a
// kernel passes such an operand as an array, which may be in any memory. `code` is the address to
// which the kernel's call returns.
void CheckRegisters(const void* at, size_t bytes, bool write, const void* code) {
  AccessChecker* const checker = current.block->checker();
  if (checker != nullptr) checker->Access(at, bytes, 4, write, code);
}

void CheckRow(const char* operation, const void* row, Place place, const void* code) {
  ThreadBlock& block = *current.block;
  const char* wrong = reinterpret_cast<uintptr_t>(row) % 16 != 0 ? "an address not aligned to 16"
                      : !block.shared().InOneArray(row, 16)      ? "bytes outside shared memory"
                                                                 : nullptr;
  if (wrong == nullptr) {
    if (block.checker() != nullptr) block.checker()->Access(row, 16, 16, false, code);
    return;
  }
  block.SetError(absl::StrCat(operation, " (", ToString(place), ") is given ", wrong));
  block.Abandon();
}

}  // namespace

uint32_t Gather(const char* operation, uint32_t value, int from, Place place) {
  GatherPost post{value, from & (kWarpLanes - 1), 0};
  current.block->Meet(operation, place, &post, &ComputeGather);
  return post.result;
}

float WarpSum(float value, Place place) {
  current.block->Meet("WarpSum", place, &value, &ComputeSum);
  return value;
}

float WarpMax(float value, Place place) {
  current.block->Meet("WarpMax", place, &value, &ComputeMax);
  return value;
}

uint32_t Ballot(bool predicate, Place place) {
  uint32_t vote = predicate ? 1 : 0;
  current.block->Meet("Ballot", place, &vote, &ComputeBallot);
  return vote;
}

void Mma(float* d, const uint32_t* a, const uint32_t* b, bool of_half, Place place) {
  const void* const code = __builtin_return_address(0);
  CheckRegisters(a, 16, false, code);
  CheckRegisters(b, 8, false, code);
  CheckRegisters(d, 16, false, code);
  MmaPost post{d, a, b};
  current.block->Meet(of_half ? "Mma<Half>" : "Mma<Bf16>", place, &post,
                      of_half ? &ComputeMma<HalfToFloat> : &ComputeMma<Bf16ToFloat>);
  CheckRegisters(d, 16, true, code);
}

void LoadMatrix2(uint32_t* r, const void* row, bool transposed, Place place) {
  const char* operation = transposed ? "LoadMatrix2Transposed" : "LoadMatrix2";
  const void* const code = __builtin_return_address(0);
  if (current.thread % kWarpLanes < 16) CheckRow(operation, row, place, code);
  LoadMatrixPost post{r, row};
  current.block->Meet(operation, place, &post,
                      transposed ? &ComputeLoadMatrix<2, true> : &ComputeLoadMatrix<2, false>);
  CheckRegisters(r, 8, true, code);
}

void LoadMatrix4(uint32_t* r, const void* row, bool transposed, Place place) {
  const char* operation = transposed ? "LoadMatrix4Transposed" : "LoadMatrix4";
  const void* const code = __builtin_return_address(0);
  CheckRow(operation, row, place, code);
  LoadMatrixPost post{r, row};
  current.block->Meet(operation, place, &post,
                      transposed ? &ComputeLoadMatrix<4, true> : &ComputeLoadMatrix<4, false>);
  CheckRegisters(r, 16, true, code);
}

}  // namespace baton::simt
