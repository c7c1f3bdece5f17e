#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/step_graphs.h"
#include "kernels/cuda/test_device.h"

namespace baton {

// A decoder for tests of how a backend runs steps. It is as small as possible, and its random
// weights are the same in every run. It runs on a device, where it has a KV pool of its own.
class SmallDecoder {
 public:
  static constexpr int kHidden = 24, kVocab = 40, kBlocks = 96;

  struct Shape {
    int head_dim = 16, heads = 2, kv_heads = 1, block_tokens = 4, context = 64, max_rows = 8;
    std::vector<int> windows = {0, 0};  // attention window of each layer
    DType kv_type = DType::kBF16;
    size_t max_partial_bytes = size_t{64} << 20;
  };
  // Some tokens of one sequence. Sequences with an odd id have another rotary table.
  struct Item {
    int id = 0;
    std::vector<TokenId> tokens;
    int first_position = 0;
    std::vector<BlockId> blocks;
  };
  // The tokens that a step samples, from the logits of each item's last token.
  struct Samples {
    std::vector<const SampleOptions*> options;
    std::vector<int> follows;
    absl::Span<BackendSample> sampled;
  };

  SmallDecoder(const TestDevice& device, const Shape& shape, bool graphs);
  ~SmallDecoder();

  // Moves the KV to a new pool.
  void NewPool();
  std::vector<std::byte> Pool() const;

  // Starts a step. `logits` gets the logits of each item's last token, except where a token is
  // sampled.
  absl::Status Start(const std::vector<Item>& items, absl::Span<float> logits, bool recorded = true,
                     const Samples& samples = {});
  std::vector<float> Run(const std::vector<Item>& items, bool recorded = true);

  Backend& backend() { return *backend_; }
  const StepGraphCounts& counts() const { return counts_; }
  bool fails = false;  // if true, operations include a call that can't be recorded
  // If set, returns the step that an operation gets as its `step` argument; `own` is the step to
  // which the operation belongs. If not set, operations get their own step.
  std::function<const StepArgs*(const StepArgs& own)> named_step;

 private:
  absl::Status Operations(const StepArgs& step);

  const TestDevice& device_;
  const Shape shape_;
  const KvLayout layout_;
  StepGraphCounts counts_;
  const std::unique_ptr<Backend> backend_;
  const uint64_t program_;
  std::vector<std::vector<float>> kept_;
  Matrix table_, norm_, bias_;
  std::vector<Matrix> q_w_, k_w_, v_w_, o_w_;
  Tensor hidden_, normed_, q_, k_, v_, out_;
  std::vector<float> frequencies_[2];
  std::vector<std::byte*> pools_;
};

// Returns one item for each of `sequences` sequences: one token at this position. Each sequence has
// its own blocks.
std::vector<SmallDecoder::Item> Batch(int sequences, int position, int block_tokens);

// Returns an emulated device for SmallDecoder that checks every access. `seed` decides in which
// order the device runs its work.
OpenedDevice SeededDevice(uint64_t seed);

}  // namespace baton
