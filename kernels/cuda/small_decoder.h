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

// A decoder of random weights, the same ones each time, as small as steps can be: for tests of what
// a backend makes of steps. On a device, with a KV pool of its own there.
class SmallDecoder {
 public:
  static constexpr int kHidden = 24, kVocab = 40, kBlocks = 96;

  struct Shape {
    int head_dim = 16, heads = 2, kv_heads = 1, block_tokens = 4, context = 64, max_rows = 8;
    std::vector<int> windows = {0, 0};  // of each layer
    DType kv_type = DType::kBF16;
    size_t most_partial_bytes = size_t{64} << 20;
  };
  // Some tokens of one sequence. Every second one has another rotary table.
  struct Item {
    int id = 0;
    std::vector<TokenId> tokens;
    int first_position = 0;
    std::vector<BlockId> blocks;
  };
  // What is drawn from the logits of each one's last token.
  struct Draws {
    std::vector<const DrawOptions*> options;
    std::vector<int> follows;
    absl::Span<DrawnToken> drawn;
  };

  SmallDecoder(const TestDevice& device, const Shape& shape, bool graphs);
  ~SmallDecoder();

  // From now on KV is in another place; what there was is there too.
  void NewPool();
  std::vector<std::byte> Pool() const;

  // The logits of each one's last token go to `logits`, but where a token is drawn from them.
  absl::Status Start(const std::vector<Item>& items, absl::Span<float> logits, bool recorded = true,
                     const Draws& draws = {});
  std::vector<float> Run(const std::vector<Item>& items, bool recorded = true);

  Backend& backend() { return *backend_; }
  const StepGraphCounts& counts() const { return counts_; }
  bool fails = false;  // operations call what may not be recorded
  // The step that operations name; empty: their own.
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

// The next token of each of some sequences, at the same position, each in blocks of its own.
std::vector<SmallDecoder::Item> Batch(int sequences, int position, int block_tokens);

// An emulated device for it, which checks all that it can.
OpenedDevice SeededDevice(uint64_t seed);

}  // namespace baton
