#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/engine/one_process.h"
#include "common/model/model.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/open_device.h"

namespace baton {

// What a model answers in one process and one pool, alone: what the split system must answer too.
class Truth {
 public:
  // On the CPU backend with two threads. `numerics` as the workers' flag; `kv_type` of the KV
  // cache, the weights' own when not given.
  static absl::StatusOr<std::unique_ptr<Truth>> Load(const std::string& folder,
                                                     absl::string_view numerics = "auto",
                                                     std::optional<DType> kv_type = std::nullopt);
  // On the CUDA backend and an emulated device, with KV in bf16.
  static absl::StatusOr<std::unique_ptr<Truth>> LoadOnEmulatedDevice(const std::string& folder);

  const ModelConfig& config() const { return model_->config(); }
  // The tokens that follow `prompt`.
  absl::StatusOr<std::vector<TokenId>> Answer(const std::vector<TokenId>& prompt,
                                              const SamplingOptions& sampling);
  // The same with everything told of them.
  absl::StatusOr<OneProcessAnswer> FullAnswer(const std::vector<TokenId>& prompt,
                                              const SamplingOptions& sampling);

 private:
  Truth() = default;
  absl::Status Open(const std::string& folder, std::optional<DType> kv_type);

  OpenedDevice device_;  // where there is one
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<const Model> model_;
  KvLayout layout_;
  std::vector<std::byte> memory_;  // of the pool, on a CPU
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace baton
