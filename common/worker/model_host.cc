#include "common/worker/model_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/checkpoint.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/fake/fake_backend.h"

namespace baton {
namespace {

constexpr double kMiB = 1 << 20;
constexpr uint64_t kMostBlocks = 1 << 30;
// Of the emulated device, beside the KV pool; pages are taken as they are used.
constexpr uint64_t kEmulatedBytes = uint64_t{4} << 30;

absl::StatusOr<DType> KvType(const std::string& name, DType weights) {
  if (name == "auto") return weights;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name == DTypeName(type)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--kv-type is '", name, "'; it takes auto, f32, f16 or bf16"));
}

absl::Status RefuseNumerics(const ModelHost::Options& options) {
  if (options.numerics == "auto") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--numerics is '", options.numerics,
                                                 "'; with --backend=", options.backend,
                                                 " it takes auto alone"));
}

absl::Status OpenFake(const ModelHost::Options& options, ModelHost* host) {
  if (absl::Status status = RefuseNumerics(options); !status.ok()) return status;
  host->backend = CreateFakeBackend({});
  absl::StatusOr<ModelConfig> config = ReadModelConfig(options.model);
  if (!config.ok()) return config.status();
  host->model = Model::WithoutWeights(*config);
  return absl::OkStatus();
}

absl::Status OpenCpu(const ModelHost::Options& options, ModelHost* host) {
  // A checkpoint that can't be read has a more telling refusal ahead, in Model::Load.
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(options.model);
  const absl::StatusOr<CpuNumerics> numerics =
      ParseCpuNumerics(options.numerics, checkpoint.ok() ? checkpoint->MatrixType() : DType::kBF16);
  if (!numerics.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--numerics: ", numerics.status().message()));
  }
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCpuBackend({.threads = options.threads, .numerics = *numerics});
  if (!backend.ok()) return backend.status();
  host->backend = *std::move(backend);
  return absl::OkStatus();
}

absl::Status OpenCuda(const ModelHost::Options& options, ModelHost* host) {
  if (absl::Status status = RefuseNumerics(options); !status.ok()) return status;
  absl::StatusOr<OpenedDevice> device = options.backend == "cuda"
                                            ? OpenCudaDevice(0)
                                            : OpenEmulatedDevice(kEmulatedBytes + options.kv_bytes);
  if (!device.ok()) {
    return absl::Status(device.status().code(), absl::StrCat("--backend=", options.backend, ": ",
                                                             device.status().message()));
  }
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCudaBackend({.runtime = device->runtime.get(),
                         .kernels = device->kernels,
                         .name = device->name,
                         .graphs = options.cuda_graphs});
  if (!backend.ok()) return backend.status();
  host->device = *std::move(device);
  host->backend = *std::move(backend);
  return absl::OkStatus();
}

absl::Status OpenBackendAndModel(const ModelHost::Options& options, ModelHost* host) {
  if (options.backend == "fake") return OpenFake(options, host);
  absl::Status opened;
  if (options.backend == "cpu") {
    opened = OpenCpu(options, host);
  } else if (options.backend == "cuda" || options.backend == "cuda-emulated") {
    opened = OpenCuda(options, host);
  } else {
    opened = absl::InvalidArgumentError(absl::StrCat(
        "--backend is '", options.backend, "'; it takes cpu, cuda, cuda-emulated or fake"));
  }
  if (!opened.ok()) return opened;
  absl::StatusOr<std::unique_ptr<const Model>> model =
      Model::Load(options.model, host->backend.get());
  if (!model.ok()) return model.status();
  host->model = *std::move(model);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelHost> ModelHost::Open(const Options& options) {
  if (options.model.empty())
    return absl::InvalidArgumentError("--model is empty; it takes a folder");
  if (options.block_tokens < 1 || options.block_tokens > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("--block-tokens is ", options.block_tokens, "; it takes 1 to 1024"));
  }
  if (options.threads < 0 || options.threads > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads is ", options.threads, "; it takes 0 (all) to 1024"));
  }
  ModelHost host;
  host.options = options;
  if (absl::Status status = OpenBackendAndModel(options, &host); !status.ok()) return status;
  // A device holds its weights as bf16, whatever they were.
  absl::StatusOr<DType> kv_type =
      KvType(options.kv_type, host.on_device() ? DType::kBF16 : host.model->weight_type());
  if (!kv_type.ok()) return kv_type.status();
  const ModelConfig& config = host.model->config();
  if (options.context < 0 || options.context > config.context) {
    return absl::InvalidArgumentError(absl::StrCat("--context is ", options.context,
                                                   "; the model's is ", config.context, " tokens"));
  }
  host.layout = host.model->LayoutFor(options.block_tokens, *kv_type);
  host.numerics_id = absl::StrCat(host.backend->numerics_id(), "/kv-", DTypeName(*kv_type));
  const uint64_t blocks = options.kv_bytes / host.layout.BlockBytes();
  if (blocks > kMostBlocks) {
    return absl::InvalidArgumentError(absl::StrCat("--kv-bytes=", options.kv_bytes, " are ", blocks,
                                                   " blocks of ", host.layout.BlockBytes(),
                                                   " bytes; a pool has at most ", kMostBlocks));
  }
  host.blocks = static_cast<int>(blocks);
  host.context = options.context == 0 ? config.context : options.context;
  // One sequence of the longest kind always fits: so the oldest one can always go on.
  const int needed = host.layout.BlocksFor(host.context);
  if (host.blocks < needed) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "--kv-bytes=%d hold %d blocks of %d bytes (%d tokens each), and one sequence of %d tokens "
        "needs %d blocks, "
        "%d bytes: give more, or a shorter --context",
        options.kv_bytes, host.blocks, host.layout.BlockBytes(), options.block_tokens, host.context,
        needed, needed * host.layout.BlockBytes()));
  }
  return host;
}

std::string ModelHost::Describe() const {
  return absl::StrFormat(
      "%s on %s, weights %.1f MiB; KV %d blocks x %d tokens x %d bytes = %.1f MiB, %d tokens in "
      "all, "
      "context %d; numerics %s",
      model->config().architecture, backend->Describe(), model->weight_bytes() / kMiB, blocks,
      layout.block_tokens, layout.BlockBytes(), blocks * layout.BlockBytes() / kMiB,
      blocks * layout.block_tokens, context, numerics_id);
}

}  // namespace baton
