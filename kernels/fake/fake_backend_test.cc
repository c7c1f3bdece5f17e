#include "kernels/fake/fake_backend.h"

#include <cmath>
#include <numeric>
#include <set>

#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr int kVocab = 97;

// Fixture with a KV pool and tensors. Step() runs the operations of a decoder on them, in the order
// of a real model.
class FakeBackendTest : public ::testing::Test {
 protected:
  FakeBackendTest() { Rebuild({}); }

  void Rebuild(FakeBackendOptions options) {
    backend_ = CreateFakeBackend(std::move(options));
    for (Tensor* tensor : {&hidden_, &normed_, &q_, &k_, &v_, &attention_, &up_}) {
      *tensor = backend_->Allocate(64, 4).value();
    }
    pool_.assign(8 * layout_.BlockBytes(), std::byte{0xEE});
    logits_.assign(kVocab, 0);
  }

  // Runs positions [from, to) of `tokens` as one step. Returns the token that greedy sampling gives
  // after the last position.
  TokenId Step(const std::vector<TokenId>& tokens, int from, int to,
               const std::vector<BlockId>& blocks) {
    const int rows = to - from;
    const auto first = [rows](Tensor t) { return t.rows = rows, t; };
    const SequenceRows sequence[] = {{0, rows, from, blocks}};
    const KvView kv = {pool_.data(), layout_};
    EXPECT_TRUE(
        backend_
            ->Embed({.tokens = absl::MakeSpan(tokens).subspan(from, rows), .out = first(hidden_)})
            .ok());
    for (int layer = 0; layer < layout_.layers; ++layer) {
      EXPECT_TRUE(backend_->RmsNorm({.in = first(hidden_), .out = first(normed_)}).ok());
      for (Tensor out : {q_, k_, v_}) {
        EXPECT_TRUE(backend_->Gemm({.in = first(normed_), .out = first(out)}).ok());
      }
      EXPECT_TRUE(backend_
                      ->RopeAndWriteKv({.q = first(q_),
                                        .k = first(k_),
                                        .v = first(v_),
                                        .ropes = {&rope_, 1},
                                        .layer = layer,
                                        .sequences = sequence,
                                        .kv = kv})
                      .ok());
      EXPECT_TRUE(backend_
                      ->Attention({.q = first(q_),
                                   .heads = 2,
                                   .window = window_,
                                   .layer = layer,
                                   .sequences = sequence,
                                   .kv = kv,
                                   .out = first(attention_)})
                      .ok());
      EXPECT_TRUE(
          backend_->Gemm({.in = first(attention_), .accumulate = true, .out = first(hidden_)})
              .ok());
      EXPECT_TRUE(backend_->RmsNorm({.in = first(hidden_), .out = first(normed_)}).ok());
      EXPECT_TRUE(backend_->Gemm({.in = first(normed_), .out = first(up_)}).ok());
      EXPECT_TRUE(
          backend_->SiluMul({.gate = first(up_), .up = first(up_), .out = first(up_)}).ok());
      EXPECT_TRUE(
          backend_->Gemm({.in = first(up_), .accumulate = true, .out = first(hidden_)}).ok());
    }
    const int last[] = {rows - 1};
    EXPECT_TRUE(
        backend_->Logits({.in = hidden_, .rows = last, .out = absl::MakeSpan(logits_)}).ok());
    return std::max_element(logits_.begin(), logits_.end()) - logits_.begin();
  }

  // K or V of one head has 3 elements of 2 bytes per token. This is not a whole number of the
  // 8-byte words that the fake backend writes and hashes.
  KvLayout layout_ = {
      .layers = 3, .kv_heads = 2, .head_dim = 3, .block_tokens = 4, .type = DType::kF16};
  std::unique_ptr<Backend> backend_;
  Tensor hidden_, normed_, q_, k_, v_, attention_, up_;
  std::vector<std::byte> pool_;
  std::vector<float> logits_;
  int window_ = 0;
  std::vector<float> frequencies_ = {1};
  Rope rope_ = {frequencies_};
  const std::vector<TokenId> tokens_ = {5, 9, 2, 2, 71, 0, 33, 8, 8, 40};
  const std::vector<BlockId> blocks_ = {6, 1, 3};
};

TEST_F(FakeBackendTest, AnswersAsTheOracleInOnePassInChunksAndTokenByToken) {
  const TokenId expected = FakeContinuation(layout_, tokens_, kVocab, 1)[0];
  EXPECT_EQ(Step(tokens_, 0, 10, blocks_), expected);
  Rebuild({});
  Step(tokens_, 0, 4, blocks_);
  Step(tokens_, 4, 8, blocks_);
  EXPECT_EQ(Step(tokens_, 8, 10, blocks_), expected);
  Rebuild({});
  for (int i = 0; i < 9; ++i) Step(tokens_, i, i + 1, blocks_);
  EXPECT_EQ(Step(tokens_, 9, 10, blocks_), expected);
  std::vector<float> oracle_logits(kVocab);
  FakeOracle oracle(layout_);
  for (const TokenId token : tokens_) oracle.Append(token);
  oracle.Logits(absl::MakeSpan(oracle_logits));
  EXPECT_EQ(logits_, oracle_logits);
}

TEST_F(FakeBackendTest, KvOfAnotherRotaryTableChangesTheToken) {
  frequencies_ = {0.25f};
  Step(tokens_, 0, 9, blocks_);
  Step(tokens_, 9, 10, blocks_);
  FakeOracle oracle(layout_, 0.25f);
  for (const TokenId token : tokens_) oracle.Append(token);
  std::vector<float> expected(kVocab);
  oracle.Logits(absl::MakeSpan(expected));
  EXPECT_EQ(logits_, expected);
  Rebuild({});
  Step(tokens_, 0, 9, blocks_);
  frequencies_ = {1};
  Step(tokens_, 9, 10, blocks_);
  EXPECT_NE(logits_, expected);
}

TEST_F(FakeBackendTest, AWindowHidesWhatIsOutsideOfItAndNothingElse) {
  window_ = 4;
  Step(tokens_, 0, 10, blocks_);
  const auto right = logits_;
  auto others = tokens_;
  others[5] =
      // Position 9 sees only positions 6 to 9 in each layer, because the window is 4. The fake
      // backend passes nothing between tokens except through the KV. So another token at position 5
      // changes nothing.
      34;
  Rebuild({});
  Step(others, 0, 3, blocks_);
  Step(others, 3, 10, blocks_);
  EXPECT_EQ(logits_, right);
  others[6] = 34;
  Rebuild({});
  Step(others, 0, 10, blocks_);
  EXPECT_NE(logits_, right);
  window_ = 10;
  Rebuild({});
  EXPECT_EQ(Step(tokens_, 0, 10, blocks_), FakeContinuation(layout_, tokens_, kVocab, 1)[0]);
}

// Changes each byte of every slot that the next step sees, one at a time, and checks that the
// step's logits change.
TEST_F(FakeBackendTest, EveryByteOfEverySlotCounts) {
  Step(tokens_, 0, 9, blocks_);
  const auto before = pool_;
  Step(tokens_, 9, 10, blocks_);
  const auto right = logits_;
  const int positions = 9;
  int bytes = 0;
  for (int position = 0; position < positions; ++position) {
    for (int layer = 0; layer < layout_.layers; ++layer) {
      for (const auto plane : {KvLayout::kKeys, KvLayout::kValues}) {
        for (int head = 0; head < layout_.kv_heads; ++head) {
          for (size_t byte = 0; byte < layout_.TokenBytes(); ++byte) {
            pool_ = before;
            pool_[layout_.HeadOffset(blocks_[position / 4], layer, plane, head) +
                  position % 4 * layout_.TokenBytes() + byte] ^= std::byte{1};
            Step(tokens_, 9, 10, blocks_);
            ASSERT_NE(logits_, right) << position << " " << layer << " " << plane << " " << head;
            ++bytes;
          }
        }
      }
    }
  }
  EXPECT_EQ(bytes, positions * 3 * 2 * 2 * 6);
  // Bytes of blocks that the sequence does not use change nothing.
  pool_ = before;
  for (const BlockId block : {0, 2, 4, 5, 7}) pool_[layout_.BlockOffset(block)] ^= std::byte{1};
  Step(tokens_, 9, 10, blocks_);
  EXPECT_EQ(logits_, right);
}

TEST_F(FakeBackendTest, MisplacedBlocksAndOtherPositionsChangeTheAnswer) {
  Step(tokens_, 0, 10, blocks_);
  const auto right = logits_;
  Step(tokens_, 9, 10, {1, 6, 3});
  EXPECT_NE(logits_, right);
  Rebuild({});
  Step({9, 5, 2, 2, 71, 0, 33, 8, 8, 40}, 0, 10, blocks_);
  EXPECT_NE(logits_, right);
}

TEST_F(FakeBackendTest, WinnersSpreadOverTheVocabulary) {
  std::set<TokenId> seen;
  for (const TokenId token : FakeContinuation(layout_, {1}, kVocab, 2000)) seen.insert(token);
  EXPECT_EQ(seen.size(), static_cast<size_t>(kVocab));
}

TEST_F(FakeBackendTest, TellsWhatAStepCosts) {
  absl::Duration spent;
  Rebuild({.per_step = absl::Milliseconds(1),
           .per_row = absl::Microseconds(10),
           .per_attended_token = absl::Nanoseconds(100),
           .spend = [&](absl::Duration d) { spent += d; }});
  Step(tokens_, 0, 4, blocks_);
  EXPECT_EQ(spent, absl::Microseconds(1000 + 40 + 1));
}

TEST_F(FakeBackendTest, BadNumbersOnRequest) {
  Rebuild({.nan_after = 40});
  Step(tokens_, 0, 9, blocks_);
  EXPECT_FALSE(std::isnan(logits_[0]));
  Step(tokens_, 9, 10, blocks_);
  EXPECT_TRUE(std::isnan(logits_[0]));
}

TEST_F(FakeBackendTest, RefusesTensorsThatCarryNoState) {
  const Tensor narrow = backend_->Allocate(1, 3).value();
  const std::vector<TokenId> tokens = {1};
  EXPECT_EQ(backend_->Embed({.tokens = tokens, .out = narrow}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
