#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"

namespace baton {

struct FakeBackendOptions {
  // What a step costs in simulated time, told to `spend` while it runs; nothing really waits.
  absl::Duration per_step;
  absl::Duration per_row;             // per token of the step
  absl::Duration per_attended_token;  // per token that a row attends to
  std::function<void(absl::Duration)> spend;
  // For tests of bad numbers: the logits after this token are NaN.
  TokenId nan_after = -1;
};

// A backend without maths, for tests and simulation of everything around it. RopeAndWriteKv fills
// each token's whole slot, K and V of every head, with bytes that depend on token, position, layer
// and the first frequency of the rotary table; Attention hashes every byte of the slots 0..position
// that it finds through the block table; and the logits follow from these hashes of all layers. It
// verifies nothing: a lost, stale, torn or misplaced block changes the token.
//
// Tensors need at least 4 columns (InvalidArgument), weights are never read. numerics id: fake-v1.
std::unique_ptr<Backend> CreateFakeBackend(FakeBackendOptions options = {});

// What the fake backend must answer, computed from the tokens alone, without any KV.
class FakeOracle {
 public:
  // Of `layout` only layers, heads, head size and type matter. All tokens under one rotary table.
  explicit FakeOracle(const KvLayout& layout, float first_frequency = 1);

  // The token at the next position, from 0.
  void Append(TokenId token);
  // Logits of the token that follows, [vocab]. Some token has been appended.
  void Logits(absl::Span<float> out) const;
  // The greedy one.
  TokenId Next(int vocab) const;

 private:
  KvLayout layout_;
  float first_frequency_;
  int position_ = 0;
  std::vector<uint64_t> attention_;  // per layer
  std::vector<std::byte> slot_;
};

// The greedy continuation of `tokens` by `count` tokens.
std::vector<TokenId> FakeContinuation(const KvLayout& layout, const std::vector<TokenId>& tokens,
                                      int vocab, int count);

}  // namespace baton
