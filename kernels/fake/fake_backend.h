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
  // Costs of a step in simulated time: a fixed cost, and costs per row and per attended token. They
  // are passed to `spend` during the step; nothing really waits.
  absl::Duration per_step;
  absl::Duration per_row;             // cost per token of the step
  absl::Duration per_attended_token;  // cost per token that a row attends to
  std::function<void(absl::Duration)> spend;
  // For tests of invalid logits: in a row that holds this token, one of the logits is NaN.
  TokenId nan_after = -1;
};

// A backend without maths, to test and simulate everything around it. RopeAndWriteKv fills each
// token's whole slot (K and V of every head) with bytes that depend on token, position, layer and
// the first frequency of the rotary table. Attention uses the block table to find the slots of the
// tokens that a row sees, and hashes every byte of these slots. Rows of one sequence in one step
// share this work: each slot is read once per step and layer, and with a window up to twice. Logits
// depend on the hashes of all layers. The fake backend verifies nothing, but a lost, stale, torn or
// misplaced block changes the token.
//
// Tensors need at least 4 columns (else InvalidArgument). Weights are never read. numerics_id() is
// fake-v2.
std::unique_ptr<Backend> CreateFakeBackend(FakeBackendOptions options = {});

// Computes the expected answers of the fake backend from the tokens alone, without any KV.
class FakeOracle {
 public:
  // Uses only layers, heads, head size and type of `layout`. `first_frequency` is the first entry
  // of the rotary table, which is the same for all tokens.
  explicit FakeOracle(const KvLayout& layout, float first_frequency = 1);

  // Appends the token at the next position; the first one is position 0.
  void Append(TokenId token);
  // Computes the logits [vocab] of the token after the last appended one. Needs at least one
  // appended token.
  void Logits(absl::Span<float> out) const;
  // Returns the token that greedy sampling gives after the last appended one.
  TokenId Next(int vocab) const;

 private:
  KvLayout layout_;
  float first_frequency_;
  int position_ = 0;
  std::vector<uint64_t> attention_;  // hash of each layer
  std::vector<std::byte> slot_;
};

// Returns the next `count` tokens after `tokens` with greedy sampling.
std::vector<TokenId> FakeContinuation(const KvLayout& layout, const std::vector<TokenId>& tokens,
                                      int vocab, int count);

}  // namespace baton
