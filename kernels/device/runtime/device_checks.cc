#include "kernels/device/runtime/device_checks.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Limits of every device since compute capability 3.0: the max grid size in y and z, and the max
// pitch of a copy.
constexpr int kMaxGridYz = 65535;
constexpr size_t kMaxPitch = (size_t{1} << 31) - 1;
constexpr size_t kMaxParamsBytes = 4000;

template <class... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace

absl::Status CheckLaunch(const Kernel& kernel, const LaunchShape& shape, const void* params,
                         const DeviceInfo& device) {
  const char* const name = kernel.name == nullptr ? "a kernel without a name" : kernel.name;
  if (kernel.entry == nullptr) return Refuse(name, ": has no code for this runtime");
  if (kernel.params_bytes == 0 || kernel.params_bytes > kMaxParamsBytes) {
    return Refuse(name, ": parameters of ", kernel.params_bytes, " bytes; 1 to ", kMaxParamsBytes,
                  " can be passed");
  }
  if (params == nullptr) return Refuse(name, ": no parameters");
  if (shape.grid_x < 1 || shape.grid_y < 1 || shape.grid_y > kMaxGridYz || shape.grid_z < 1 ||
      shape.grid_z > kMaxGridYz) {
    return Refuse(name, ": a grid of ", shape.grid_x, " x ", shape.grid_y, " x ", shape.grid_z,
                  " blocks; each is at least 1, y and z are at most ", kMaxGridYz);
  }
  if (shape.threads < 32 || shape.threads > 1024 || shape.threads % 32 != 0) {
    return Refuse(name, ": blocks of ", shape.threads,
                  " threads; they have a multiple of 32, at most 1024");
  }
  if (shape.shared_bytes > device.shared_bytes) {
    return Refuse(name, ": ", shape.shared_bytes, " bytes of shared memory; ", device.name, " has ",
                  device.shared_bytes, " for a block");
  }
  return absl::OkStatus();
}

absl::Status CheckGemm(const DenseGemm& gemm) {
  const DenseGemm& p = gemm;
  if (p.rows < 0 || p.n < 1 || p.k < 1) {
    return Refuse("Gemm: [", p.rows, ", ", p.k, "] by [", p.n, ", ", p.k, "]");
  }
  if (p.out_type != DType::kBF16 && p.out_type != DType::kF32) {
    return Refuse("Gemm: out is ", DTypeName(p.out_type), "; it can be bf16 or f32");
  }
  if (p.algorithm < 0) return Refuse("Gemm: algorithm ", p.algorithm);
  if (p.rows == 0) return absl::OkStatus();
  if (p.in_stride < p.k || p.out_stride < p.n) {
    return Refuse("Gemm: in has rows of ", p.k, " at a stride of ", p.in_stride, ", out rows of ",
                  p.n, " at ", p.out_stride);
  }
  if (p.in == nullptr || p.weight == nullptr || p.out == nullptr) {
    return Refuse("Gemm: ",
                  p.in == nullptr       ? "in"
                  : p.weight == nullptr ? "weight"
                                        : "out",
                  " has no data");
  }
  return absl::OkStatus();
}

absl::Status CheckCopy(const void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (to == nullptr || from == nullptr) {
    return Refuse("Copy: ", bytes, " bytes ", to == nullptr ? "to" : "from", " nowhere");
  }
  const auto a = reinterpret_cast<uintptr_t>(to), b = reinterpret_cast<uintptr_t>(from);
  const uintptr_t apart = a < b ? b - a : a - b;
  if (apart < bytes) {
    return Refuse("Copy: ", bytes, " bytes between places ", apart, " bytes apart; they overlap");
  }
  return absl::OkStatus();
}

absl::Status CheckCopyRows(const void* to, size_t to_pitch, const void* from, size_t from_pitch,
                           size_t row_bytes, size_t rows) {
  if (row_bytes == 0 || rows == 0) return absl::OkStatus();
  if (to == nullptr || from == nullptr) {
    return Refuse("CopyRows: ", rows, " rows of ", row_bytes, " bytes ",
                  to == nullptr ? "to" : "from", " nowhere");
  }
  if (to_pitch < row_bytes || from_pitch < row_bytes || to_pitch > kMaxPitch ||
      from_pitch > kMaxPitch) {
    return Refuse("CopyRows: rows of ", row_bytes, " bytes at pitches of ", to_pitch, " and ",
                  from_pitch, "; a pitch is at least a row, at most ", kMaxPitch);
  }
  if ((SIZE_MAX - row_bytes) / std::max(to_pitch, from_pitch) < rows - 1) {
    return Refuse("CopyRows: ", rows, " rows at pitches of ", to_pitch, " and ", from_pitch);
  }
  const auto a = reinterpret_cast<uintptr_t>(to), b = reinterpret_cast<uintptr_t>(from);
  const uintptr_t apart = a < b ? b - a : a - b;
  if (apart > (rows - 1) * (a < b ? to_pitch : from_pitch) + row_bytes - 1) return absl::OkStatus();
  // The address ranges may overlap if source and destination are different columns of one matrix:
  // their rows then alternate in memory.
  const size_t between = apart % to_pitch;
  if (to_pitch != from_pitch || between < row_bytes || to_pitch - between < row_bytes) {
    return Refuse("CopyRows: ", rows, " rows of ", row_bytes, " bytes at pitches of ", to_pitch,
                  " and ", from_pitch, " between places ", apart, " bytes apart; they overlap");
  }
  return absl::OkStatus();
}

absl::Status CheckFill(const void* to, size_t bytes) {
  if (bytes > 0 && to == nullptr) return Refuse("Fill: ", bytes, " bytes nowhere");
  return absl::OkStatus();
}

absl::Status CheckAllocation(size_t bytes) {
  if (bytes == 0) return Refuse("Allocate: 0 bytes");
  return absl::OkStatus();
}

absl::Status CheckPin(const void* memory, size_t bytes) {
  if (memory == nullptr || bytes == 0) {
    return Refuse("PinHost: ", bytes, " bytes", memory == nullptr ? " nowhere" : "");
  }
  return absl::OkStatus();
}

}  // namespace baton
