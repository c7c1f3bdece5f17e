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

// Computes the answers of a model in a single process with one KV pool. Separate prefill and decode
// workers must give the same answers.
class Truth {
 public:
  // Loads the model on the CPU backend with two threads. `folder` may be a GGUF file, here and
  // below. `numerics` accepts the same values as the workers' flag --numerics. `kv_type` is the
  // type of the KV cache; its default is the type of the weights.
  static absl::StatusOr<std::unique_ptr<Truth>> Load(const std::string& folder,
                                                     absl::string_view numerics = "auto",
                                                     std::optional<DType> kv_type = std::nullopt);
  // Loads the model on the CUDA backend with an emulated device. The KV is in bf16.
  static absl::StatusOr<std::unique_ptr<Truth>> LoadOnEmulatedDevice(const std::string& folder);

  const ModelConfig& config() const { return model_->config(); }
  // Returns the tokens that follow `prompt`.
  absl::StatusOr<std::vector<TokenId>> Answer(const std::vector<TokenId>& prompt,
                                              const SamplingOptions& sampling);
  // Returns the tokens that follow `prompt`, and everything else that the engine reports about
  // them.
  absl::StatusOr<OneProcessAnswer> FullAnswer(const std::vector<TokenId>& prompt,
                                              const SamplingOptions& sampling);

 private:
  Truth() = default;
  absl::Status Open(const std::string& folder, std::optional<DType> kv_type);

  OpenedDevice device_;  // Empty on the CPU backend.
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<const Model> model_;
  KvLayout layout_;
  std::vector<std::byte> memory_;  // Memory of the KV pool on the CPU backend.
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace baton
