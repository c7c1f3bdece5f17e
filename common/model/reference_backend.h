#pragma once

#include <memory>
#include <vector>

#include "kernels/backend/backend.h"

namespace baton {

// For tests. Implements Backend's operations exactly as they are defined, with sums in double. It
// is slow and plain, and shares no code with a real backend, so that the tests of this module can
// tell a fault of the model from a fault of the kernels. Activations are floats.
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
