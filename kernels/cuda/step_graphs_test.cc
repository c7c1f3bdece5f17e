#include "kernels/cuda/step_graphs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/sampling/sampler.h"
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
  size_t most_partial_bytes = size_t{64} << 20;
};

class Decoder {
 public:
  static constexpr int kHidden = 24, kVocab = 40, kBlocks = 96;

  Decoder(const TestDevice& device, const Shape& shape, bool graphs)
      : device_(device),
        shape_(shape),
        layout_{static_cast<int>(shape.windows.size()), shape.kv_heads, shape.head_dim,
                shape.block_tokens, shape.kv_type},
        backend_(device
                     .CreateBackend({.graphs = graphs,
                                     .graph_counts = &counts_,
                                     .most_partial_bytes = shape.most_partial_bytes})
                     .value()),
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

  // What is drawn from the logits of each one's last token.
  struct Draws {
    std::vector<const DrawOptions*> options;
    std::vector<int> follows;
    absl::Span<DrawnToken> drawn;
  };

  // The logits of each one's last token go to `logits`, but where a token is drawn from them.
  absl::Status Start(const std::vector<Item>& items, absl::Span<float> logits, bool recorded = true,
                     const Draws& draws = {}) {
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
                                .follows = draws.follows,
                                .sequences = sequences,
                                .ropes = ropes,
                                .kv = {pools_.back(), layout_},
                                .logit_rows = logit_rows,
                                .draws = draws.options,
                                .logits = logits,
                                .drawn = draws.drawn},
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
void ExpectSameBits(const Shape& shape, uint32_t seed, int steps, int longest,
                    double least_replayed = 0.5) {
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
  EXPECT_GE(counts.replayed, decodes * least_replayed) << counts.recorded << " recorded";
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

// Partial results of four rows at a time, which are few enough to be done in parts and not
// recorded, and enough to be recorded by turns.
TEST(RecordedStepTest, HasTheBitsOfItsRowsAloneWhereThereIsRoomForFew) {
  const Shape shape = {.head_dim = 64,
                       .heads = 4,
                       .kv_heads = 2,
                       .block_tokens = 16,
                       .context = 600,
                       .most_partial_bytes = 4 * 4 * 66 * sizeof(float)};
  ExpectSameBits(shape, 3, 50, 60, /*least_replayed=*/0.1);
}

std::vector<Decoder::Item> Batch(int sequences, int position, int block_tokens) {
  std::vector<Decoder::Item> items;
  for (int s = 0; s < sequences; ++s) {
    Decoder::Item item = {
        .id = s, .tokens = {(s * 5 + position * 3) % Decoder::kVocab}, .first_position = position};
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

TEST(RecordedStepTest, ThatCannotBeRecordedRunsAsItIs) {
  const Shape shape;
  const TestDevice device(SeededDevice(1));
  Decoder recorded(device, shape, true), alone(device, shape, false);
  for (int i = 0; i < 4; ++i) {
    recorded.fails = i == 1;  // when it is recorded
    EXPECT_EQ(recorded.Run(Batch(2, i, shape.block_tokens)),
              alone.Run(Batch(2, i, shape.block_tokens), false));
  }
  EXPECT_EQ(recorded.counts().refused, 1);
  EXPECT_EQ(recorded.counts().recorded, 0);
  // Of another size.
  for (int i = 0; i < 2; ++i) recorded.Run(Batch(3, i, shape.block_tokens));
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

// How sequences draw in the tests below: greedy, open, and with all kinds of options.
SamplingOptions SomeSampling(int id) {
  SamplingOptions options;
  options.seed = 100 + id / 2;
  options.answer_index = id % 2;
  options.logprobs = id % 3 - 1 < 0 ? std::nullopt : std::optional<int>(id % 3);
  if (id % 4 == 0) return options;
  options.temperature = 0.5f + id;
  if (id % 4 == 2) options.top_k = 7;
  if (id % 4 == 3) {
    options.top_p = 0.9f;
    options.logit_bias = {{3, 4.0f}, {5, -2.0f}};
    options.frequency_penalty = 0.5f;
    options.repetition_penalty = 1.5f;
    options.stop_tokens = {1, 2, 30};
    options.min_tokens = 4;
  }
  return options;
}

DrawOptions DrawOf(const SamplingOptions& options, int id, int position,
                   const TokenHistory* history) {
  return {.temperature = options.temperature,
          .top_p = options.top_p,
          .top_k = options.top_k,
          .min_p = options.min_p,
          .seed = options.seed,
          .answer_index = options.answer_index,
          .position = position,
          .logit_bias = options.logit_bias,
          .stop_tokens = options.stop_tokens,
          .min_tokens = options.min_tokens,
          .generated = position - 1,
          .alternatives = options.logprobs.value_or(-1),
          .sequence = options.LooksBack() ? id + 1u : 0u,
          .repetition_penalty = options.repetition_penalty,
          .presence_penalty = options.presence_penalty,
          .frequency_penalty = options.frequency_penalty,
          .history = history};
}

// Answers of some sequences that come and go, drawn on the device and fed to the next step there,
// with two steps running: those that Sampler draws from the logits of each alone.
TEST(DrawnStepTest, TokensFollowOnTheDevice) {
  constexpr int kSequences = 5, kSteps = 12;
  const int begins[] = {0, 0, 0, 0, 3}, ends[] = {5, 12, 12, 7, 12};  // steps of each
  const Shape shape;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const TestDevice device(SeededDevice(seed));
    Decoder recorded(device, shape, true), alone(device, shape, false);
    std::vector<std::vector<SampledToken>> expected(kSequences);
    Sampler sampler;
    const auto first = Batch(kSequences, 0, shape.block_tokens);
    std::vector<TokenHistory> histories;
    for (int s = 0; s < kSequences; ++s) {
      TokenHistory history(first[s].tokens, 1);
      histories.push_back(history);
      for (int i = 0; i < ends[s] - begins[s]; ++i) {
        auto item = Batch(kSequences, i, shape.block_tokens)[s];
        if (i > 0) item.tokens = {expected[s].back().id};
        auto logits = alone.Run({item}, false);
        expected[s].push_back(
            sampler.Sample(absl::MakeSpan(logits), SomeSampling(s), i + 1, i, &history).value());
        history.Append(expected[s].back().id);
      }
    }
    std::vector<DrawnToken> drawn[2];
    std::vector<int> order[2];  // of sequences, another one each time
    for (int i = 0; i <= kSteps; ++i) {
      if (i < kSteps) {
        std::vector<int>& now = order[i % 2];
        now.clear();
        for (int j = 0; j < kSequences; ++j) {
          const int s = (j + i) % kSequences;
          if (begins[s] <= i && i < ends[s]) now.push_back(s);
        }
        drawn[i % 2].assign(now.size(), {});
        std::vector<Decoder::Item> items;
        std::vector<SamplingOptions> sampling;
        std::vector<DrawOptions> options(now.size());
        Decoder::Draws draws = {.drawn = absl::MakeSpan(drawn[i % 2])};
        for (const int s : now) sampling.push_back(SomeSampling(s));
        for (size_t j = 0; j < now.size(); ++j) {
          const int s = now[j], position = i - begins[s];
          auto item = Batch(kSequences, position, shape.block_tokens)[s];
          draws.follows.push_back(-1);
          if (position > 0) {
            item.tokens = {-1};
            const auto& before = order[(i - 1) % 2];
            draws.follows.back() =
                static_cast<int>(std::find(before.begin(), before.end(), s) - before.begin());
          }
          items.push_back(item);
          options[j] = DrawOf(sampling[j], s, position + 1, &histories[s]);
          draws.options.push_back(&options[j]);
        }
        ASSERT_EQ(recorded.Start(items, {}, true, draws), absl::OkStatus());
      }
      if (i == 0) continue;
      ASSERT_EQ(recorded.backend().FinishStep(), absl::OkStatus());
      for (size_t j = 0; j < drawn[(i - 1) % 2].size(); ++j) {
        const int s = order[(i - 1) % 2][j];
        const SampledToken& wanted = expected[s][i - 1 - begins[s]];
        const DrawnToken& got = drawn[(i - 1) % 2][j];
        EXPECT_EQ(got.status, absl::OkStatus());
        EXPECT_EQ(got.id, wanted.id) << "step " << i - 1 << ", sequence " << s;
        EXPECT_EQ(got.logprob, wanted.logprob.value_or(0));
        ASSERT_EQ(got.top.size(), wanted.top.size());
        for (size_t t = 0; t < wanted.top.size(); ++t) {
          EXPECT_EQ(got.top[t], std::pair(wanted.top[t].id, wanted.top[t].logprob));
        }
      }
    }
    EXPECT_EQ(recorded.Pool(), alone.Pool());
    EXPECT_GE(recorded.counts().replayed, kSteps - 7);
  }
}

// Rows that the host draws beside those of the device; steps that are not recorded beside those
// that are.
TEST(DrawnStepTest, LogitsOfTheOtherRowsReachTheHost) {
  constexpr int kSequences = 5;
  const Shape shape;
  const TestDevice device(SeededDevice(3));
  Decoder recorded(device, shape, true), alone(device, shape, false);
  Sampler sampler;
  for (int i = 0; i < 6; ++i) {
    const auto items = Batch(kSequences, i, shape.block_tokens);
    const std::vector<bool> on_device = {i % 2 == 0, false, true, i > 3, false};
    std::vector<SamplingOptions> sampling;
    for (int s = 0; s < kSequences; ++s) sampling.push_back(SomeSampling(s % 3));
    std::vector<DrawOptions> options(kSequences);
    Decoder::Draws draws;
    std::vector<float> expected;
    std::vector<TokenId> expected_tokens;
    for (int s = 0; s < kSequences; ++s) {
      options[s] = DrawOf(sampling[s], s, i + 1, nullptr);
      draws.options.push_back(on_device[s] ? &options[s] : nullptr);
      auto logits = alone.Run({items[s]}, false);
      if (on_device[s]) {
        expected_tokens.push_back(
            sampler.Sample(absl::MakeSpan(logits), sampling[s], i + 1, 0)->id);
      } else {
        expected.insert(expected.end(), logits.begin(), logits.end());
      }
    }
    std::vector<float> logits(expected.size());
    std::vector<DrawnToken> drawn(expected_tokens.size());
    draws.drawn = absl::MakeSpan(drawn);
    const bool is_recorded = i != 2;
    ASSERT_EQ(recorded.Start(items, absl::MakeSpan(logits), is_recorded, draws), absl::OkStatus());
    ASSERT_EQ(recorded.backend().FinishStep(), absl::OkStatus());
    EXPECT_EQ(logits, expected) << "step " << i;
    for (size_t j = 0; j < drawn.size(); ++j) EXPECT_EQ(drawn[j].id, expected_tokens[j]);
  }
}

TEST(DrawnStepTest, ARowFollowsOnlyWhatWasDrawn) {
  const Shape shape;
  const TestDevice device(SeededDevice(1));
  Decoder decoder(device, shape, true);
  const auto items = Batch(2, 0, shape.block_tokens);
  const DrawOptions greedy = {.position = 1};
  std::vector<DrawnToken> drawn(1);
  std::vector<float> logits(Decoder::kVocab);
  const auto start = [&](std::vector<int> follows) {
    return decoder.Start(items, absl::MakeSpan(logits), true,
                         {.options = {nullptr, &greedy},
                          .follows = std::move(follows),
                          .drawn = absl::MakeSpan(drawn)});
  };
  EXPECT_EQ(start({0, -1}).code(), absl::StatusCode::kInvalidArgument) << "nothing was drawn yet";
  ASSERT_EQ(start({}), absl::OkStatus());
  for (const int bad : {0, 2, -2}) {
    EXPECT_EQ(start({bad, -1}).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(start({1, -1}), absl::OkStatus()) << "what was refused changed nothing";
  EXPECT_EQ(decoder.backend().FinishStep(), absl::OkStatus());
  EXPECT_EQ(decoder.backend().FinishStep(), absl::OkStatus());
}

TEST(DrawnStepTest, ARowWithoutATokenTellsWhyAndTheOthersHaveTheirs) {
  const Shape shape;
  const TestDevice device(SeededDevice(1));
  Decoder decoder(device, shape, true);
  const auto items = Batch(2, 0, shape.block_tokens);
  std::vector<TokenId> all(Decoder::kVocab);
  std::iota(all.begin(), all.end(), 0);
  std::vector<DrawnToken> drawn(2);
  const auto start = [&](const DrawOptions& first) {
    const DrawOptions greedy = {.position = 1};
    return decoder.Start(items, {}, true,
                         {.options = {&first, &greedy}, .drawn = absl::MakeSpan(drawn)});
  };
  ASSERT_EQ(start({.position = 1, .banned = all}), absl::OkStatus());
  ASSERT_EQ(decoder.backend().FinishStep(), absl::OkStatus());
  EXPECT_EQ(drawn[0].status.code(), absl::StatusCode::kInvalidArgument) << drawn[0].status;
  EXPECT_EQ(drawn[1].status, absl::OkStatus());

  EXPECT_EQ(start({.position = 1, .presence_penalty = 1}).code(),
            absl::StatusCode::kInvalidArgument);
  const std::vector<TokenId> many(300, 1);
  EXPECT_EQ(start({.position = 1, .banned = many, .stop_tokens = all, .min_tokens = 1}).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(start({.position = 1, .banned = many}), absl::OkStatus());
  ASSERT_EQ(decoder.backend().FinishStep(), absl::OkStatus());
  EXPECT_EQ(drawn[0].status, absl::OkStatus());
  EXPECT_NE(drawn[0].id, 1);
}

}  // namespace
}  // namespace baton
