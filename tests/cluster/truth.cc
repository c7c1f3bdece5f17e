#include "tests/cluster/truth.h"

#include <utility>

#include "common/model/checkpoint.h"
#include "kernels/cpu/cpu_backend.h"

namespace baton {
namespace {

constexpr int kBlockTokens = 16;
constexpr int kChunkTokens = 512;

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
  absl::StatusOr<std::unique_ptr<const Model>> model = Model::Load(folder, truth->backend_.get());
  if (!model.ok()) return model.status();
  truth->model_ = *std::move(model);
  truth->layout_ =
      truth->model_->LayoutFor(kBlockTokens, kv_type.value_or(truth->model_->weight_type()));
  const int blocks = truth->layout_.BlocksFor(truth->config().context);
  truth->memory_.resize(blocks * truth->layout_.BlockBytes());
  truth->pool_ = std::make_unique<BlockPool>(blocks);
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(truth->model_.get(), truth->backend_.get(),
                     {truth->memory_.data(), truth->layout_}, kChunkTokens);
  if (!engine.ok()) return engine.status();
  truth->engine_ = *std::move(engine);
  return truth;
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
