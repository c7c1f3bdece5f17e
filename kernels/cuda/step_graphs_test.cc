#include "kernels/cuda/step_graphs.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/small_decoder.h"
#include "kernels/device/emulated/emulated_runtime.h"

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

// Runs numbered steps. Each step writes its number to device memory.
class NumberedStepsTest : public testing::Test {
 protected:
  ~NumberedStepsTest() override { runtime_->Free(memory_); }

  // Runs step number `step` and returns the number that is in device memory afterwards.
  int Run(int step) {
    const auto ops = [&] {
      return runtime_->Fill(memory_, static_cast<uint8_t>(step), 1, *stream_);
    };
    const auto given = [] { return StepGraphs::Given{1}; };
    EXPECT_TRUE(graphs_.Run(1 + step % 4, step / 4, given, ops).ok());
    uint8_t left = 0;
    EXPECT_TRUE(runtime_->Copy(&left, memory_, 1, *stream_).ok());
    EXPECT_TRUE(runtime_->Synchronize(*stream_).ok());
    return left;
  }

  const std::unique_ptr<DeviceRuntime> runtime_ =
      CreateEmulatedRuntime({.memory_bytes = size_t{1} << 20}).value();
  const std::unique_ptr<DeviceStream> stream_ = *runtime_->CreateStream();
  std::byte* const memory_ = *runtime_->Allocate(16);
  StepGraphCounts counts_;
  StepGraphs graphs_{runtime_.get(), stream_.get(), &counts_};
};

TEST_F(NumberedStepsTest, OfTooManyGraphsThoseReplayedLongestAgoAreDropped) {
  constexpr int kMax = StepGraphs::kMaxGraphs;
  const auto run_all = [this](int from, int to) {
    for (int step = from; step < to; ++step) EXPECT_EQ(Run(step), step);
  };
  for (int round = 0; round < 3; ++round) run_all(0, kMax);
  EXPECT_EQ(counts_.recorded, kMax);
  EXPECT_EQ(counts_.replayed, kMax);
  EXPECT_EQ(counts_.dropped, 0);
  // To record two more graphs, the graphs of steps 1 and 2 are dropped, because the graph of step 0
  // was replayed later.
  EXPECT_EQ(Run(0), 0);
  for (int round = 0; round < 3; ++round) run_all(kMax, kMax + 2);
  EXPECT_EQ(counts_.recorded, kMax + 2);
  EXPECT_EQ(counts_.dropped, 2);
  const int replayed = counts_.replayed;
  EXPECT_EQ(Run(0), 0);
  run_all(3, kMax + 2);
  EXPECT_EQ(counts_.replayed, replayed + kMax);
  // In the first round, step 1 runs without a graph. In the second round it is recorded, and the
  // graph of step 0 is dropped.
  for (int round = 0; round < 2; ++round) EXPECT_EQ(Run(1), 1);
  EXPECT_EQ(counts_.recorded, kMax + 3);
  EXPECT_EQ(counts_.dropped, 3);
  EXPECT_EQ(Run(0), 0);
  EXPECT_EQ(counts_.replayed, replayed + kMax) << "0 was the oldest";
}

// Random traffic: sequences arrive, grow by one token per step, and end. A prompt is one step of
// several rows.
class Traffic {
 public:
  Traffic(const SmallDecoder::Shape& shape, uint32_t seed, int max, int longest)
      : shape_(shape), max_(max), longest_(longest), random_(seed) {
    for (int i = 0; i < SmallDecoder::kBlocks; ++i) free_.push_back(i);
    std::shuffle(free_.begin(), free_.end(), random_);
  }

  // Returns the items of the next step; empty if there is none. `*prompt` is true if the step is
  // the prompt of a new sequence.
  std::vector<SmallDecoder::Item> Next(bool* prompt) {
    *prompt = static_cast<int>(running_.size()) < max_ && Pick(3) == 0;
    if (*prompt) {
      SmallDecoder::Item item = {.id = ids_++, .first_position = 0};
      const int length = 1 + Pick(std::min(longest_ - 1, shape_.max_rows));
      for (int i = 0; i < length; ++i) item.tokens.push_back(Pick(SmallDecoder::kVocab));
      running_.push_back(item);
      return {Grown(&running_.back())};
    }
    std::vector<SmallDecoder::Item> step;
    for (size_t i = 0; i < running_.size();) {
      SmallDecoder::Item& sequence = running_[i];
      const int end = sequence.first_position + static_cast<int>(sequence.tokens.size());
      if (end >= longest_ || Pick(40) == 0) {
        free_.insert(free_.begin(), sequence.blocks.begin(), sequence.blocks.end());
        running_.erase(running_.begin() + i);
        continue;
      }
      if (Pick(8) != 0) {  // the other sequences are not in this step
        sequence.first_position = end;
        sequence.tokens = {static_cast<TokenId>(Pick(SmallDecoder::kVocab))};
        step.push_back(Grown(&sequence));
      }
      ++i;
    }
    return step;
  }

 private:
  int Pick(int below) { return static_cast<int>(random_() % below); }
  const SmallDecoder::Item& Grown(SmallDecoder::Item* item) {
    const int end = item->first_position + static_cast<int>(item->tokens.size());
    while (static_cast<int>(item->blocks.size()) * shape_.block_tokens < end) {
      item->blocks.push_back(free_.back());
      free_.pop_back();
    }
    return *item;
  }

  const SmallDecoder::Shape shape_;
  const int max_, longest_;
  std::mt19937 random_;
  int ids_ = 0;
  std::vector<BlockId> free_;
  std::vector<SmallDecoder::Item> running_;
};

// Runs random traffic with recorded steps. The logits of every step, and the whole pool at the end,
// must have the same bits as if each sequence ran alone and no step were recorded.
void ExpectSameBits(const SmallDecoder::Shape& shape, uint32_t seed, int steps, int longest,
                    double min_replayed = 0.5) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const TestDevice device(SeededDevice(seed));
  SmallDecoder recorded(device, shape, /*graphs=*/true), alone(device, shape, /*graphs=*/false);
  Traffic traffic(shape, seed, shape.max_rows - 1, longest);
  int decodes = 0;
  for (int i = 0; i < steps; ++i) {
    bool prompt = false;
    const auto items = traffic.Next(&prompt);
    if (items.empty()) continue;
    decodes += !prompt;
    const auto got = recorded.Run(items);
    std::vector<float> expected;
    for (const SmallDecoder::Item& item : items) {
      const auto logits = alone.Run({item}, /*recorded=*/false);
      expected.insert(expected.end(), logits.begin(), logits.end());
    }
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
        << "step " << i << " of " << items.size() << " sequences";
  }
  EXPECT_EQ(recorded.Pool(), alone.Pool());
  // Steps have four sizes. The first step of each size runs without a graph, and a later one is
  // recorded as a graph. Some sizes are recorded again because memory has grown.
  const StepGraphCounts& counts = recorded.counts();
  EXPECT_LE(counts.recorded, 12);
  EXPECT_GE(counts.recorded, 2);
  EXPECT_GE(counts.replayed, decodes * min_replayed) << counts.recorded << " recorded";
  EXPECT_EQ(alone.counts().recorded, 0);
}

TEST(RecordedStepTest, HasTheBitsOfItsRowsAlone) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    ExpectSameBits({.windows = {0, 5}}, seed, 60, 40);
  }
  ExpectSameBits({.kv_type = DType::kF16}, 4, 40, 40);
}

// The model has a head size that split attention supports, and sequences that become longer than
// the attention window.
TEST(RecordedStepTest, HasTheBitsOfItsRowsAloneInSplitAttention) {
  const SmallDecoder::Shape shape = {.head_dim = 64,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .block_tokens = 16,
                                     .context = 600,
                                     .windows = {0, 40, 40}};
  for (uint32_t seed = 1; seed <= 2; ++seed) ExpectSameBits(shape, seed, 40, 60);
}

// The memory for partial results suffices for four rows. So some steps compute their attention in
// several parts and are not recorded as graphs, and others are recorded.
TEST(RecordedStepTest, HasTheBitsOfItsRowsAloneWhereThereIsRoomForFew) {
  const SmallDecoder::Shape shape = {.head_dim = 64,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .block_tokens = 16,
                                     .context = 600,
                                     .max_partial_bytes = 4 * 4 * 66 * sizeof(float)};
  ExpectSameBits(shape, 3, 50, 60, /*min_replayed=*/0.1);
}

// The layers have nine different attention windows, but plans (lists of work items) are kept for
// only eight windows.
TEST(RecordedStepTest, HasTheBitsOfItsRowsAloneWithManyWindows) {
  const SmallDecoder::Shape shape = {.head_dim = 64,
                                     .block_tokens = 16,
                                     .context = 600,
                                     .windows = {15, 2, 3, 5, 7, 9, 11, 13, 15, 0}};
  const TestDevice device(SeededDevice(7));
  SmallDecoder recorded(device, shape, true), alone(device, shape, false);
  // At these positions, keys extend beyond the first range (256 keys).
  for (int position = 290; position < 300; ++position) {
    const auto items = Batch(2 + position % 2, position, shape.block_tokens);
    EXPECT_EQ(recorded.Run(items), alone.Run(items, false)) << position;
  }
  EXPECT_EQ(recorded.Pool(), alone.Pool());
  // Steps of both sizes are recorded once. The first size is recorded only at its third step: the
  // first step of the second size allocated other memory, and a graph keeps the addresses of its
  // memory.
  EXPECT_EQ(recorded.counts().recorded, 2);
  EXPECT_EQ(recorded.counts().replayed, 5);
}

TEST(RecordedStepTest, StaysGoodWhileSequencesGrowOverRangesAndBlocks) {
  const SmallDecoder::Shape shape = {.head_dim = 64, .block_tokens = 16, .context = 600};
  const TestDevice device(SeededDevice(5));
  SmallDecoder recorded(device, shape, true), alone(device, shape, false);
  // The positions jump, so keys and values of most earlier positions were never computed. For these
  // positions, both decoders read the initial bytes of their pools, which are equal.
  for (const int position : {0, 1, 14, 15, 16, 254, 255, 256, 257, 400}) {
    const auto items = Batch(3, position, shape.block_tokens);
    const auto got = recorded.Run(items);
    for (int s = 0; s < 3; ++s) {
      const auto expected = alone.Run({items[s]}, false);
      EXPECT_EQ(std::memcmp(&got[s * SmallDecoder::kVocab], expected.data(),
                            sizeof(float) * expected.size()),
                0)
          << "position " << position << ", sequence " << s;
    }
  }
  EXPECT_EQ(recorded.counts().recorded, 1);
  EXPECT_EQ(recorded.counts().replayed, 8);
}

TEST(RecordedStepTest, IsRecordedAnewWhereMemoryMoved) {
  const SmallDecoder::Shape shape;
  const TestDevice device(SeededDevice(6));
  SmallDecoder recorded(device, shape, true), alone(device, shape, false);
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

// Returns a prompt chunk of seven tokens of one sequence, in blocks of its own.
SmallDecoder::Item ChunkOfSeven(int first_position, int block_tokens) {
  SmallDecoder::Item item = {.tokens = {1, 2, 3, 4, 5, 6, 7}, .first_position = first_position};
  for (int b = 0; b * block_tokens < first_position + 7; ++b) {
    item.blocks.push_back(SmallDecoder::kBlocks - 1 - b);
  }
  return item;
}

// In this test only the partial results of attention move to other memory: the second chunk has a
// longer context than the first one, and so more ranges of keys. No other memory grows, because
// both chunks have the same number of rows.
TEST(RecordedStepTest, IsRecordedAnewWherePartialResultsOfAttentionMoved) {
  const SmallDecoder::Shape shape = {
      .head_dim = 64, .heads = 4, .kv_heads = 2, .block_tokens = 16, .context = 600};
  const TestDevice device(SeededDevice(6));
  SmallDecoder recorded(device, shape, true), alone(device, shape, false);
  const auto expect_same = [&](const std::vector<SmallDecoder::Item>& items) {
    EXPECT_EQ(recorded.Run(items), alone.Run(items, false)) << items[0].first_position;
  };
  expect_same({ChunkOfSeven(0, shape.block_tokens)});
  for (int i = 0; i < 3; ++i) expect_same(Batch(2, i, shape.block_tokens));
  EXPECT_EQ(recorded.counts().recorded, 1);
  EXPECT_EQ(recorded.counts().replayed, 1);
  expect_same({ChunkOfSeven(590, shape.block_tokens)});
  for (int i = 3; i < 6; ++i) expect_same(Batch(2, i, shape.block_tokens));
  EXPECT_EQ(recorded.counts().recorded, 2);
  EXPECT_EQ(recorded.counts().replayed, 2);
  EXPECT_EQ(recorded.Pool(), alone.Pool());
}

TEST(RecordedStepTest, TwoRunAtOnceAndTheOldestIsWaitedFor) {
  const SmallDecoder::Shape shape;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const TestDevice device(SeededDevice(seed));
    SmallDecoder recorded(device, shape, true), alone(device, shape, false);
    Backend& backend = recorded.backend();
    EXPECT_EQ(backend.FinishStep().code(), absl::StatusCode::kFailedPrecondition);
    constexpr size_t kFloats = 3 * SmallDecoder::kVocab;
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
  const SmallDecoder::Shape shape;
  const TestDevice device(SeededDevice(1));
  SmallDecoder recorded(device, shape, true), alone(device, shape, false);
  for (int i = 0; i < 4; ++i) {
    recorded.fails = i == 1;  // step 1 fails while it is being recorded
    EXPECT_EQ(recorded.Run(Batch(2, i, shape.block_tokens)),
              alone.Run(Batch(2, i, shape.block_tokens), false));
  }
  EXPECT_EQ(recorded.counts().refused, 1);
  EXPECT_EQ(recorded.counts().recorded, 0);
  // Recording steps of two rows has failed, but steps of another number of rows can still be
  // recorded.
  for (int i = 0; i < 2; ++i) recorded.Run(Batch(3, i, shape.block_tokens));
  EXPECT_EQ(recorded.counts().recorded, 1);
}

TEST(RecordedStepTest, ThatCannotBeReplayedRunsAsItIs) {
  const SmallDecoder::Shape shape;
  int replays = 0;
  OpenedDevice opened = SeededDevice(1);
  opened.runtime = CreateEmulatedRuntime({.on_replay = [&replays] {
                     return ++replays == 3 ? absl::ResourceExhaustedError("no room for a graph")
                                           : absl::OkStatus();
                   }}).value();
  const TestDevice device(std::move(opened));
  SmallDecoder recorded(device, shape, true), alone(device, shape, false);
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(recorded.Run(Batch(2, i, shape.block_tokens)),
              alone.Run(Batch(2, i, shape.block_tokens), false));
  }
  EXPECT_EQ(replays, 3) << "and never again";
  EXPECT_EQ(recorded.counts().recorded, 1);
  EXPECT_EQ(recorded.counts().refused, 1);
}

TEST(RecordedStepTest, TakesOnlyOperationsOfItsOwn) {
  const SmallDecoder::Shape shape;
  const TestDevice device(SeededDevice(1));
  SmallDecoder decoder(device, shape, true);
  const std::vector<float> expected = decoder.Run(Batch(3, 0, shape.block_tokens));
  std::vector<float> logits(3 * SmallDecoder::kVocab);
  StepArgs other;
  for (const StepArgs* named : {static_cast<const StepArgs*>(nullptr), &std::as_const(other)}) {
    decoder.named_step = [named](const StepArgs&) { return named; };
    for (const bool recorded : {false, true}) {
      EXPECT_TRUE(absl::IsInvalidArgument(
          decoder.Start(Batch(3, 0, shape.block_tokens), absl::MakeSpan(logits), recorded)));
    }
  }
  decoder.named_step = nullptr;
  EXPECT_EQ(decoder.Run(Batch(3, 0, shape.block_tokens)), expected);
}

TEST(RecordedStepTest, IsCheckedBeforeAnythingRuns) {
  const SmallDecoder::Shape shape;
  const TestDevice device(SeededDevice(1));
  SmallDecoder decoder(device, shape, true);
  const auto before = decoder.Pool();
  std::vector<float> logits(2 * SmallDecoder::kVocab);
  const auto refused = [&](const auto& change, const std::string& told) {
    auto items = Batch(2, 5, shape.block_tokens);
    change(items[1]);
    const absl::Status status = decoder.Start(items, absl::MakeSpan(logits));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(told));
  };
  refused([](auto& item) { item.tokens = {SmallDecoder::kVocab}; }, "token 40");
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
