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
  // 0: a step runs when it is finished. Otherwise some of it may run at any call before, drawn from
  // this seed.
  uint64_t seed = 0;
  // Of the blocks of the pool (BlockPool): a step that runs after one of its blocks was freed, or
  // began without it, is counted. Null: not looked at.
  const std::atomic<uint64_t>* generations = nullptr;
  // The step that was started, from 1, that ends with Internal, and the one of those that were to
  // be started which is not.
  std::optional<uint64_t> failing_step, failing_start;
  int most_draw_vocab = 1 << 18;
};

// The fake backend as a device would be, for tests: it draws, what it is told happens later, and
// what a step drew is known when the step has been finished. Numbers and tokens are the fake
// backend's and the Sampler's.
class LateBackend final : public Backend {
 public:
  explicit LateBackend(LateBackendOptions options = {});
  ~LateBackend() override;

  // Steps started so far, and those of them that were started while another was running.
  uint64_t started() const { return started_; }
  uint64_t started_ahead() const { return started_ahead_; }
  // Rows that followed a step which was running.
  uint64_t rows_ahead() const { return rows_ahead_; }
  // Events that were asked for (Record).
  uint64_t events() const { return events_; }
  // Blocks that were not their sequence's any more when a step ran; what the first one was.
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

  bool draws() const override { return true; }
  int most_draw_vocab() const override { return options_.most_draw_vocab; }
  absl::Status StartStep(const StepArgs& args, StepOps ops) override;
  absl::Status FinishStep() override;

 private:
  struct Step;
  absl::Status Then(std::function<absl::Status()> op);
  absl::Status RunSome(size_t ops);
  absl::Status RunOldest();
  void CheckBlocks(const Step& step);
  absl::Status EmbedNow(const Step& step, const EmbedArgs& args);
  absl::Status DrawNow(const Step& step, const LogitsArgs& args);

  const LateBackendOptions options_;
  const std::unique_ptr<Backend> fake_;
  Sampler sampler_;
  uint64_t random_;
  std::vector<std::unique_ptr<Step>> running_;  // oldest first
  Step* recorded_ = nullptr;                    // within StartStep
  std::vector<TokenId> drawn_;                  // for each logit row of the step that ran last
  uint64_t asked_ = 0, started_ = 0, started_ahead_ = 0, rows_ahead_ = 0, finished_ = 0,
           lost_blocks_ = 0, events_ = 0;
  std::map<uint64_t, TokenHistory> histories_;  // by sequence, as the device has them
  std::string first_lost_;
};

}  // namespace baton
