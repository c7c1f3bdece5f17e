#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/hash.h"
#include "common/model/forward_pass.h"
#include "common/model/model.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/numerics/numerics_case.h"

namespace baton {
namespace {

using Isa = CpuBackendOptions::Isa;

constexpr int kGenerated = 10;  // tokens generated after a prompt
constexpr int kMaxSequences = 5;

// A sequence that ran alone: its tokens, and a hash of the logits of every position.
struct Alone {
  std::vector<TokenId> tokens;
  int prompt = 0;
  int reach = 0;
  std::vector<uint64_t> logits;
};

// A sequence that runs together with others.
struct Running {
  const Alone* alone = nullptr;
  std::vector<BlockId> blocks;
  int done = 0;  // tokens whose KV has been computed
  // Chunks may have any size up to this position. After it, each step has one token.
  int prefill = 0;
};

// One CPU backend with its model and KV pool. Blocks are handed out in random order, filled with
// NaN.
class World {
 public:
  // `max_tokens` is the max number of tokens of a step, and of a sequence.
  World(const std::string& folder, const CpuBackendOptions& options, int block_tokens,
        int max_tokens)
      : backend_(CreateCpuBackend(options).value()),
        model_(Model::Load(folder, backend_.get()).value()),
        pass_(ForwardPass::Create(model_.get(), backend_.get(), max_tokens).value()),
        layout_(model_->LayoutFor(block_tokens, model_->weight_type())) {
    const int blocks = kMaxSequences * layout_.BlocksFor(max_tokens);
    pool_.assign(blocks * layout_.BlockBytes(), std::byte{0xff});
    free_.resize(blocks);
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(block_tokens));
  }

  const Model& model() const { return *model_; }
  std::string numerics_id() const { return backend_->numerics_id(); }
  int vocab() const { return model_->config().vocab; }

  std::vector<BlockId> Take(int tokens) {
    std::vector<BlockId> blocks(free_.end() - layout_.BlocksFor(tokens), free_.end());
    free_.resize(free_.size() - blocks.size());
    return blocks;
  }
  // Frees blocks and fills them with NaN, so that a read of stale KV is noticed.
  void Give(std::vector<BlockId>* blocks) {
    for (const BlockId block : *blocks) {
      std::fill_n(pool_.begin() + layout_.BlockOffset(block), layout_.BlockBytes(),
                  std::byte{0xff});
    }
    free_.insert(free_.begin(), blocks->begin(), blocks->end());
    blocks->clear();
  }

  // Runs the next `rows[i]` tokens of each sequence i, all in one step. Returns the logits of
  // `logit_rows`.
  std::vector<float> Step(absl::Span<Running* const> sequences, absl::Span<const int> rows,
                          absl::Span<const int> logit_rows) {
    std::vector<TokenId> tokens;
    std::vector<SequenceRows> parts;
    std::vector<int> reach;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Running& s = *sequences[i];
      parts.push_back({.first_row = static_cast<int>(tokens.size()),
                       .rows = rows[i],
                       .first_position = s.done,
                       .blocks = s.blocks});
      reach.push_back(s.alone->reach);
      const auto begin = s.alone->tokens.begin() + s.done;
      tokens.insert(tokens.end(), begin, begin + rows[i]);
      s.done += rows[i];
    }
    std::vector<float> logits(logit_rows.size() * vocab());
    const absl::Status status = pass_->Run(
        {.tokens = tokens, .sequences = parts, .logit_rows = logit_rows, .rope_reach = reach},
        {.data = pool_.data(), .layout = layout_}, absl::MakeSpan(logits));
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  }
  uint64_t Hash(absl::Span<const float> logits, int row) const {
    return Hash64(logits.data() + static_cast<size_t>(row) * vocab(), vocab() * sizeof(float));
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<const Model> model_;
  std::unique_ptr<ForwardPass> pass_;
  KvLayout layout_;
  std::vector<std::byte> pool_;
  std::vector<BlockId> free_;
};

class BatchInvarianceTest : public testing::TestWithParam<NumericsCase> {
 protected:
  void SetUp() override {
    isas_ = GetParam().Isas();
    if (isas_.empty()) {
      GTEST_SKIP() << CreateCpuBackend({1, Isa::kAuto, GetParam().numerics}).status().message();
    }
  }

  World& WorldOf(int threads, Isa isa, int block_tokens) {
    auto& world = worlds_[{threads, static_cast<int>(isa), block_tokens}];
    if (world == nullptr) {
      world = std::make_unique<World>(GetParam().Folder(),
                                      CpuBackendOptions{threads, isa, GetParam().numerics},
                                      block_tokens, max_tokens_);
    }
    return *world;
  }

  // Runs a random prompt alone, then adds its most likely tokens, one per step.
  Alone RunAlone(World& world, int prompt) {
    Alone alone;
    alone.prompt = prompt;
    alone.reach = RopeReach(world.model().config().rope, alone.prompt, alone.prompt + kGenerated);
    for (int i = 0; i < prompt; ++i) alone.tokens.push_back(Pick(0, world.vocab() - 1));
    Running running{.alone = &alone, .blocks = world.Take(prompt + kGenerated)};
    std::vector<int> rows(prompt);
    std::iota(rows.begin(), rows.end(), 0);
    while (running.done < prompt + kGenerated) {
      Running* const one[] = {&running};
      const auto logits = world.Step(one, {static_cast<int>(rows.size())}, rows);
      for (const int row : rows) alone.logits.push_back(world.Hash(logits, row));
      const auto last = logits.end() - world.vocab();
      for (const float logit : logits) EXPECT_TRUE(std::isfinite(logit));
      alone.tokens.push_back(static_cast<TokenId>(std::max_element(last, logits.end()) - last));
      rows = {0};
    }
    world.Give(&running.blocks);
    return alone;
  }

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  World& AnyWorld() {
    constexpr int kBlocks[] = {1, 8, 13, 16};
    const Isa isa = isas_[Pick(0, static_cast<int>(isas_.size()) - 1)];
    return WorldOf(Pick(1, 4), isa, kBlocks[Pick(0, 3)]);
  }

  // Runs some of the sequences in `all` together to their ends. At random steps, moves them to
  // another World, which has another backend and another KV pool.
  void RunTogether(const std::vector<Alone>& all) {
    World* world = &AnyWorld();
    std::vector<Running> running(Pick(1, kMaxSequences));
    for (Running& s : running) {
      // If the case has a model with long sequences, the first running sequence is the longest
      // sequence of `all`, which is its last element. No other running sequence is that long.
      const bool longest = GetParam().IsLong() && &s == &running.front();
      s.alone = longest ? &all.back()
                        : &all[Pick(0, static_cast<int>(all.size()) - 1 - GetParam().IsLong())];
      s.prefill = s.alone->prompt;
      s.blocks = world->Take(s.alone->prompt + kGenerated);
    }
    const int longest_step = GetParam().IsLong() ? Pick(300, 1200) : 256;
    const int longest_chunk = GetParam().IsLong() ? Pick(100, longest_step)
                              : Pick(0, 2) == 0   ? 4
                                                  : Pick(8, 120);
    int moves = Pick(0, 2);
    for (;;) {
      std::vector<Running*> chosen;
      std::vector<int> rows, logit_rows;
      std::vector<std::pair<const Alone*, int>> wanted;  // sequence and position of each logit row
      int total = 0;
      bool unfinished = false;
      for (Running& s : running) {
        const int left = s.alone->prompt + kGenerated - s.done;
        unfinished |= left > 0;
        if (left == 0 || Pick(0, 3) == 0) continue;
        const int max = s.done < s.prefill
                            ? std::min({s.prefill - s.done, longest_chunk, longest_step - total})
                            : 1;
        if (max < 1 || total == longest_step) continue;
        const int count = Pick(1, max);
        // Chooses which logits of the chunk are compared: none, the last, or all.
        const int kind = Pick(0, 5);
        for (int r = kind == 0 ? count : kind < 3 ? count - 1 : 0; r < count; ++r) {
          logit_rows.push_back(total + r);
          wanted.emplace_back(s.alone, s.done + r);
        }
        chosen.push_back(&s);
        rows.push_back(count);
        total += count;
      }
      if (!unfinished) break;
      if (chosen.empty()) continue;
      const auto logits = world->Step(chosen, rows, logit_rows);
      for (size_t i = 0; i < wanted.size(); ++i) {
        const auto& [alone, position] = wanted[i];
        ASSERT_EQ(world->Hash(logits, static_cast<int>(i)), alone->logits[position])
            << "position " << position << ", prompt of " << alone->prompt << ", a step of " << total
            << " rows of " << chosen.size() << " sequences";
        ++compared_;
      }
      // Moves all sequences to another World (another backend and KV pool). There, the tokens that
      // a sequence has so far become its prompt.
      if (moves > 0 && Pick(0, 7) == 0) {
        --moves;
        for (Running& s : running) world->Give(&s.blocks);
        world = &AnyWorld();
        for (Running& s : running) {
          s.blocks = world->Take(s.alone->prompt + kGenerated);
          s.prefill = std::max(s.prefill, std::min(s.done + 1, s.alone->prompt + kGenerated));
          s.done = 0;
        }
      }
    }
    for (Running& s : running) world->Give(&s.blocks);
  }

  // Max tokens of a sequence. Attention is summed in spans of 1,024 keys. If IsLong() is true, the
  // sequences may be longer than one span, so that attention windows also begin in the second span.
  const int max_tokens_ = GetParam().IsLong() ? 1500 : 256;
  std::vector<Isa> isas_;
  std::map<std::array<int, 3>, std::unique_ptr<World>> worlds_;
  std::mt19937 random_;
  int compared_ = 0;
};

TEST_P(BatchInvarianceTest, LogitsHaveTheSameBitsOnEveryPath) {
  const uint32_t seed = FromEnvironment("BATON_SEED", 20261121);
  uint32_t cases = FromEnvironment("BATON_CASES", 10);
  if (GetParam().IsLong()) cases = (cases + 4) / 5;
  random_.seed(seed);
  World& plain = WorldOf(1, isas_.front(), 16);
  std::vector<Alone> all;
  for (const int longest : {1, 5, 40, 90}) {
    const int max = std::min(longest, plain.model().config().context - kGenerated);
    all.push_back(RunAlone(plain, Pick(std::max(1, max / 2), max)));
  }
  if (GetParam().IsLong()) all.push_back(RunAlone(plain, Pick(1340, max_tokens_ - kGenerated)));
  for (uint32_t i = 0; i < cases; ++i) {
    random_.seed(seed + i);
    RunTogether(all);
    ASSERT_FALSE(HasFatalFailure() || HasNonfatalFailure()) << "seed " << seed << ", case " << i;
  }
  EXPECT_GT(compared_, static_cast<int>(cases));
  RecordProperty("compared", compared_);
}

INSTANTIATE_TEST_SUITE_P(Cpu, BatchInvarianceTest, testing::ValuesIn(AllNumericsCases()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace baton
