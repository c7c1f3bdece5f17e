#include "kernels/cuda/step_graphs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/test_device.h"
#include "kernels/element.h"

namespace baton {
namespace {

TEST(StepGraphsTest, RowsGoUpInSmallSteps) {
  std::vector<int> all;
  for (int rows = 1; rows <= 512; ++rows) {
    const int padded = StepGraphs::RowsFor(rows, 1000);
    ASSERT_GE(padded, rows);
    if (all.empty() || all.back() != padded) all.push_back(padded);
  }
  EXPECT_THAT(all,
              testing::ElementsAre(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512));
  EXPECT_EQ(StepGraphs::RowsFor(513, 1000), 0);
  EXPECT_EQ(StepGraphs::RowsFor(0, 1000), 0);
  EXPECT_EQ(StepGraphs::RowsFor(33, 40), 40) << "no more than tensors have room for";
  EXPECT_EQ(StepGraphs::RowsFor(41, 40), 0);
}

// A small decoder of random weights, on a pool of its own.
struct Shape {
  int head_dim = 16, heads = 2, kv_heads = 1, block_tokens = 4, context = 64, max_rows = 8;
  std::vector<int> windows = {0, 0};  // of each layer
  DType kv_type = DType::kBF16;
};

class Decoder {
 public:
  static constexpr int kHidden = 24, kVocab = 40, kBlocks = 96;

  Decoder(const TestDevice& device, const Shape& shape, bool graphs)
      : device_(device),
        shape_(shape),
        layout_{static_cast<int>(shape.windows.size()), shape.kv_heads, shape.head_dim,
                shape.block_tokens, shape.kv_type},
        backend_(device.CreateBackend(graphs, &counts_).value()),
        program_(backend_->NewProgram()) {
    std::mt19937 random(7);
    const auto weight = [&](int rows, int cols) {
      std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(cols)));
      std::vector<float> values(static_cast<size_t>(rows) * cols);
      for (float& value : values) value = normal(random);
      kept_.push_back(std::move(values));
      return backend_->LoadWeight({kept_.back().data(), DType::kF32, rows, cols}).value();
    };
    const int queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
    table_ = weight(kVocab, kHidden);
    norm_ = weight(1, kHidden);
    bias_ = weight(1, queries);
    for (int i = 0; i < layout_.layers; ++i) {
      q_w_.push_back(weight(queries, kHidden));
      k_w_.push_back(weight(keys, kHidden));
      v_w_.push_back(weight(keys, kHidden));
      o_w_.push_back(weight(kHidden, queries));
    }
    hidden_ = backend_->Allocate(shape.max_rows, kHidden).value();
    normed_ = backend_->Allocate(shape.max_rows, kHidden).value();
    q_ = backend_->Allocate(shape.max_rows, queries).value();
    k_ = backend_->Allocate(shape.max_rows, keys).value();
    v_ = backend_->Allocate(shape.max_rows, keys).value();
    out_ = backend_->Allocate(shape.max_rows, queries).value();
    for (int i = 0; i < shape.head_dim / 2; ++i) {
      frequencies_[0].push_back(std::pow(100.0f, -2.0f * i / shape.head_dim));
      frequencies_[1].push_back(frequencies_[0].back() / 2);
    }
    NewPool();
  }
  ~Decoder() {
    for (std::byte* pool : pools_) device_.runtime().Free(pool);
  }

  // From now on KV is in another place; what there was is there too.
  void NewPool() {
    const size_t bytes = kBlocks * layout_.BlockBytes();
    std::byte* const pool = device_.runtime().Allocate(bytes).value();
    std::vector<std::byte> content(bytes, std::byte{0x3c});
    if (!pools_.empty()) device_.Copy(content.data(), pools_.back(), bytes);
    device_.Copy(pool, content.data(), bytes);
    pools_.push_back(pool);
  }
  std::vector<std::byte> Pool() const {
    std::vector<std::byte> content(kBlocks * layout_.BlockBytes());
    device_.Copy(content.data(), pools_.back(), content.size());
    return content;
  }

  // Some tokens of one sequence. Every second one has another rotary table.
  struct Item {
    int id = 0;
    std::vector<TokenId> tokens;
    int first_position = 0;
    std::vector<BlockId> blocks;
  };

  // The logits of each one's last token go to `logits`.
  absl::Status Start(const std::vector<Item>& items, absl::Span<float> logits,
                     bool recorded = true) {
    std::vector<TokenId> tokens;
    std::vector<SequenceRows> sequences;
    std::vector<Rope> ropes;
    std::vector<int> logit_rows;
    for (const Item& item : items) {
      sequences.push_back({static_cast<int>(tokens.size()), static_cast<int>(item.tokens.size()),
                           item.first_position, item.blocks});
      ropes.push_back({frequencies_[item.id % 2], 1});
      tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
      logit_rows.push_back(static_cast<int>(tokens.size()) - 1);
    }
    return backend_->StartStep({.program = recorded ? program_ : 0,
                                .max_rows = shape_.max_rows,
                                .context = shape_.context,
                                .vocab = kVocab,
                                .tokens = tokens,
                                .sequences = sequences,
                                .ropes = ropes,
                                .kv = {pools_.back(), layout_},
                                .logit_rows = logit_rows,
                                .logits = logits},
                               [&](const StepArgs& step) { return Operations(step); });
  }
  std::vector<float> Run(const std::vector<Item>& items, bool recorded = true) {
    std::vector<float> logits(items.size() * kVocab);
    EXPECT_EQ(Start(items, absl::MakeSpan(logits), recorded), absl::OkStatus());
    EXPECT_EQ(backend_->FinishStep(), absl::OkStatus());
    return logits;
  }

  Backend& backend() { return *backend_; }
  const StepGraphCounts& counts() const { return counts_; }
  bool fails = false;  // operations call what may not be recorded

 private:
  absl::Status Operations(const StepArgs& step) {
    const auto first = [&](Tensor tensor) {
      tensor.rows = static_cast<int>(step.tokens.size());
      return tensor;
    };
    const Tensor hidden = first(hidden_), normed = first(normed_), q = first(q_), k = first(k_),
                 v = first(v_), out = first(out_);
    absl::Status status = backend_->Embed({table_, step.tokens, hidden});
    const auto then = [&](const absl::Status& next) {
      if (status.ok()) status = next;
    };
    for (int i = 0; i < layout_.layers; ++i) {
      then(backend_->RmsNorm({hidden, norm_, 1e-5f, normed}));
      then(backend_->Gemm({normed, q_w_[i], bias_, false, q}));
      then(backend_->Gemm({normed, k_w_[i], {}, false, k}));
      then(backend_->Gemm({normed, v_w_[i], {}, false, v}));
      then(backend_->RopeAndWriteKv({q, k, v, step.ropes, i, step.sequences, step.kv}));
      then(backend_->Attention(
          {q, shape_.heads, 0.3f, shape_.windows[i], i, step.sequences, step.kv, out}));
      then(backend_->Gemm({out, o_w_[i], {}, true, hidden}));
    }
    if (fails) then(backend_->Synchronize());
    then(backend_->RmsNorm({hidden, norm_, 1e-5f, normed}));
    then(backend_->Logits({normed, table_, step.logit_rows, step.logits}));
    return status;
  }

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

// Sequences that come, grow by a token a step, and go, all at random. Ends of prompts are chunks of
// several rows.
class Traffic {
 public:
  Traffic(const Shape& shape, uint32_t seed, int most, int longest)
      : shape_(shape), most_(most), longest_(longest), random_(seed) {
    for (int i = 0; i < Decoder::kBlocks; ++i) free_.push_back(i);
    std::shuffle(free_.begin(), free_.end(), random_);
  }

  // Empty: nothing to do now. `prompt`: it is the prompt of one that comes.
  std::vector<Decoder::Item> Next(bool* prompt) {
    *prompt = static_cast<int>(running_.size()) < most_ && Pick(3) == 0;
    if (*prompt) {
      Decoder::Item item = {.id = ids_++, .first_position = 0};
      const int length = 1 + Pick(std::min(longest_ - 1, shape_.max_rows));
      for (int i = 0; i < length; ++i) item.tokens.push_back(Pick(Decoder::kVocab));
      running_.push_back(item);
      return {Grown(&running_.back())};
    }
    std::vector<Decoder::Item> step;
    for (size_t i = 0; i < running_.size();) {
      Decoder::Item& sequence = running_[i];
      const int end = sequence.first_position + static_cast<int>(sequence.tokens.size());
      if (end >= longest_ || Pick(40) == 0) {
        free_.insert(free_.begin(), sequence.blocks.begin(), sequence.blocks.end());
        running_.erase(running_.begin() + i);
        continue;
      }
      if (Pick(8) != 0) {  // the others wait
        sequence.first_position = end;
        sequence.tokens = {static_cast<TokenId>(Pick(Decoder::kVocab))};
        step.push_back(Grown(&sequence));
      }
      ++i;
    }
    return step;
  }

 private:
  int Pick(int below) { return static_cast<int>(random_() % below); }
  const Decoder::Item& Grown(Decoder::Item* item) {
    const int end = item->first_position + static_cast<int>(item->tokens.size());
    while (static_cast<int>(item->blocks.size()) * shape_.block_tokens < end) {
      item->blocks.push_back(free_.back());
      free_.pop_back();
    }
    return *item;
  }

  const Shape shape_;
  const int most_, longest_;
  std::mt19937 random_;
  int ids_ = 0;
  std::vector<BlockId> free_;
  std::vector<Decoder::Item> running_;
};

OpenedDevice SeededDevice(uint64_t seed) {
  OpenedDevice device = StrictDevice();
  device.runtime =
      CreateEmulatedRuntime({.seed = seed, .memory_bytes = size_t{64} << 20, .check = true})
          .value();
  return device;
}

// Every step of some traffic, recorded, against each sequence's rows alone and not recorded: logits
// and the whole pool.
void ExpectSameBits(const Shape& shape, uint32_t seed, int steps, int longest) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const TestDevice device(SeededDevice(seed));
  Decoder recorded(device, shape, /*graphs=*/true), alone(device, shape, /*graphs=*/false);
  Traffic traffic(shape, seed, shape.max_rows - 1, longest);
  int decodes = 0;
  for (int i = 0; i < steps; ++i) {
    bool prompt = false;
    const auto items = traffic.Next(&prompt);
    if (items.empty()) continue;
    decodes += !prompt;
    const auto got = recorded.Run(items);
    std::vector<float> expected;
    for (const Decoder::Item& item : items) {
      const auto logits = alone.Run({item}, /*recorded=*/false);
      expected.insert(expected.end(), logits.begin(), logits.end());
    }
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
        << "step " << i << " of " << items.size() << " sequences";
  }
  EXPECT_EQ(recorded.Pool(), alone.Pool());
  // Of four sizes, each run once before, and some of them again where memory had grown meanwhile.
  const StepGraphCounts& counts = recorded.counts();
  EXPECT_LE(counts.recorded, 12);
  EXPECT_GE(counts.recorded, 2);
  EXPECT_GE(counts.replayed, decodes / 2) << counts.recorded << " recorded";
  EXPECT_EQ(alone.counts().recorded, 0);
}

TEST(RecordedStepTest, HasTheBitsOfItsRowsAlone) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    ExpectSameBits({.windows = {0, 5}}, seed, 60, 40);
  }
  ExpectSameBits({.kv_type = DType::kF16}, 4, 40, 40);
}

// Heads that split attention takes; sequences that outgrow their window.
TEST(RecordedStepTest, HasTheBitsOfItsRowsAloneInSplitAttention) {
  const Shape shape = {.head_dim = 64,
                       .heads = 4,
                       .kv_heads = 2,
                       .block_tokens = 16,
                       .context = 600,
                       .windows = {0, 40, 40}};
  for (uint32_t seed = 1; seed <= 2; ++seed) ExpectSameBits(shape, seed, 40, 60);
}

std::vector<Decoder::Item> Batch(int sequences, int position, int block_tokens) {
  std::vector<Decoder::Item> items;
  for (int s = 0; s < sequences; ++s) {
    Decoder::Item item = {.id = s, .tokens = {s * 5 % Decoder::kVocab}, .first_position = position};
    for (int b = 0; b * block_tokens <= position; ++b) item.blocks.push_back(s + sequences * b);
    items.push_back(item);
  }
  return items;
}

TEST(RecordedStepTest, StaysGoodWhileSequencesGrowOverRangesAndBlocks) {
  const Shape shape = {.head_dim = 64, .block_tokens = 16, .context = 600};
  const TestDevice device(SeededDevice(5));
  Decoder recorded(device, shape, true), alone(device, shape, false);
  // KV of what came before: any numbers will do.
  for (const int position : {0, 1, 14, 15, 16, 254, 255, 256, 257, 400}) {
    const auto items = Batch(3, position, shape.block_tokens);
    const auto got = recorded.Run(items);
    for (int s = 0; s < 3; ++s) {
      const auto expected = alone.Run({items[s]}, false);
      EXPECT_EQ(
          std::memcmp(&got[s * Decoder::kVocab], expected.data(), sizeof(float) * expected.size()),
          0)
          << "position " << position << ", sequence " << s;
    }
  }
  EXPECT_EQ(recorded.counts().recorded, 1);
  EXPECT_EQ(recorded.counts().replayed, 8);
}

TEST(RecordedStepTest, IsRecordedAnewWhereMemoryMoved) {
  const Shape shape;
  const TestDevice device(SeededDevice(6));
  Decoder recorded(device, shape, true), alone(device, shape, false);
  const auto expect_same = [&](int position) {
    const auto items = Batch(3, position, shape.block_tokens);
    EXPECT_EQ(recorded.Run(items), alone.Run(items, false)) << position;
  };
  for (int i = 0; i < 3; ++i) expect_same(i);
  EXPECT_EQ(recorded.counts().recorded, 1);
  recorded.NewPool();
  for (int i = 3; i < 6; ++i) expect_same(i);
  EXPECT_EQ(recorded.counts().recorded, 2);
  EXPECT_EQ(recorded.Pool(), alone.Pool());
}

TEST(RecordedStepTest, TwoRunAtOnceAndTheOldestIsWaitedFor) {
  const Shape shape;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const TestDevice device(SeededDevice(seed));
    Decoder recorded(device, shape, true), alone(device, shape, false);
    Backend& backend = recorded.backend();
    EXPECT_EQ(backend.FinishStep().code(), absl::StatusCode::kFailedPrecondition);
    constexpr size_t kFloats = 3 * Decoder::kVocab;
    const auto memory = backend.AllocateResults(2 * kFloats).value();
    const auto result = [&](int step) {
      return absl::MakeSpan(memory.get() + step % 2 * kFloats, kFloats);
    };
    for (int step = 0; step <= 8; ++step) {
      if (step < 8) {
        EXPECT_EQ(recorded.Start(Batch(3, step, shape.block_tokens), result(step)),
                  absl::OkStatus());
      }
      if (step == 1) {
        std::vector<float> more(kFloats);
        EXPECT_EQ(recorded.Start(Batch(3, 2, shape.block_tokens), absl::MakeSpan(more)).code(),
                  absl::StatusCode::kFailedPrecondition);
      }
      if (step == 0) continue;
      EXPECT_EQ(backend.FinishStep(), absl::OkStatus());
      const auto expected = alone.Run(Batch(3, step - 1, shape.block_tokens), false);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), result(step - 1).begin()))
          << "seed " << seed << ", step " << step - 1;
    }
    EXPECT_EQ(recorded.counts().replayed, 6);
  }
}

TEST(RecordedStepTest, ThatCannotBeRecordedFailsAndLeavesTheBackendUsable) {
  const Shape shape;
  const TestDevice device(SeededDevice(1));
  Decoder recorded(device, shape, true), alone(device, shape, false);
  std::vector<float> logits(2 * Decoder::kVocab);
  recorded.Run(Batch(2, 0, shape.block_tokens));
  alone.Run(Batch(2, 0, shape.block_tokens), false);
  recorded.fails = true;
  const absl::Status status =
      recorded.Start(Batch(2, 1, shape.block_tokens), absl::MakeSpan(logits));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("--cuda-graphs=false"));
  recorded.fails = false;
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(recorded.Run(Batch(2, i, shape.block_tokens)),
              alone.Run(Batch(2, i, shape.block_tokens), false));
  }
  EXPECT_EQ(recorded.counts().recorded, 1);
}

TEST(RecordedStepTest, IsCheckedBeforeAnythingRuns) {
  const Shape shape;
  const TestDevice device(SeededDevice(1));
  Decoder decoder(device, shape, true);
  const auto before = decoder.Pool();
  std::vector<float> logits(2 * Decoder::kVocab);
  const auto refused = [&](const auto& change, const std::string& told) {
    auto items = Batch(2, 5, shape.block_tokens);
    change(items[1]);
    const absl::Status status = decoder.Start(items, absl::MakeSpan(logits));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(told));
  };
  refused([](auto& item) { item.tokens = {Decoder::kVocab}; }, "token 40");
  refused([](auto& item) { item.blocks[0] = -1; }, "block -1");
  refused([](auto& item) { item.blocks.pop_back(); }, "1 blocks");
  refused(
      [](auto& item) {
        item.first_position = 64;
        item.blocks.resize(40);
      },
      "position 64");
  logits.pop_back();
  refused([](auto&) {}, "room for 79 logits");
  EXPECT_EQ(decoder.Pool(), before);
}

}  // namespace
}  // namespace baton
