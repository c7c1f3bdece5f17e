#include "kernels/cuda/testing/kernel_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/formats/element.h"

namespace baton {
namespace {

// Returns the approximate distance between neighbouring values of the type near `value`.
double UnitInLastPlace(DType type, double value) {
  const int digits = type == DType::kF32 ? 24 : type == DType::kF16 ? 11 : 8;
  const int min = type == DType::kF16 ? -14 : -126;
  int exponent;
  std::frexp(value, &exponent);  // value = f * 2^exponent, f in [0.5, 1)
  return std::ldexp(1.0, std::max(exponent - 1, min) + 1 - digits);
}

}  // namespace

ReferenceMemory::ReferenceMemory(DType type, size_t elements, size_t first_byte, bool is_output,
                                 DeviceRuntime* runtime)
    : type_(type),
      elements_(elements),
      first_byte_(first_byte),
      is_output_(is_output),
      runtime_(runtime) {
  for (auto& memory : host_) {
    // `new` aligns memory to 16 bytes, so `first_byte` sets the alignment.
    memory = std::make_unique<std::byte[]>(AllBytes());
    std::memset(memory.get(), 0xff, AllBytes());
  }
  if (runtime != nullptr) device_ = runtime->Allocate(AllBytes()).value();
}

ReferenceMemory::~ReferenceMemory() {
  if (runtime_ != nullptr) runtime_->Free(device_);
}

void ReferenceMemory::Set(size_t index, float value) {
  for (const Side side : {Side::kKernel, Side::kReference}) {
    WriteElement(type_, value, host(side, index));
  }
}

void ReferenceMemory::SetBytes(const void* from, size_t bytes) {
  for (const Side side : {Side::kKernel, Side::kReference}) std::memcpy(host(side), from, bytes);
}

absl::Status ReferenceMemory::Upload(DeviceStream& stream) {
  return runtime_->Copy(device_, host_[0].get(), AllBytes(), stream);
}

absl::Status ReferenceMemory::Download(DeviceStream& stream) {
  return runtime_->Copy(host_[0].get(), device_, AllBytes(), stream);
}

void ReferenceMemory::MarkFilled(simt::MemoryMap* map) {
  static constexpr std::byte kNothing[] = {std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                           std::byte{0xff}};
  for (size_t i = 0; i < elements_; ++i) {
    const std::byte* const element = host(Side::kKernel, i);
    if (std::memcmp(element, kNothing, DTypeBytes(type_)) != 0) {
      map->MarkWritten(element, DTypeBytes(type_));
    }
  }
}

absl::Status ReferenceMemory::Compare(double slack, double max_apart) {
  const auto begin = [&](int side) { return host_[side].get(); };
  const size_t before = kMargin + first_byte_, after = before + bytes();
  if (std::memcmp(begin(0), begin(1), before) != 0 ||
      std::memcmp(begin(0) + after, begin(1) + after, kMargin) != 0) {
    return absl::DataLossError("something was written outside of it");
  }
  if (is_scratch_) return absl::OkStatus();
  if (!is_output_) {
    return std::memcmp(host(Side::kKernel), host(Side::kReference), bytes()) == 0
               ? absl::OkStatus()
               : absl::DataLossError("an input was written to");
  }
  size_t apart = 0;
  for (size_t i = 0; i < elements_; ++i) {
    const std::byte *got = host(Side::kKernel, i), *expected = host(Side::kReference, i);
    if (std::memcmp(got, expected, DTypeBytes(type_)) == 0) continue;
    ++apart;
    const double a = ReadElement(type_, got), b = ReadElement(type_, expected);
    const double max = std::max(slack, 1.01 * UnitInLastPlace(type_, b));
    if (!(std::fabs(a - b) <= max)) {
      return absl::DataLossError(
          absl::StrCat("element ", i, " is ", a, ", its reference's ", b, " +- ", max));
    }
  }
  if (apart > (max_apart > 0 ? 2 + max_apart * elements_ : 0)) {
    return absl::DataLossError(
        absl::StrCat(apart, " of ", elements_, " elements are not those of the reference"));
  }
  return absl::OkStatus();
}

KernelTrial::KernelTrial(uint32_t seed, const TestedKernels* tested)
    : tested_(tested), random_(seed) {
  if (tested->runtime == nullptr) return;
  // A copy stream takes no workspace for GEMMs, which these kernels do not need.
  stream_ = tested->runtime->CreateStream(StreamKind::kCopy).value();
}

ReferenceMemory* KernelTrial::Memory(DType type, size_t elements, size_t first_byte,
                                     bool is_output) {
  memory_.push_back(std::make_unique<ReferenceMemory>(type, elements, first_byte, is_output,
                                                      tested_->runtime.get()));
  return memory_.back().get();
}

ReferenceTensor KernelTrial::Tensor(int rows, int cols, bool is_output) {
  const bool aligned = Chance(2);
  const int stride = aligned ? (cols + 7) / 8 * 8 + 8 * Pick(0, 1) : cols + Pick(0, 5);
  // The memory ends with the last row's last element, so the margin begins right after it.
  const size_t elements = static_cast<size_t>(rows - 1) * stride + cols;
  return {Memory(DType::kBF16, elements, aligned ? 0 : 2 * Pick(0, 7), is_output), rows, cols,
          stride};
}

ReferenceTensor KernelTrial::Output(int rows, int cols) { return Tensor(rows, cols, true); }

ReferenceTensor KernelTrial::Filled(int rows, int cols, float deviation) {
  const ReferenceTensor tensor = Tensor(rows, cols, false);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      tensor.memory->Set(static_cast<size_t>(r) * tensor.stride + c, Normal(deviation));
    }
  }
  return tensor;
}

ReferenceTensor KernelTrial::InOut(int rows, int cols) {
  const ReferenceTensor tensor = Tensor(rows, cols, true);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      tensor.memory->Set(static_cast<size_t>(r) * tensor.stride + c, Normal());
    }
  }
  return tensor;
}

void KernelTrial::RunKernel(const Kernel& kernel, const LaunchShape& shape, const void* params) {
  if (tested_->runtime != nullptr) {
    for (const auto& memory : memory_) status_.Update(memory->Upload(*stream_));
    status_.Update(tested_->runtime->Launch(kernel, shape, params, *stream_));
    for (const auto& memory : memory_) status_.Update(memory->Download(*stream_));
    return;
  }
  simt::MemoryMap map;
  for (const auto& memory : memory_) {
    if (memory->bytes() > 0) {
      map.Add(memory->at(Side::kKernel), memory->bytes(), !memory->is_output());
      // `map` starts with all bytes of an output as not written. If the kernel also reads the
      // output, the test has set some of its elements. MarkFilled marks these elements as written.
      if (memory->is_output()) memory->MarkFilled(&map);
    }
  }
  options.memory = &map;
  status_.Update(simt::RunGrid(kernel, shape, params, options));
}

void KernelTrial::Check(absl::string_view what, double slack, double max_apart) {
  for (size_t i = 0; i < memory_.size() && status_.ok(); ++i) {
    const absl::Status same = memory_[i]->Compare(slack, max_apart);
    if (!same.ok()) {
      status_ = absl::Status(same.code(), absl::StrCat(what, ", memory ", i, ": ", same.message()));
    }
  }
}

ReferenceStep::ReferenceStep(KernelTrial& trial, const KvLayout& kv_layout,
                             const std::vector<int>& lengths, const std::vector<int>& rows)
    : layout(kv_layout) {
  int blocks = 0;
  for (const int length : lengths) blocks += layout.BlocksFor(length);
  std::vector<int32_t> order(blocks + 2);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), trial.random());
  std::vector<DeviceSequence> places;
  std::vector<int32_t> tables;
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int nobody = trial.Pick(-2, 1); nobody > 0; --nobody) sequence_of_row.push_back(-1);
    const int first_position = lengths[s] - rows[s];
    places.push_back({static_cast<int32_t>(sequence_of_row.size()), rows[s], first_position,
                      static_cast<int32_t>(tables.size())});
    sequence_of_row.insert(sequence_of_row.end(), rows[s], static_cast<int32_t>(s));
    Sequence sequence = {rows[s], first_position, {}};
    for (int b = layout.BlocksFor(lengths[s]); b > 0; --b) {
      sequence.blocks.push_back(order.back());
      order.pop_back();
    }
    for (const int32_t block : sequence.blocks) tables.push_back(kFirstBlock + block);
    sequences.push_back(std::move(sequence));
  }
  rows_memory = trial.Array(sequence_of_row);
  sequences_memory = trial.Array(places);
  blocks_memory = trial.Array(tables);
  pool = trial.Memory(layout.type, (blocks + 2) * layout.BlockBytes() / DTypeBytes(layout.type), 0,
                      true);
}

StepRows ReferenceStep::at(Side side) const {
  return {.sequence_of_row = reinterpret_cast<const int32_t*>(rows_memory->at(side)),
          .sequences = reinterpret_cast<const DeviceSequence*>(sequences_memory->at(side)),
          .blocks = reinterpret_cast<const int32_t*>(blocks_memory->at(side)),
          .rows = static_cast<int32_t>(sequence_of_row.size())};
}

LayerPages ReferenceStep::pages(Side side, int layer) const {
  const uintptr_t before = kFirstBlock * uintptr_t{layout.BlockBytes()};
  return {.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(pool->at(side)) - before),
          .block_bytes = static_cast<int64_t>(layout.BlockBytes()),
          .key_offset = static_cast<int64_t>(layout.HeadOffset(0, layer, KvLayout::kKeys, 0)),
          .value_offset = static_cast<int64_t>(layout.HeadOffset(0, layer, KvLayout::kValues, 0)),
          .head_bytes = static_cast<int64_t>(layout.HeadBytes()),
          .block_tokens = layout.block_tokens,
          .kv_heads = layout.kv_heads,
          .head_dim = layout.head_dim,
          .type = layout.type};
}

void ReferenceStep::FillPool(KernelTrial& trial, int layer, int window) {
  for (const Sequence& sequence : sequences) {
    const int end = sequence.first_position + sequence.rows;
    const int first = window > 0 ? std::max(0, sequence.first_position + 1 - window) : 0;
    for (int position = first; position < end; ++position) {
      for (const auto plane : {KvLayout::kKeys, KvLayout::kValues}) {
        for (int head = 0; head < layout.kv_heads; ++head) {
          const size_t slot = (layout.HeadOffset(sequence.blocks[position / layout.block_tokens],
                                                 layer, plane, head) +
                               position % layout.block_tokens * layout.TokenBytes()) /
                              DTypeBytes(layout.type);
          for (int i = 0; i < layout.head_dim; ++i) pool->Set(slot + i, trial.Normal());
        }
      }
    }
  }
}

}  // namespace baton
