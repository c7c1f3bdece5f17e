#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend/backend.h"

namespace baton {

// For tests: forwards every call to another backend. Tests derive from it to change or observe
// single calls. The operations of a step also go through the derived class, because a caller's
// StepOps calls them on the backend that the caller holds. A test checks that every function of
// Backend is forwarded (tests/structure).
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  std::string numerics_id() const override { return backend_->numerics_id(); }
  std::string Describe() const override { return backend_->Describe(); }
  absl::StatusOr<Matrix> LoadWeight(const Matrix& host) override {
    return backend_->LoadWeight(host);
  }
  bool copies_weights() const override { return backend_->copies_weights(); }
  absl::StatusOr<Tensor> Allocate(int rows, int cols) override {
    return backend_->Allocate(rows, cols);
  }
  absl::Status Reserve(const StepLimits& limits) override { return backend_->Reserve(limits); }
  absl::Status Embed(const EmbedArgs& args) override { return backend_->Embed(args); }
  absl::Status RmsNorm(const RmsNormArgs& args) override { return backend_->RmsNorm(args); }
  absl::Status Gemm(const GemmArgs& args) override { return backend_->Gemm(args); }
  absl::Status Gemms(absl::Span<const GemmArgs> all) override { return backend_->Gemms(all); }
  absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) override {
    return backend_->RopeAndWriteKv(args);
  }
  absl::Status Attention(const AttentionArgs& args) override { return backend_->Attention(args); }
  absl::Status SiluMul(const SiluMulArgs& args) override { return backend_->SiluMul(args); }
  absl::Status Logits(const LogitsArgs& args) override { return backend_->Logits(args); }
  absl::Status Synchronize() override { return backend_->Synchronize(); }
  absl::StatusOr<std::shared_ptr<DeviceEvent>> Record() override { return backend_->Record(); }
  bool samples() const override { return backend_->samples(); }
  int max_sample_vocab() const override { return backend_->max_sample_vocab(); }
  uint64_t NewProgram() override { return backend_->NewProgram(); }
  absl::Status StartStep(const StepArgs& step, StepOps ops) override {
    return backend_->StartStep(step, ops);
  }
  absl::Status FinishStep() override { return backend_->FinishStep(); }
  absl::StatusOr<std::shared_ptr<float[]>> AllocateResults(size_t floats) override {
    return backend_->AllocateResults(floats);
  }

 private:
  const std::unique_ptr<Backend> backend_;
};

}  // namespace baton
