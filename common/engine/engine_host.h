#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/engine/engine.h"
#include "common/kv_cache/block_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/open_device.h"

namespace baton {

// For tests. Holds a model on a backend, with an engine and a pool in the memory of that backend.
class EngineHost {
 public:
  static constexpr int kBlockTokens = 8, kBlocks = 64, kRows = 64;

  EngineHost(const std::string& folder, std::unique_ptr<Backend> backend, DType kv_type,
             const std::function<std::shared_ptr<std::byte>(size_t)>& allocate)
      : backend_(std::move(backend)),
        model_(Model::Load(folder, backend_.get()).value()),
        layout_(model_->LayoutFor(kBlockTokens, kv_type)),
        memory_(allocate(kBlocks * layout_.BlockBytes())),
        engine_(
            Engine::Create(model_.get(), backend_.get(), {memory_.get(), layout_}, kRows).value()) {
  }

  const ModelConfig& config() const { return model_->config(); }
  const Backend& backend() const { return *backend_; }
  Engine* engine() { return engine_.get(); }
  BlockPool* pool() { return &pool_; }
  int free_blocks() const { return pool_.free_blocks(); }

 private:
  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<const Model> model_;
  const KvLayout layout_;
  BlockPool pool_{kBlocks};
  const std::shared_ptr<std::byte> memory_;
  const std::unique_ptr<Engine> engine_;
};

inline std::unique_ptr<EngineHost> CpuHost(const std::string& folder) {
  return std::make_unique<EngineHost>(
      folder, CreateCpuBackend({.threads = 1}).value(), DType::kF32, [](size_t bytes) {
        return std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>());
      });
}

inline std::unique_ptr<EngineHost> CudaHost(const std::string& folder, const OpenedDevice& device,
                                            DType kv_type = DType::kBF16) {
  return std::make_unique<EngineHost>(
      folder, CreateCudaBackend({device.runtime.get(), device.kernels, device.name}).value(),
      kv_type, [&device](size_t bytes) {
        return std::shared_ptr<std::byte>(
            device.runtime->Allocate(bytes).value(),
            [&device](std::byte* memory) { device.runtime->Free(memory); });
      });
}

inline SamplingOptions Greedy(int tokens) {
  SamplingOptions options;
  options.max_tokens = tokens;
  options.logprobs = 2;
  return options;
}

}  // namespace baton
