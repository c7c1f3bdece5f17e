#pragma once

#include <memory>
#include <vector>

#include "kernels/backend/backend.h"

namespace baton {

// The operations of Backend as their definitions read, in double where a sum is taken: slow, plain,
// and shared with no real backend, so that the tests of this module tell a fault of the model from
// one of the kernels. Activations are floats. For tests.
class ReferenceBackend : public Backend {
 public:
  std::string numerics_id() const override { return "reference"; }
  std::string Describe() const override { return "reference: plain loops"; }
  absl::StatusOr<Matrix> LoadWeight(const Matrix& host) override { return host; }
  absl::StatusOr<Tensor> Allocate(int rows, int cols) override;
  absl::Status Embed(const EmbedArgs& args) override;
  absl::Status RmsNorm(const RmsNormArgs& args) override;
  absl::Status Gemm(const GemmArgs& args) override;
  absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) override;
  absl::Status Attention(const AttentionArgs& args) override;
  absl::Status SiluMul(const SiluMulArgs& args) override;
  absl::Status Logits(const LogitsArgs& args) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  std::vector<std::unique_ptr<float[]>> memory_;
};

}  // namespace baton
