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
#include "kernels/backend/dtype.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/launches.h"
#include "kernels/cuda/testing/twins.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kernels/device/runtime/kernel.h"
#include "kernels/device/simt/memory_map.h"
#include "kernels/device/simt/run_grid.h"

namespace baton {

// The kernels that a test is about, and what runs them.
struct TestedKernels {
  KernelTable kernels;
  // Runs them over its memory; none: the emulator over memory of the host, by the trial's options.
  std::shared_ptr<DeviceRuntime> runtime;

  // That a block may have.
  size_t shared_bytes() const {
    return runtime == nullptr ? SIZE_MAX : runtime->info().shared_bytes;
  }
};

// Whose memory: the kernel's or its twin's.
enum class Side { kKernel, kTwin };

// Memory that a kernel and its twin have a copy each of, alike when made. NaN wherever it was not
// filled.
class TwinMemory {
 public:
  // With a runtime the kernel's is on its device, and the host has what is to go there or came
  // back.
  TwinMemory(DType type, size_t elements, size_t first_byte, bool is_output,
             DeviceRuntime* runtime = nullptr);
  ~TwinMemory();

  // Element `index` where the side's code finds it.
  std::byte* at(Side side, size_t index = 0) {
    std::byte* const begin =
        side == Side::kKernel && device_ != nullptr ? device_ : host_[side == Side::kTwin].get();
    return begin + Offset(index);
  }
  // In both.
  void Set(size_t index, float value);
  // As `from` has it, on both sides: for arrays of integers or structs.
  void SetBytes(const void* from, size_t bytes);

  // Copies what the kernel wrote to where its twin writes, and fills the kernel's memory with NaN
  // again.
  void MakeExpected() {
    std::memcpy(host(Side::kTwin), host(Side::kKernel), bytes());
    std::memset(host(Side::kKernel), 0xff, bytes());
  }
  // The kernel's becomes what the twin's is.
  void GiveToKernel() { std::memcpy(host(Side::kKernel), host(Side::kTwin), bytes()); }

  // Tells the checker which elements have been given a value.
  void MarkFilled(simt::MemoryMap* map);
  // To and from the device, where there is one.
  absl::Status Upload(DeviceStream& stream);
  absl::Status Download(DeviceStream& stream);

  size_t bytes() const { return elements_ * DTypeBytes(type_); }
  bool is_output() const { return is_output_; }
  // What a kernel keeps for another, which the twin has no equal of: Compare looks at the margins.
  void SetScratch() { is_scratch_ = true; }
  // Outputs: each element within `slack` or one unit in the last place of the twin's, and all but
  // two and a part `most_apart` of them the same; all of them where that is 0. Everything else,
  // margins too: the same bits.
  // DataLoss tells the first that differs.
  absl::Status Compare(double slack, double most_apart);

 private:
  static constexpr size_t kMargin = 64;
  size_t Offset(size_t index) const { return kMargin + first_byte_ + index * DTypeBytes(type_); }
  size_t AllBytes() const { return bytes() + first_byte_ + 2 * kMargin; }
  // Element `index` in memory of the host.
  std::byte* host(Side side, size_t index = 0) {
    return host_[side == Side::kTwin].get() + Offset(index);
  }

  const DType type_;
  const size_t elements_, first_byte_;
  const bool is_output_;
  bool is_scratch_ = false;
  std::unique_ptr<std::byte[]> host_[2];
  DeviceRuntime* const runtime_;
  std::byte* device_ = nullptr;
};

// A tensor on both sides: rows `stride` elements apart, at any alignment.
struct TwinTensor {
  TwinMemory* memory;
  int rows, cols, stride;
  void* at(Side side) const { return memory->at(side); }
};

// One kernel and its twin side by side, over memory of random contents.
class KernelTrial {
 public:
  // `tested` must outlive this.
  KernelTrial(uint32_t seed, const TestedKernels* tested);

  const KernelTable& kernels() const { return tested_->kernels; }
  size_t shared_bytes() const { return tested_->shared_bytes(); }

  std::mt19937& random() { return random_; }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool Chance(int of) { return Pick(1, of) == 1; }
  float Normal(float deviation = 1) {
    return std::normal_distribution<float>(0, deviation)(random_);
  }

  TwinMemory* Memory(DType type, size_t elements, size_t first_byte = 0, bool is_output = false);
  template <typename T>
  TwinMemory* Array(const std::vector<T>& values) {
    static_assert(sizeof(T) % 4 == 0);
    TwinMemory* memory = Memory(DType::kF32, values.size() * sizeof(T) / 4);
    memory->SetBytes(values.data(), values.size() * sizeof(T));
    return memory;
  }
  // bf16; every second one aligned to 16 bytes in each row.
  TwinTensor Filled(int rows, int cols, float deviation = 1);
  TwinTensor Output(int rows, int cols);
  // Of 4 bytes each, for kernels alone.
  TwinMemory* Scratch(size_t elements) {
    TwinMemory* const memory = Memory(DType::kF32, elements, 0, /*is_output=*/true);
    memory->SetScratch();
    return memory;
  }
  // A tensor that is read and written.
  TwinTensor InOut(int rows, int cols);

  // Runs the kernel, and its twin.
  template <typename Params>
  void Run(const Kernel& kernel, const Params& of_kernel, const Params& of_twin) {
    RunKernel(kernel, LaunchOf(of_kernel), &of_kernel);
    RunTwin(of_twin);
  }
  // The kernel alone.
  template <typename Params>
  void Run(const Kernel& kernel, const LaunchShape& shape, const Params& params) {
    RunKernel(kernel, shape, &params);
  }
  // Compares all memory (TwinMemory::Compare).
  void Check(absl::string_view what, double slack, double most_apart = 0.03);
  // The first thing that went wrong.
  const absl::Status& status() const { return status_; }

  // Of the emulator.
  simt::SimtOptions options;

 private:
  TwinTensor Tensor(int rows, int cols, bool is_output);
  void RunKernel(const Kernel& kernel, const LaunchShape& shape, const void* params);

  const TestedKernels* const tested_;
  std::unique_ptr<DeviceStream> stream_;  // where there is a runtime
  std::mt19937 random_;
  std::vector<std::unique_ptr<TwinMemory>> memory_;
  absl::Status status_;
};

// The rows of a step over a paged pool, at random: sequences with some positions behind them, rows
// that are nobody's between, block tables in no order. The pool is the end of one that is too large
// for offsets of 32 bits: blocks are counted from far before it.
struct TwinStep {
  struct Sequence {
    int rows = 0, first_position = 0;
    std::vector<int32_t> blocks;  // counted from 0
  };

  // `lengths[s]`: positions of sequence s in all, of which the last `rows[s]` are the step's.
  TwinStep(KernelTrial& trial, const KvLayout& layout, const std::vector<int>& lengths,
           const std::vector<int>& rows);

  StepRows at(Side side) const;
  LayerPages pages(Side side, int layer) const;
  // Numbers in K and V of one layer for every position that some row sees, its own included,
  // through a window of that size (0: of any).
  void FillPool(KernelTrial& trial, int layer, int window);

  static constexpr int32_t kFirstBlock = (1 << 24) + 12345;

  const KvLayout layout;
  std::vector<Sequence> sequences;
  std::vector<int32_t> sequence_of_row;
  TwinMemory* rows_memory;
  TwinMemory* sequences_memory;
  TwinMemory* blocks_memory;
  TwinMemory* pool;
};

}  // namespace baton
