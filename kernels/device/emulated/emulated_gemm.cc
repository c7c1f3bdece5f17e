#include "kernels/device/emulated/emulated_gemm.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr int kLanes = 32;  // partial sums of a dot product
constexpr int kRows = 4;    // rows of `in` per pass over a weight row

float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t ToBf16(float value) {  // to nearest even
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Converts a row to floats, with zeros up to a whole number of lanes.
void Widen(const uint16_t* row, int k, float* out, int padded) {
  for (int i = 0; i < k; ++i) out[i] = FromBf16(row[i]);
  std::fill(out + k, out + padded, 0.0f);
}

float SumLanes(float* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Computes sums[r] = in[r] . weight for `rows` rows, at most kRows. A row has `padded` floats.
void Dot(const float* in, int rows, const float* weight, int padded, float* sums) {
  float lanes[kRows][kLanes] = {};
  for (int r = 0; r < rows; ++r) {
    float* const own = lanes[r];
    const float* const row = in + static_cast<int64_t>(r) * padded;
    for (int i = 0; i < padded; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) own[lane] += row[i + lane] * weight[i + lane];
    }
    sums[r] = SumLanes(own);
  }
}

}  // namespace

void RunEmulatedGemm(const DenseGemm& p) {
  const int padded = (p.k + kLanes - 1) / kLanes * kLanes;
  std::vector<float> in(static_cast<size_t>(p.rows) * padded), weight(padded);
  for (int r = 0; r < p.rows; ++r) {
    Widen(static_cast<const uint16_t*>(p.in) + r * p.in_stride, p.k,
          in.data() + static_cast<size_t>(r) * padded, padded);
  }
  for (int n = 0; n < p.n; ++n) {
    Widen(static_cast<const uint16_t*>(p.weight) + static_cast<int64_t>(n) * p.k, p.k,
          weight.data(), padded);
    for (int first = 0; first < p.rows; first += kRows) {
      float sums[kRows];
      const int rows = std::min(kRows, p.rows - first);
      Dot(in.data() + static_cast<size_t>(first) * padded, rows, weight.data(), padded, sums);
      for (int r = 0; r < rows; ++r) {
        const int64_t at = (first + r) * p.out_stride + n;
        if (p.out_type == DType::kF32) {
          float& out = static_cast<float*>(p.out)[at];
          out = p.accumulate ? out + sums[r] : sums[r];
        } else {
          uint16_t& out = static_cast<uint16_t*>(p.out)[at];
          out = ToBf16(p.accumulate ? FromBf16(out) + sums[r] : sums[r]);
        }
      }
    }
  }
}

absl::StatusOr<EmulatedWork> EmulatedGemmWork(EmulatedAddressSpace* space, const DenseGemm& p) {
  const size_t out_bytes = DTypeBytes(p.out_type);
  const size_t in_extent = ((p.rows - 1) * p.in_stride + p.k) * sizeof(uint16_t);
  const size_t out_extent = ((p.rows - 1) * p.out_stride + p.n) * out_bytes;
  const size_t weight_extent = size_t{sizeof(uint16_t)} * p.n * p.k;
  const auto check = [space, p, in_extent, weight_extent, out_extent] {
    absl::Status status = space->CheckDevice("Gemm: in: ", p.in, in_extent);
    if (status.ok()) status = space->CheckDevice("Gemm: weight: ", p.weight, weight_extent);
    if (status.ok()) status = space->CheckDevice("Gemm: out: ", p.out, out_extent);
    return status;
  };
  RETURN_IF_ERROR(check());
  return EmulatedWork([space, p, out_bytes, weight_extent, check] {
    RETURN_IF_ERROR(check());
    RunEmulatedGemm(p);
    if (!space->check()) return absl::OkStatus();
    simt::MemoryMap& map = space->map();
    if (!map.Written(p.weight, weight_extent)) {
      return absl::InternalError("Gemm: a part of weight was never written");
    }
    // An output row counts as unwritten if its input row has unwritten bytes or, with `accumulate`,
    // if its old output has. A later read of the output row reports the error.
    for (int row = 0; row < p.rows; ++row) {
      const auto* const in = static_cast<const std::byte*>(p.in) + row * p.in_stride * 2;
      auto* const out = static_cast<std::byte*>(p.out) + row * p.out_stride * out_bytes;
      const size_t bytes = p.n * out_bytes;
      if (map.Written(in, size_t{2} * p.k) && (!p.accumulate || map.Written(out, bytes))) {
        map.MarkWritten(out, bytes);
      } else {
        map.MarkUnwritten(out, bytes);
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace baton
