#include "tests/cluster/truth.h"

#include <utility>

#include "common/model/checkpoint.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/open_emulated_device.h"

namespace baton {
namespace {

constexpr int kBlockTokens = 16;
constexpr int kChunkTokens = 512;
constexpr size_t kDeviceBytes = size_t{1} << 30;

}  // namespace

absl::StatusOr<std::unique_ptr<Truth>> Truth::Load(const std::string& folder,
                                                   absl::string_view numerics,
                                                   std::optional<DType> kv_type) {
  auto truth = std::unique_ptr<Truth>(new Truth);
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(folder);
  if (!checkpoint.ok()) return checkpoint.status();
  const absl::StatusOr<CpuNumerics> order = ParseCpuNumerics(numerics, checkpoint->MatrixType());
  if (!order.ok()) return order.status();
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCpuBackend({.threads = 2, .numerics = *order});
  if (!backend.ok()) return backend.status();
  truth->backend_ = *std::move(backend);
  if (absl::Status status = truth->Open(folder, kv_type); !status.ok()) return status;
  return truth;
}

absl::StatusOr<std::unique_ptr<Truth>> Truth::LoadOnEmulatedDevice(const std::string& folder) {
  auto truth = std::unique_ptr<Truth>(new Truth);
  absl::StatusOr<OpenedDevice> device = OpenEmulatedDevice(kDeviceBytes);
  if (!device.ok()) return device.status();
  truth->device_ = *std::move(device);
  absl::StatusOr<std::unique_ptr<Backend>> backend = CreateCudaBackend(
      {truth->device_.runtime.get(), truth->device_.kernels, truth->device_.name});
  if (!backend.ok()) return backend.status();
  truth->backend_ = *std::move(backend);
  if (absl::Status status = truth->Open(folder, DType::kBF16); !status.ok()) return status;
  return truth;
}

absl::Status Truth::Open(const std::string& folder, std::optional<DType> kv_type) {
  absl::StatusOr<std::unique_ptr<const Model>> model = Model::Load(folder, backend_.get());
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  layout_ = model_->LayoutFor(kBlockTokens, kv_type.value_or(model_->weight_type()));
  const int blocks = layout_.BlocksFor(config().context);
  const size_t bytes = blocks * layout_.BlockBytes();
  std::byte* pool = nullptr;
  if (device_.runtime != nullptr) {
    absl::StatusOr<std::byte*> memory = device_.runtime->Allocate(bytes);
    if (!memory.ok()) return memory.status();
    pool = *memory;  // goes with the device
  } else {
    memory_.resize(bytes);
    pool = memory_.data();
  }
  pool_ = std::make_unique<BlockPool>(blocks);
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(model_.get(), backend_.get(), {pool, layout_}, kChunkTokens);
  if (!engine.ok()) return engine.status();
  engine_ = *std::move(engine);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> Truth::Answer(const std::vector<TokenId>& prompt,
                                                   const SamplingOptions& sampling) {
  absl::StatusOr<OneProcessAnswer> answer = FullAnswer(prompt, sampling);
  if (!answer.ok()) return answer.status();
  std::vector<TokenId> ids;
  for (const SampledToken& token : answer->tokens) ids.push_back(token.id);
  return ids;
}

absl::StatusOr<OneProcessAnswer> Truth::FullAnswer(const std::vector<TokenId>& prompt,
                                                   const SamplingOptions& sampling) {
  return GenerateInOneProcess(engine_.get(), pool_.get(), config(), kBlockTokens, prompt, sampling,
                              kChunkTokens);
}

}  // namespace baton
