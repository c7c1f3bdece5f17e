#include "tests/cluster/truth.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/model/model_folder.h"
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
  ASSIGN_OR_RETURN(const ModelFolder opened, ModelFolder::Open(folder));
  ASSIGN_OR_RETURN(const CpuNumerics order,
                   ParseCpuNumerics(numerics, opened.checkpoint->MatrixFormat()));
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                   CreateCpuBackend({.threads = 2, .numerics = order}));
  truth->backend_ = std::move(backend);
  RETURN_IF_ERROR(truth->Open(folder, kv_type));
  return truth;
}

absl::StatusOr<std::unique_ptr<Truth>> Truth::LoadOnEmulatedDevice(const std::string& folder) {
  auto truth = std::unique_ptr<Truth>(new Truth);
  ASSIGN_OR_RETURN(OpenedDevice device, OpenEmulatedDevice(kDeviceBytes));
  truth->device_ = std::move(device);
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                   CreateCudaBackend({truth->device_.runtime.get(), truth->device_.kernels,
                                      truth->device_.name}));
  truth->backend_ = std::move(backend);
  RETURN_IF_ERROR(truth->Open(folder, DType::kBF16));
  return truth;
}

absl::Status Truth::Open(const std::string& folder, std::optional<DType> kv_type) {
  ASSIGN_OR_RETURN(std::unique_ptr<const Model> model, Model::Load(folder, backend_.get()));
  model_ = std::move(model);
  layout_ = model_->LayoutFor(kBlockTokens, kv_type.value_or(model_->weight_type()));
  const int blocks = layout_.BlocksFor(config().context);
  const size_t bytes = blocks * layout_.BlockBytes();
  std::byte* pool = nullptr;
  if (device_.runtime != nullptr) {
    ASSIGN_OR_RETURN(std::byte * memory, device_.runtime->Allocate(bytes));
    pool = memory;  // This memory is freed together with the device.
  } else {
    memory_.resize(bytes);
    pool = memory_.data();
  }
  pool_ = std::make_unique<BlockPool>(blocks);
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                   Engine::Create(model_.get(), backend_.get(), {pool, layout_}, kChunkTokens));
  engine_ = std::move(engine);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> Truth::Answer(const std::vector<TokenId>& prompt,
                                                   const SamplingOptions& sampling) {
  ASSIGN_OR_RETURN(OneProcessAnswer answer, FullAnswer(prompt, sampling));
  std::vector<TokenId> ids;
  for (const SampledToken& token : answer.tokens) ids.push_back(token.id);
  return ids;
}

absl::StatusOr<OneProcessAnswer> Truth::FullAnswer(const std::vector<TokenId>& prompt,
                                                   const SamplingOptions& sampling) {
  return GenerateInOneProcess(engine_.get(), pool_.get(), config(), kBlockTokens, prompt, sampling,
                              kChunkTokens);
}

}  // namespace baton
