#include "common/worker/model_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/usable_memory.h"
#include "common/model/random_weights.h"
#include "common/model/source/checkpoint.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/usable_cores.h"
#include "kernels/cuda/cuda_backend.h"

namespace baton {
namespace {

constexpr double kMiB = 1 << 20;
// Default sizes of a KV block, in tokens. Large blocks are better on a device: kernels read longer
// runs of memory and look up fewer blocks. On the CPU they gain nothing and waste memory: on
// average half a block of every sequence is empty.
constexpr int kDeviceBlockTokens = 64, kHostBlockTokens = 16;

absl::StatusOr<DType> KvType(const std::string& name, DType weights) {
  if (name == "auto") return weights;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name == DTypeName(type)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--kv-type is '", name, "'; it takes auto, f32, f16 or bf16"));
}

bool ComputesOnCpu(const BackendFactory& backend) {
  return !backend.on_device() && backend.reads_weights();
}

absl::Status RefuseNumerics(const ModelHost::Options& options) {
  if (options.numerics == "auto") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--numerics is '", options.numerics,
                                                 "'; with --backend=", options.backend.name,
                                                 " it takes only auto"));
}

absl::Status OpenWeightless(const ModelHost::Options& options, ModelHost* host) {
  RETURN_IF_ERROR(RefuseNumerics(options));
  if (options.random_weights) {
    return absl::InvalidArgumentError(
        absl::StrCat("--random-weights with --backend=", options.backend.name,
                     ", which has no weights; leave --random-weights out"));
  }
  host->backend = options.backend.make_weightless();
  return absl::OkStatus();
}

absl::Status OpenCpu(const ModelHost::Options& options, const ModelFolder& folder,
                     ModelHost* host) {
  const WeightFormat weights =
      folder.checkpoint ? folder.checkpoint->MatrixFormat() : WeightFormat::kBF16;
  const absl::StatusOr<CpuNumerics> numerics = ParseCpuNumerics(options.numerics, weights);
  if (!numerics.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--numerics: ", numerics.status().message()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                   CreateCpuBackend({.threads = options.threads, .numerics = *numerics}));
  host->backend = std::move(backend);
  return absl::OkStatus();
}

absl::Status OpenDevice(const ModelHost::Options& options, ModelHost* host) {
  RETURN_IF_ERROR(RefuseNumerics(options));
  absl::StatusOr<OpenedDevice> device = options.backend.open_device(options.gpu);
  if (!device.ok()) {
    return absl::Status(device.status().code(),
                        absl::StrCat("--backend=", options.backend.name,
                                     options.gpu == 0 ? "" : absl::StrCat(", --gpu=", options.gpu),
                                     ": ", device.status().message()));
  }
  host->device = *std::move(device);
  if (options.on_device_failure) host->device.runtime->OnFailure(options.on_device_failure);
  return absl::OkStatus();
}

// Creates the CUDA backend. Call it once the memory plan has shown that all fits.
absl::Status OpenCuda(ModelHost* host) {
  const OpenedDevice& device = host->device;
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCudaBackend({.runtime = device.runtime.get(),
                         .kernels = device.kernels,
                         .name = device.name,
                         .graphs = host->options.cuda_graphs});
  if (!backend.ok()) {
    return absl::Status(
        backend.status().code(),
        absl::StrCat("--backend=", host->options.backend.name, ": ", backend.status().message()));
  }
  host->backend = *std::move(backend);
  return absl::OkStatus();
}

absl::Status LoadModel(const ModelHost::Options& options, ModelFolder folder, ModelHost* host) {
  if (options.on_loading) options.on_loading();
  if (!options.backend.reads_weights()) {
    host->model = Model::WithoutWeights(folder.config);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<const Model> model,
                   options.random_weights
                       ? Model::WithRandomWeights(folder.config, *options.random_weights,
                                                  host->backend.get(), options.on_weights)
                       : Model::Load(std::move(folder), host->backend.get(), options.on_weights));
  host->model = std::move(model);
  return absl::OkStatus();
}

absl::Status CheckFlags(const ModelHost::Options& options) {
  if (options.model.empty())
    return absl::InvalidArgumentError("--model is empty; it takes a folder");
  if (options.block_tokens && (*options.block_tokens < 1 || *options.block_tokens > 1024)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--block-tokens is ", *options.block_tokens, "; it takes auto, or 1 to 1024"));
  }
  if (options.threads < 0 || options.threads > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads is ", options.threads, "; it takes 0 (all) to 1024"));
  }
  if (options.gpu < 0 || (options.gpu > 0 && !options.backend.on_device())) {
    return absl::InvalidArgumentError(
        options.gpu < 0
            ? absl::StrCat("--gpu is ", options.gpu, "; GPUs are numbered from 0")
            : absl::StrCat("--gpu=", options.gpu, " with --backend=", options.backend.name,
                           ", which uses no GPU; leave --gpu out"));
  }
  if (!(options.device_share > 0 && options.device_share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("--gpu-memory-utilization is ",
                                                   options.device_share,
                                                   "; it takes a number above 0, up to 1"));
  }
  if (!(options.memory_share > 0 && options.memory_share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("--memory-share is ", options.memory_share,
                                                   "; it takes a number above 0, up to 1"));
  }
  // Checks only that --numerics has a known name. A later check finds out if these numerics work
  // with the model's type of weights.
  if (ComputesOnCpu(options.backend)) {
    auto any = ParseCpuNumerics(options.numerics, WeightFormat::kBF16);
    if (!any.ok()) any = ParseCpuNumerics(options.numerics, WeightFormat::kQ8_0);
    if (!any.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--numerics: ", any.status().message()));
    }
  }
  return KvType(options.kv_type, DType::kBF16).status();
}

// Checks that the pool can hold one sequence of max length (`host.context` tokens). The oldest
// sequence can then always go on.
absl::Status CheckBlocks(const ModelHost& host) {
  const KvLayout& layout = host.layout;
  const int needed = layout.BlocksFor(host.context);
  if (host.blocks >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "--kv-bytes=%d hold %d blocks of %d bytes (%d tokens each), and one sequence of %d tokens "
      "needs %d blocks, %d bytes: give more, or a shorter --context",
      host.options.kv_bytes.value_or(0), host.blocks, layout.BlockBytes(), layout.block_tokens,
      host.context, needed, needed * layout.BlockBytes()));
}

// Returns the number of tokens that a pool has to hold if no context was requested.
int MinTokens(const ModelConfig& config) {
  return std::min(HostMemoryPlan::kMinTokens, config.context);
}

// Returns the plan of the device's memory. Sets in `host` the context length that the worker
// serves.
absl::StatusOr<DeviceMemoryPlan> PlanDevice(const ModelConfig& config, ModelHost* host) {
  const ModelHost::Options& options = host->options;
  const auto plan_for = [&](int context) {
    host->context = context;
    return DeviceMemoryPlan::Make({.config = config,
                                   .layout = host->layout,
                                   .max = host->max_step(),
                                   .context = context,
                                   .kv_bytes = options.kv_bytes,
                                   .share = options.device_share,
                                   .batch_flag = options.batch_flag},
                                  host->device.runtime.get());
  };
  const int block_tokens = host->layout.block_tokens, min = MinTokens(config);
  if (options.context > 0) return plan_for(options.context);
  if (options.kv_bytes) {
    const uint64_t tokens = *options.kv_bytes / host->layout.BlockBytes() * block_tokens;
    return plan_for(
        static_cast<int>(std::clamp<uint64_t>(tokens, min, static_cast<uint64_t>(config.context))));
  }
  absl::StatusOr<DeviceMemoryPlan> whole = plan_for(config.context);
  if (whole.ok() || !absl::IsResourceExhausted(whole.status())) return whole;
  // Searches for the longest context that fits. A search is needed because steps over longer
  // contexts need more memory.
  int low = (min + block_tokens - 1) / block_tokens, high = config.context / block_tokens;
  absl::StatusOr<DeviceMemoryPlan> longest = plan_for(std::min(low * block_tokens, config.context));
  RETURN_IF_ERROR(longest);
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (absl::StatusOr<DeviceMemoryPlan> plan = plan_for(middle * block_tokens); plan.ok()) {
      longest = std::move(plan);
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  host->context = std::min(low * block_tokens, config.context);
  return longest;
}

// Loads the model into host memory, and plans the memory of everything else in host memory.
absl::Status OpenOnHost(ModelFolder folder, int block_tokens, ModelHost* host) {
  const ModelConfig config = folder.config;
  const ModelHost::Options& options = host->options;
  const bool random = options.random_weights.has_value();
  HostMemoryPlan::Options plan = {
      .config = config,
      .max = options.max,
      .threads = ComputesOnCpu(options.backend)
                     ? (options.threads > 0 ? options.threads : cpu::UsableCores())
                     : 1,
      .max_sequences = options.max_sequences,
      .context = options.context,
      .kv_bytes = options.kv_bytes,
      .share = options.memory_share,
      .batch_flag = options.batch_flag};
  DType weights = RandomWeights::kType;
  if (random) {
    for (const TensorShape& tensor : Model::TensorsOf(config)) {
      plan.weight_bytes += DTypeBytes(weights) * tensor.elements();
    }
    plan.weights_shared = false;
  } else {
    // Here LoadModel only maps the files that hold the weights. PageInWeights reads them later.
    RETURN_IF_ERROR(LoadModel(options, std::move(folder), host));
    weights = host->model->weight_type();
    plan.weight_bytes = host->model->weight_bytes();
  }
  ASSIGN_OR_RETURN(const DType kv_type, KvType(options.kv_type, weights));
  host->layout = Model::LayoutOf(config, block_tokens, kv_type);
  plan.layout = host->layout;
  plan.usable = ReadUsableMemory(options.memory_root);
  // The files of a model in /dev/shm, or in an emptyDir in memory, already count as used memory.
  // The plan counts these weights too, so their bytes are added to the usable memory.
  if (!random) {
    plan.usable.bytes +=
        std::min<uint64_t>(host->model->weight_bytes_in_memory(), UINT64_MAX - plan.usable.bytes);
  }
  if (options.usable_bytes) {
    plan.usable = {.bytes = *options.usable_bytes,
                   .limit_bytes = *options.usable_bytes,
                   .limit = "--usable-memory"};
  }
  ASSIGN_OR_RETURN(HostMemoryPlan made, HostMemoryPlan::Make(plan));
  host->blocks = made.blocks;
  host->context = made.context;
  host->host_memory = std::move(made);
  if (options.on_host_plan) options.on_host_plan(*host->host_memory);
  return random ? LoadModel(options, std::move(folder), host) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelHost> ModelHost::Open(const Options& options) {
  RETURN_IF_ERROR(CheckFlags(options));
  ModelHost host;
  host.options = options;
  const bool on_device = options.backend.on_device();
  // The folder is opened before anything is loaded, so that a fault in it is reported early.
  ASSIGN_OR_RETURN(
      ModelFolder folder,
      ModelFolder::Open(options.model, !options.random_weights && options.backend.reads_weights()));
  for (const std::string& warning : folder.warnings) {
    Log(Severity::kWarning, "odd_tensors", {{"because", warning}});
  }
  const ModelConfig config = folder.config;
  absl::Status opened;
  if (on_device) {
    opened = OpenDevice(options, &host);
  } else if (ComputesOnCpu(options.backend)) {
    opened = OpenCpu(options, folder, &host);
  } else {
    opened = OpenWeightless(options, &host);
  }
  RETURN_IF_ERROR(opened);
  if (options.context < 0 || options.context == 1 || options.context > config.context) {
    return absl::InvalidArgumentError(absl::StrCat("--context is ", options.context,
                                                   "; it takes 2 to ", config.context,
                                                   ", the model's tokens, or 0 for the longest"));
  }
  const int block_tokens =
      options.block_tokens.value_or(on_device ? kDeviceBlockTokens : kHostBlockTokens);
  if (options.chunk_tokens % block_tokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--chunk-tokens is ", options.chunk_tokens,
                                                   "; it takes whole KV blocks, of ", block_tokens,
                                                   " tokens each (--block-tokens)"));
  }

  if (on_device) {
    // A device stores weights as bf16, whatever type the files have.
    ASSIGN_OR_RETURN(const DType kv_type, KvType(options.kv_type, DType::kBF16));
    host.layout = Model::LayoutOf(config, block_tokens, kv_type);
    ASSIGN_OR_RETURN(DeviceMemoryPlan plan, PlanDevice(config, &host));
    host.blocks = plan.blocks;
    host.device_memory = std::move(plan);
    RETURN_IF_ERROR(CheckBlocks(host));
    if (options.on_plan) options.on_plan(*host.device_memory);
    RETURN_IF_ERROR(OpenCuda(&host));
    RETURN_IF_ERROR(LoadModel(options, std::move(folder), &host));
  } else {
    RETURN_IF_ERROR(OpenOnHost(std::move(folder), block_tokens, &host));
  }
  host.numerics_id = absl::StrCat(host.backend->numerics_id(), "/kv-", DTypeName(host.layout.type));
  return host;
}

absl::Status ModelHost::PageInWeights() const { return model->PageIn(options.on_weights); }

StepSize ModelHost::max_step() const { return {options.max.rows, options.max.sequences, context}; }

std::string ModelHost::Describe() const {
  return absl::StrFormat(
      "%s on %s, %s %.1f MiB; KV %d blocks x %d tokens x %d bytes = %.1f MiB, %d tokens in all, "
      "context %d; numerics %s",
      model->config().architecture, backend->Describe(),
      options.random_weights ? absl::StrCat("random weights of seed ", *options.random_weights, ",")
                             : "weights",
      model->weight_bytes() / kMiB, blocks, layout.block_tokens,
      layout.BlockBytes() / layout.block_tokens, blocks * layout.BlockBytes() / kMiB,
      blocks * layout.block_tokens, context, numerics_id);
}

}  // namespace baton
