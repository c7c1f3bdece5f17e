#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/sampling/sampler.h"
#include "common/sampling/token_history.h"
#include "kernels/backend/backend.h"
#include "kernels/fake/fake_backend.h"

namespace baton {

struct LateBackendOptions {
  FakeBackendOptions fake;
  // If this is 0, the operations of a step run when the step is finished. Otherwise each StartStep
  // already runs some waiting operations, and this seed decides how many.
  uint64_t seed = 0;
  // Generations of the pool's blocks: counters by which BlockPool marks every use of a block. The
  // backend needs them to count lost blocks. A block is lost if it was free when its step started,
  // or was freed before the step ran. Null: lost blocks are not counted.
  const std::atomic<uint64_t>* generations = nullptr;
  // `failing_step` is the number, from 1, of the step whose FinishStep returns Internal.
  // `failing_start` is the number, from 1, of the StartStep call that fails.
  std::optional<uint64_t> failing_step, failing_start;
  int max_sample_vocab = 1 << 18;
};

// For tests. The fake backend made to behave like a device: it samples tokens, runs operations
// later than they are called, and gives out sampled tokens only when their step is finished.
// Computes the same logits as the fake backend, and samples with Sampler.
class LateBackend final : public Backend {
 public:
  explicit LateBackend(LateBackendOptions options = {});
  ~LateBackend() override;

  // Steps started so far, and the number of them that started while another one was running.
  uint64_t started() const { return started_; }
  uint64_t started_ahead() const { return started_ahead_; }
  // Number of rows that begin with a token of the previous step, counted only if that step was
  // still running when the row's step was started.
  uint64_t rows_ahead() const { return rows_ahead_; }
  // Number of calls of Record.
  uint64_t events() const { return events_; }
  // Counts blocks that no longer belonged to their sequence when a step used them (see
  // LateBackendOptions::generations). first_lost() describes the first of them.
  uint64_t lost_blocks() const { return lost_blocks_; }
  const std::string& first_lost() const { return first_lost_; }

  std::string numerics_id() const override { return fake_->numerics_id(); }
  std::string Describe() const override { return "fake, and late"; }
  absl::StatusOr<Matrix> LoadWeight(const Matrix& host) override { return fake_->LoadWeight(host); }
  absl::StatusOr<Tensor> Allocate(int rows, int cols) override {
    return fake_->Allocate(rows, cols);
  }
  absl::Status Embed(const EmbedArgs& args) override;
  absl::Status RmsNorm(const RmsNormArgs& args) override;
  absl::Status Gemm(const GemmArgs& args) override;
  absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) override;
  absl::Status Attention(const AttentionArgs& args) override;
  absl::Status SiluMul(const SiluMulArgs& args) override;
  absl::Status Logits(const LogitsArgs& args) override;
  absl::Status Synchronize() override;
  absl::StatusOr<std::shared_ptr<DeviceEvent>> Record() override {
    ++events_;
    return Backend::Record();
  }

  bool samples() const override { return true; }
  int max_sample_vocab() const override { return options_.max_sample_vocab; }
  absl::Status StartStep(const StepArgs& args, StepOps ops) override;
  absl::Status FinishStep() override;

 private:
  struct Step;
  absl::Status Then(std::function<absl::Status()> op);
  absl::Status RunSome(size_t ops);
  absl::Status RunOldest();
  void CheckBlocks(const Step& step);
  absl::Status EmbedNow(const Step& step, const EmbedArgs& args);
  absl::Status SampleNow(const Step& step, const LogitsArgs& args);

  const LateBackendOptions options_;
  const std::unique_ptr<Backend> fake_;
  Sampler sampler_;
  uint64_t random_;
  std::vector<std::unique_ptr<Step>> running_;  // oldest first
  Step* recorded_ = nullptr;      // the step that is being started; null outside of StartStep
  std::vector<TokenId> sampled_;  // tokens of the step that ran last, per logit row
  uint64_t asked_ = 0, started_ = 0, started_ahead_ = 0, rows_ahead_ = 0, finished_ = 0,
           lost_blocks_ = 0, events_ = 0;
  std::map<uint64_t, TokenHistory> histories_;  // tokens that the device knows, by sequence number
  std::string first_lost_;
};

}  // namespace baton
