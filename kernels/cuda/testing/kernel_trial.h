#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/launches.h"
#include "kernels/cuda/testing/reference_kernels.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kernels/device/runtime/kernel.h"
#include "kernels/device/simt/memory_map.h"
#include "kernels/device/simt/run_grid.h"
#include "kernels/formats/dtype.h"

namespace baton {

// The kernels under test, and the runtime that runs them.
struct TestedKernels {
  KernelTable kernels;
  // The device that runs the kernels. If null, the emulator runs the kernels, with host memory and
  // the options of KernelTrial.
  std::shared_ptr<DeviceRuntime> runtime;

  // Max shared memory of a thread block.
  size_t shared_bytes() const {
    return runtime == nullptr ? SIZE_MAX : runtime->info().shared_bytes;
  }
};

// The two sides that a trial compares: the kernel and its reference implementation.
enum class Side { kKernel, kReference };

// Memory in two copies, one for the kernel and one for its reference implementation. Both copies
// have the same content at first. Elements that the test did not set hold NaN.
class ReferenceMemory {
 public:
  // If `runtime` is not null, the kernel's copy is on the device. A second copy on the host then
  // holds the bytes to upload or the downloaded bytes.
  ReferenceMemory(DType type, size_t elements, size_t first_byte, bool is_output,
                  DeviceRuntime* runtime = nullptr);
  ~ReferenceMemory();

  // Address of element `index` in the copy that `side` uses.
  std::byte* at(Side side, size_t index = 0) {
    std::byte* const begin = side == Side::kKernel && device_ != nullptr
                                 ? device_
                                 : host_[side == Side::kReference].get();
    return begin + Offset(index);
  }
  // Sets element `index` both in the kernel's copy and in the copy of the reference implementation.
  void Set(size_t index, float value);
  // Copies `bytes` bytes from `from` both to the kernel's copy and to the copy of the reference
  // implementation. For arrays of integers or structs.
  void SetBytes(const void* from, size_t bytes);

  // Makes the kernel's output the expected result of the next run, and fills the kernel's copy with
  // NaN again.
  void MakeExpected() {
    std::memcpy(host(Side::kReference), host(Side::kKernel), bytes());
    std::memset(host(Side::kKernel), 0xff, bytes());
  }
  // Overwrites the kernel's copy with the copy of the reference implementation.
  void GiveToKernel() { std::memcpy(host(Side::kKernel), host(Side::kReference), bytes()); }

  // Marks in `map` the elements of the kernel's copy that were set. Elements that hold NaN do not
  // count as set.
  void MarkFilled(simt::MemoryMap* map);
  // Upload sends the kernel's copy from host memory to the device, and Download fetches it back.
  // Both require a runtime.
  absl::Status Upload(DeviceStream& stream);
  absl::Status Download(DeviceStream& stream);

  size_t bytes() const { return elements_ * DTypeBytes(type_); }
  bool is_output() const { return is_output_; }
  // Marks memory that one kernel writes for another, and that the reference implementation does not
  // write. Compare then checks only the margins.
  void SetScratch() { is_scratch_ = true; }
  // Compares the two copies. An element of an output may differ by `slack` or by one unit in the
  // last place. At most two elements plus the fraction `max_apart` of all elements may differ at
  // all; if `max_apart` is 0, none may differ. All other memory, margins included, must have the
  // same bits. Returns DataLoss with the first difference.
  absl::Status Compare(double slack, double max_apart);

 private:
  static constexpr size_t kMargin = 64;
  size_t Offset(size_t index) const { return kMargin + first_byte_ + index * DTypeBytes(type_); }
  size_t AllBytes() const { return bytes() + first_byte_ + 2 * kMargin; }
  // Address of element `index` in host memory.
  std::byte* host(Side side, size_t index = 0) {
    return host_[side == Side::kReference].get() + Offset(index);
  }

  const DType type_;
  const size_t elements_, first_byte_;
  const bool is_output_;
  bool is_scratch_ = false;
  std::unique_ptr<std::byte[]> host_[2];
  DeviceRuntime* const runtime_;
  std::byte* device_ = nullptr;
};

// A tensor for a kernel and its reference implementation. Its rows are `stride` elements apart and
// may have any alignment.
struct ReferenceTensor {
  ReferenceMemory* memory;
  int rows, cols, stride;
  void* at(Side side) const { return memory->at(side); }
};

// Runs a kernel and its reference implementation side by side, with random memory contents.
class KernelTrial {
 public:
  // `tested` must outlive this object.
  KernelTrial(uint32_t seed, const TestedKernels* tested);

  const KernelTable& kernels() const { return tested_->kernels; }
  size_t shared_bytes() const { return tested_->shared_bytes(); }

  std::mt19937& random() { return random_; }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool Chance(int of) { return Pick(1, of) == 1; }
  float Normal(float deviation = 1) {
    return std::normal_distribution<float>(0, deviation)(random_);
  }

  ReferenceMemory* Memory(DType type, size_t elements, size_t first_byte = 0,
                          bool is_output = false);
  template <typename T>
  ReferenceMemory* Array(const std::vector<T>& values) {
    static_assert(sizeof(T) % 4 == 0);
    ReferenceMemory* memory = Memory(DType::kF32, values.size() * sizeof(T) / 4);
    memory->SetBytes(values.data(), values.size() * sizeof(T));
    return memory;
  }
  // Creates a bf16 tensor of random values. About half of these tensors have rows aligned to 16
  // bytes.
  ReferenceTensor Filled(int rows, int cols, float deviation = 1);
  ReferenceTensor Output(int rows, int cols);
  // Creates memory of 4-byte elements that only kernels use.
  ReferenceMemory* Scratch(size_t elements) {
    ReferenceMemory* const memory = Memory(DType::kF32, elements, 0, /*is_output=*/true);
    memory->SetScratch();
    return memory;
  }
  // Creates a tensor that is read and written.
  ReferenceTensor InOut(int rows, int cols);

  // Runs the kernel, and then its reference implementation.
  template <typename Params>
  void Run(const Kernel& kernel, const Params& of_kernel, const Params& of_reference) {
    RunKernel(kernel, LaunchOf(of_kernel), &of_kernel);
    RunReference(of_reference);
  }
  // Runs the kernel only.
  template <typename Params>
  void Run(const Kernel& kernel, const LaunchShape& shape, const Params& params) {
    RunKernel(kernel, shape, &params);
  }
  // Compares all memory with that of the reference implementation. `slack` and `max_apart` are the
  // tolerances of ReferenceMemory::Compare.
  void Check(absl::string_view what, double slack, double max_apart = 0.03);
  // The first error so far, or OK.
  const absl::Status& status() const { return status_; }

  // Options of the emulator.
  simt::SimtOptions options;

 private:
  ReferenceTensor Tensor(int rows, int cols, bool is_output);
  void RunKernel(const Kernel& kernel, const LaunchShape& shape, const void* params);

  const TestedKernels* const tested_;
  std::unique_ptr<DeviceStream> stream_;  // null if there is no runtime
  std::mt19937 random_;
  std::vector<std::unique_ptr<ReferenceMemory>> memory_;
  absl::Status status_;
};

// Random rows of a step over a paged pool: sequences with some earlier positions, padding rows
// between them, and block tables in random order. Block ids are large, as at the end of a pool
// whose offsets do not fit in 32 bits.
struct ReferenceStep {
  struct Sequence {
    int rows = 0, first_position = 0;
    std::vector<int32_t> blocks;  // ids counted from 0, without kFirstBlock
  };

  // Sequence s has `lengths[s]` positions in all. The last `rows[s]` of them are rows of the step.
  ReferenceStep(KernelTrial& trial, const KvLayout& layout, const std::vector<int>& lengths,
                const std::vector<int>& rows);

  StepRows at(Side side) const;
  LayerPages pages(Side side, int layer) const;
  // Fills K and V of one layer with random numbers, for every position that some row sees. A row
  // sees its own position and those before it, at most `window` positions (0: all).
  void FillPool(KernelTrial& trial, int layer, int window);

  static constexpr int32_t kFirstBlock = (1 << 24) + 12345;

  const KvLayout layout;
  std::vector<Sequence> sequences;
  std::vector<int32_t> sequence_of_row;
  ReferenceMemory* rows_memory;
  ReferenceMemory* sequences_memory;
  ReferenceMemory* blocks_memory;
  ReferenceMemory* pool;
};

}  // namespace baton
