#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/engine/one_process.h"
#include "common/model/model.h"
#include "kernels/backend.h"

namespace baton {

// What a model answers in one process and one pool, alone, on the CPU backend with two threads and
// its own type of KV: what the split system must answer too.
class Truth {
 public:
  // `numerics` as the workers' flag; `kv_type` of the KV cache, the weights' own when not given.
  static absl::StatusOr<std::unique_ptr<Truth>> Load(const std::string& folder,
                                                     absl::string_view numerics = "auto",
                                                     std::optional<DType> kv_type = std::nullopt);

  const ModelConfig& config() const { return model_->config(); }
  // The tokens that follow `prompt`.
  absl::StatusOr<std::vector<TokenId>> Answer(const std::vector<TokenId>& prompt,
                                              const SamplingOptions& sampling);
  // The same with everything told of them.
  absl::StatusOr<OneProcessAnswer> FullAnswer(const std::vector<TokenId>& prompt,
                                              const SamplingOptions& sampling);

 private:
  Truth() = default;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<const Model> model_;
  KvLayout layout_;
  std::vector<std::byte> memory_;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace baton
