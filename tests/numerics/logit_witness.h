#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/hash.h"
#include "kernels/backend.h"

namespace baton {

// Another backend, and whoever wants to know hears a hash of every row of logits that it gives: all
// of the vocabulary, before anything is drawn from it.
class LogitWitness final : public Backend {
 public:
  using Hear = std::function<void(uint64_t hash)>;
  LogitWitness(std::unique_ptr<Backend> backend, Hear hear)
      : backend_(std::move(backend)), hear_(std::move(hear)) {}

  std::string numerics_id() const override { return backend_->numerics_id(); }
  std::string Describe() const override { return backend_->Describe(); }
  absl::StatusOr<Matrix> LoadWeight(const Matrix& host) override {
    return backend_->LoadWeight(host);
  }
  absl::StatusOr<Tensor> Allocate(int rows, int cols) override {
    return backend_->Allocate(rows, cols);
  }
  absl::Status Embed(const EmbedArgs& args) override { return backend_->Embed(args); }
  absl::Status RmsNorm(const RmsNormArgs& args) override { return backend_->RmsNorm(args); }
  absl::Status Gemm(const GemmArgs& args) override { return backend_->Gemm(args); }
  absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) override {
    return backend_->RopeAndWriteKv(args);
  }
  absl::Status Attention(const AttentionArgs& args) override { return backend_->Attention(args); }
  absl::Status SiluMul(const SiluMulArgs& args) override { return backend_->SiluMul(args); }
  absl::Status Logits(const LogitsArgs& args) override {
    const absl::Status status = backend_->Logits(args);
    const size_t vocab = args.head.rows;
    for (size_t row = 0; status.ok() && row < args.rows.size(); ++row) {
      hear_(Hash64(args.out.data() + row * vocab, vocab * sizeof(float)));
    }
    return status;
  }
  absl::Status Synchronize() override { return backend_->Synchronize(); }

 private:
  const std::unique_ptr<Backend> backend_;
  const Hear hear_;
};

}  // namespace baton
