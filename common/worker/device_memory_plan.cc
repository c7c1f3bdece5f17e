#include "common/worker/device_memory_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/forward_pass.h"
#include "common/model/model.h"
#include "kernels/cuda/step_memory.h"
#include "kv_transfer/kv_meta.h"

namespace baton {
namespace {

constexpr char kShareFlag[] = "--gpu-memory-utilization";
constexpr char kKvFlag[] = "--kv-bytes";
constexpr uint64_t kMaxBlocks = 1 << 30;

std::string Gib(uint64_t bytes) { return absl::StrFormat("%.3f GiB", bytes / 0x1p30); }

// Returns the bytes that `allocations` take on the device, which rounds each of them up.
uint64_t Sum(const DeviceRuntime& device, const std::vector<size_t>& allocations) {
  uint64_t sum = 0;
  for (const size_t bytes : allocations) {
    if (bytes > 0) sum += device.AllocationBytes(bytes);
  }
  return sum;
}

std::vector<size_t> Weights(const ModelConfig& config) {
  std::vector<size_t> allocations;
  for (const TensorShape& tensor : Model::TensorsOf(config)) {
    for (const int64_t rows : tensor.weight_rows) {
      allocations.push_back(rows * tensor.cols * DTypeBytes(DType::kBF16));
    }
  }
  return allocations;
}

std::vector<size_t> Activations(const ModelConfig& config, int rows) {
  std::vector<size_t> allocations;
  for (const int cols : ForwardPass::ActivationCols(config)) {
    allocations.push_back(ActivationBytes(rows, cols));
  }
  return allocations;
}

// Returns all parts of the plan except the KV pool. The parts that a flag can make smaller are
// ordered from the usually largest to the smallest, because an error names their flags in this
// order.
std::vector<DeviceMemoryPlan::Part> PartsOf(const DeviceMemoryPlan::Options& options,
                                            const DeviceRuntime& device) {
  const StepLimits limits = options.max.LimitsFor(options.config, options.layout);
  const StepMemory step = StepMemory::For(limits, device.info().shared_bytes);
  const std::string rows = absl::StrCat("of ", limits.rows, " rows");
  std::vector<DeviceMemoryPlan::Part> parts = {
      {"weights", Sum(device, Weights(options.config)), "", "weights_bytes"},
      {absl::StrCat("activations ", rows), Sum(device, Activations(options.config, limits.rows)),
       "--chunk-tokens", "activations_bytes"},
      {"partial results of attention", Sum(device, step.Attention()), "--context",
       "attention_bytes"},
      {absl::StrCat("logits of ", limits.logit_rows, " rows"), Sum(device, step.Logits()),
       options.batch_flag, "logits_bytes"},
      {absl::StrCat("sampling of ", step.sample_rows, " tokens"), Sum(device, step.Samples()),
       options.batch_flag, "samples_bytes"},
      {"uploads of a step", Sum(device, step.Uploads()), "--context", "uploads_bytes"},
      {"workspace of GEMMs", Sum(device, {device.info().workspace_bytes}), "", "gemms_bytes"},
      {"graphs and kernels", device.info().driver_bytes, "", "driver_bytes"}};
  std::erase_if(parts, [](const DeviceMemoryPlan::Part& part) { return part.bytes == 0; });
  return parts;
}

// Returns the largest number of blocks whose pool fits into `room` bytes, or -1 if not even an
// empty pool fits.
int64_t MaxBlocks(const KvLayout& layout, uint64_t room, const DeviceRuntime& device) {
  const auto fits = [&](int64_t blocks) {
    return device.AllocationBytes(KvMeta::PoolBytes(layout, blocks), true) <= room;
  };
  if (!fits(0)) return -1;
  int64_t low = 0, high = std::min(room / layout.BlockBytes(), kMaxBlocks);
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

uint64_t DeviceMemoryPlan::together() const {
  uint64_t sum = 0;
  for (const Part& part : parts) sum += part.bytes;
  return sum;
}

absl::StatusOr<DeviceMemoryPlan> DeviceMemoryPlan::Make(const Options& options,
                                                        DeviceRuntime* device) {
  if (!(options.share > 0 && options.share <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kShareFlag, " is ", options.share, "; it takes a number above 0, up to 1"));
  }
  const KvLayout& layout = options.layout;
  ASSIGN_OR_RETURN(const auto free, device->FreeBytes());
  DeviceMemoryPlan plan;
  plan.device = device->info().name;
  plan.total_bytes = device->info().total_bytes;
  plan.free_bytes = free;
  plan.share = options.share;
  const auto share = static_cast<uint64_t>(options.share * static_cast<double>(plan.total_bytes));
  const uint64_t context = device->info().context_bytes;
  plan.usable_bytes = std::min(share > context ? share - context : 0, plan.free_bytes);
  plan.parts = PartsOf(options, *device);
  const uint64_t others = plan.together();
  const uint64_t room = plan.usable_bytes > others ? plan.usable_bytes - others : 0;
  const int64_t max = MaxBlocks(layout, room, *device);
  const int needed = layout.BlocksFor(options.context);
  const uint64_t asked =
      options.kv_bytes ? *options.kv_bytes / layout.BlockBytes() : std::max<int64_t>(max, needed);
  if (asked > kMaxBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.kv_bytes ? kKvFlag : "--context", "=",
                     options.kv_bytes.value_or(options.context), " are ", asked, " blocks of ",
                     layout.BlockBytes(), " bytes; a pool has at most ", kMaxBlocks));
  }
  plan.blocks = static_cast<int>(std::min<uint64_t>(asked, kMaxBlocks));
  plan.parts.push_back(
      {absl::StrFormat("KV pool of %d blocks of %d bytes", plan.blocks, layout.BlockBytes()),
       device->AllocationBytes(KvMeta::PoolBytes(layout, plan.blocks), true),
       options.kv_bytes ? kKvFlag : "--context", "kv_pool_bytes"});
  const uint64_t together = plan.together();
  if (together <= plan.usable_bytes) return plan;

  std::vector<std::string> sum, lower;
  uint64_t fixed = 0;  // bytes that no flag makes smaller
  for (const Part& part : plan.parts) {
    if (part.flag.empty()) fixed += part.bytes;
    sum.push_back(absl::StrCat(part.name, " ", Gib(part.bytes)));
    if (!part.flag.empty() && std::find(lower.begin(), lower.end(), part.flag) == lower.end()) {
      lower.push_back(part.flag);
    }
  }
  std::string why = absl::StrFormat(
      "this worker does not fit on %s: %s; together %s, and %s may be taken (%s=%g of %s, of which "
      "%s are free): %d bytes are missing",
      plan.device, absl::StrJoin(sum, " + "), Gib(together), Gib(plan.usable_bytes), kShareFlag,
      plan.share, Gib(plan.total_bytes), Gib(plan.free_bytes), together - plan.usable_bytes);
  std::vector<std::string> advice;
  if (fixed > plan.usable_bytes) {
    advice.push_back(absl::StrCat("the part that no flag can reduce takes ", Gib(fixed),
                                  ": take a larger device"));
  } else {
    advice.push_back(absl::StrCat("lower ", absl::StrJoin(lower, ", ")));
    if (options.kv_bytes && max >= needed) {
      absl::StrAppend(&advice[0], " (", kKvFlag, "=", max * layout.BlockBytes(), " fits)");
    } else if (!options.kv_bytes && max >= 1) {
      absl::StrAppend(&advice[0], " (--context=", max * layout.block_tokens, " fits)");
    }
  }
  if (plan.share < 1 && std::max(plan.usable_bytes + 1, fixed) <= plan.free_bytes) {
    advice.push_back(absl::StrCat("raise ", kShareFlag));
  }
  absl::StrAppend(&why, "; ", absl::StrJoin(advice, ", or "));
  return absl::ResourceExhaustedError(why);
}

std::string DeviceMemoryPlan::Table() const {
  std::string table =
      absl::StrFormat("memory of %s: %s, %s free, %s may be taken (%s=%g)\n", device,
                      Gib(total_bytes), Gib(free_bytes), Gib(usable_bytes), kShareFlag, share);
  size_t width = 0;
  for (const Part& part : parts) width = std::max(width, part.name.size());
  const auto line = [&](absl::string_view name, uint64_t bytes) {
    absl::StrAppendFormat(&table, "  %-*s %10.3f GiB\n", static_cast<int>(width), name,
                          bytes / 0x1p30);
  };
  for (const Part& part : parts) line(part.name, part.bytes);
  line("together", together());
  return table;
}

std::vector<LogField> DeviceMemoryPlan::LogFields() const {
  std::vector<LogField> fields = {{"device", device},
                                  {"total_bytes", total_bytes},
                                  {"free_bytes", free_bytes},
                                  {"usable_bytes", usable_bytes},
                                  {"gpu_memory_utilization", share},
                                  {"kv_blocks", blocks}};
  for (const Part& part : parts) fields.push_back({part.field, part.bytes});
  fields.push_back({"together_bytes", together()});
  return fields;
}

}  // namespace baton
