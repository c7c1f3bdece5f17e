#include "kernels/cuda/attention_launches.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "common/base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/cuda/kernels/attention_choice.h"
#include "kernels/cuda/layer_pages.h"
#include "kernels/cuda/step_memory.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/cuda/test_device.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kernels/formats/element.h"

namespace baton {
namespace {

PagedAttentionParams SomeParams() {
  return {.heads = 8,
          .pages = {.data = reinterpret_cast<void*>(1 << 20),
                    .block_bytes = 2 * 2 * 16 * 64 * 2,
                    .value_offset = 2 * 16 * 64 * 2,
                    .head_bytes = 16 * 64 * 2,
                    .block_tokens = 16,
                    .kv_heads = 2,
                    .head_dim = 64,
                    .type = DType::kBF16}};
}

TEST(AttentionChoiceTest, TensorCoresTakePoolsOf16BitsAndHeadsThatFitATile) {
  constexpr size_t kShared = size_t{99} << 10;
  EXPECT_TRUE(UsesTensorCores(SomeParams(), kShared));
  for (const int head_dim : kAttentionHeadDims) {
    PagedAttentionParams params = SomeParams();
    params.pages.head_dim = head_dim;
    EXPECT_TRUE(UsesTensorCores(params, kShared)) << head_dim;
    EXPECT_FALSE(UsesTensorCores(params, SplitAttentionSharedBytes(head_dim) - 1));
  }
  const auto taken = [](const auto& change) {
    PagedAttentionParams params = SomeParams();
    change(params);
    return UsesTensorCores(params, kShared);
  };
  EXPECT_TRUE(taken([](auto& p) { p.pages.type = DType::kF16; }));
  EXPECT_FALSE(taken([](auto& p) { p.pages.type = DType::kF32; }));
  EXPECT_FALSE(taken([](auto& p) { p.pages.head_dim = 72; }));
  EXPECT_FALSE(taken([](auto& p) { p.heads = 34; }));
  EXPECT_TRUE(taken([](auto& p) { p.heads = 32; }));
  EXPECT_FALSE(taken([](auto& p) { p.pages.data = reinterpret_cast<void*>((1 << 20) + 8); }));
}

TEST(AttentionChoiceTest, PrefillTakesSequencesThatFillItsBlocks) {
  const size_t enough = PrefillAttentionSharedBytes(64);
  EXPECT_EQ(PrefillAttentionRows(SomeParams(), enough), 16);
  EXPECT_EQ(PrefillAttentionRows(SomeParams(), enough - 1), INT32_MAX);
}

TEST(AttentionChoiceTest, ATileHasTheRowsThatItsHeadsLeaveRoomFor) {
  PagedAttentionParams params = SomeParams();
  params.pages.kv_heads = 1;
  for (const auto& [heads, rows] : {std::pair{1, 16}, {2, 8}, {3, 5}, {5, 3}, {8, 2}, {9, 1}}) {
    params.heads = heads;
    EXPECT_EQ(AttentionTileRows(params), rows) << heads;
  }
}

// Options of Attend below. By default, a step has three sequences with few rows, listed in another
// order than their rows, and some rows that no sequence owns.
struct AttendOptions {
  size_t max_partial_bytes = size_t{64} << 20;
  int window = 0;
  KernelTable kernels = EmulatedKernels();
  int rows = 32;
  // (first row, rows, first position) of each sequence.
  std::vector<std::array<int, 3>> sequences = {{20, 11, 530}, {0, 1, 300}, {2, 17, 0}};
  // If true, each sequence is computed in a step of its own.
  bool one_by_one = false;
};

// Computes attention of the sequences in two layers. Returns all of `out`, or the first error.
absl::StatusOr<std::vector<uint16_t>> Attend(const AttendOptions& options) {
  constexpr KvLayout kLayout = {2, 2, 64, 16, DType::kBF16};
  constexpr int kHeads = 4, kBlocks = 60, kCols = kHeads * 64;
  const int kRows = options.rows;
  const KernelTable& kernels = options.kernels;
  const TestDevice test;
  DeviceRuntime& runtime = test.runtime();
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto on_device = [&](size_t elements) {
    std::vector<uint16_t> values(elements);
    for (uint16_t& value : values) WriteElement(DType::kBF16, normal(random), &value);
    std::byte* const memory = runtime.Allocate(2 * elements).value();
    test.Copy(memory, values.data(), 2 * elements);
    return memory;
  };
  std::byte* const pool = on_device(kBlocks * kLayout.BlockBytes() / 2);
  std::byte *const q = on_device(kRows * kCols), *const out = on_device(kRows * kCols);
  std::vector<BlockId> blocks(kBlocks);
  for (int i = 0; i < kBlocks; ++i) blocks[i] = i * 7 % kBlocks;
  std::vector<SequenceRows> sequences;
  int used_blocks = 0;
  for (const auto& [first_row, rows, position] : options.sequences) {
    const int count = (position + rows + kLayout.block_tokens - 1) / kLayout.block_tokens;
    sequences.push_back(
        {first_row, rows, position, absl::MakeConstSpan(blocks).subspan(used_blocks, count)});
    used_blocks += count;
  }
  std::vector<std::vector<SequenceRows>> steps = {sequences};
  if (options.one_by_one) {
    steps.clear();
    for (const SequenceRows& sequence : sequences) steps.push_back({sequence});
  }
  StepUpload upload(&runtime, test.stream(), &kernels);
  AttentionLaunches launches(&runtime, test.stream(), &kernels, options.max_partial_bytes);
  absl::Status status;
  for (const std::vector<SequenceRows>& in_step : steps) {
    const auto step = upload.Rows(in_step, kRows, kLayout);
    EXPECT_TRUE(step.ok());
    for (const int layer : {1, 0}) {
      status.Update(launches.Attend({.step = *step,
                                     .q = q,
                                     .out = out,
                                     .q_stride = kCols,
                                     .out_stride = kCols,
                                     .heads = kHeads,
                                     .window = options.window,
                                     .scale = 0.125f,
                                     .pages = PagesOf({pool, kLayout}, layer)},
                                    in_step, upload.rows_version()));
    }
    EXPECT_EQ(runtime.Synchronize(*test.stream()), absl::OkStatus());
  }
  std::vector<uint16_t> result(kRows * kCols);
  test.Copy(result.data(), out, 2 * result.size());
  for (std::byte* memory : {pool, q, out}) runtime.Free(memory);
  RETURN_IF_ERROR(status);
  return result;
}

TEST(AttentionLaunchesTest, LittleMemoryForPartialResultsChangesNoBit) {
  for (const int window : {0, 40}) {
    const auto expected = Attend({.window = window});
    ASSERT_TRUE(expected.ok()) << expected.status();
    // If partial results may take 1 byte, the step is computed in parts of one tile each. If they
    // may take 40,000 bytes, a part has several tiles.
    for (const size_t bytes : {1, 40'000}) {
      const auto got = Attend({.max_partial_bytes = bytes, .window = window});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(*got, *expected) << bytes << " bytes, window " << window;
    }
  }
}

// Returns a step with running sequences before and after a prompt chunk, a shorter chunk, and rows
// that no sequence owns.
AttendOptions MixedStep() {
  return {.rows = 64,
          .sequences = {{0, 1, 300}, {2, 1, 17}, {5, 40, 100}, {46, 1, 200}, {48, 9, 3}}};
}

TEST(AttentionLaunchesTest, AMixedStepHasTheBitsOfItsSequencesAlone) {
  for (const int window : {0, 40}) {
    AttendOptions options = MixedStep();
    options.window = window;
    for (const size_t bytes : {64 << 20, 1}) {
      options.max_partial_bytes = bytes;
      options.one_by_one = false;
      const auto together = Attend(options);
      ASSERT_TRUE(together.ok()) << together.status();
      options.one_by_one = true;
      const auto alone = Attend(options);
      ASSERT_TRUE(alone.ok()) << alone.status();
      EXPECT_EQ(*together, *alone) << bytes << " bytes, window " << window;
    }
  }
}

// Replaces kernels that must not run by a kernel with other parameters, whose launch fails.
TEST(AttentionLaunchesTest, PrefillAttentionTakesTheChunksOfAMixedStepAndSplitAttentionTheOthers) {
  KernelTable no_split = EmulatedKernels(), no_prefill = EmulatedKernels();
  for (Kernel& kernel : no_split.split_attention) kernel = no_split.argmax;
  for (Kernel& kernel : no_prefill.prefill_attention) kernel = no_prefill.argmax;
  const auto works = [](const KernelTable& kernels, std::vector<std::array<int, 3>> sequences) {
    AttendOptions options = MixedStep();
    options.kernels = kernels;
    options.sequences = std::move(sequences);
    return Attend(options).ok();
  };
  const std::vector<std::array<int, 3>> mixed = MixedStep().sequences;
  EXPECT_FALSE(works(no_split, mixed));
  EXPECT_FALSE(works(no_prefill, mixed));
  EXPECT_TRUE(works(no_split, {mixed[2]}));
  EXPECT_TRUE(works(no_prefill, {mixed[0], mixed[1], mixed[3], mixed[4]}));
}

// Runs random steps within random limits. Some are the largest that the limits allow.
TEST(AttentionLaunchesTest, WhatStepsWithinLimitsNeedIsReserved) {
  std::mt19937 random(8);
  const auto upto = [&](int n) { return 1 + static_cast<int>(random() % n); };
  for (int round = 0; round < 12; ++round) {
    std::vector<size_t> allocated;
    const auto runtime =
        CreateEmulatedRuntime(
            {.memory_bytes = size_t{256} << 20,
             .on_allocate = [&](absl::string_view, size_t bytes) { allocated.push_back(bytes); }})
            .value();
    const auto stream = runtime->CreateStream().value();
    const KernelTable kernels = EmulatedKernels();
    StepLimits limits = {.rows = upto(120), .sequences = upto(5), .context = upto(900)};
    limits.layout = {1, upto(2), 64, 16, DType::kBF16};
    limits.heads = limits.layout.kv_heads * upto(kAttentionTileRows);
    limits.rows = std::max(limits.rows, limits.sequences);
    const size_t max_partial = round % 3 == 0 ? 1 : round % 3 == 1 ? 200'000 : 64 << 20;
    const StepMemory memory = StepMemory::For(limits, runtime->info().shared_bytes, max_partial);
    StepUpload upload(runtime.get(), stream.get(), &kernels);
    AttentionLaunches launches(runtime.get(), stream.get(), &kernels, max_partial);
    ASSERT_TRUE(upload.Reserve(memory).ok());
    ASSERT_TRUE(launches.Reserve(memory).ok());
    const int64_t cols = int64_t{64} * limits.heads, each = limits.layout.BlocksFor(limits.context);
    std::vector<BlockId> blocks(each * limits.sequences);
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<BlockId>(i);
    std::byte* const pool = runtime->Allocate(blocks.size() * limits.layout.BlockBytes()).value();
    std::byte *const q = runtime->Allocate(2 * limits.rows * cols).value(),
                     *const out = runtime->Allocate(2 * limits.rows * cols).value();
    for (int step = 0; step < 12; ++step) {
      std::vector<SequenceRows> sequences;
      int rows = 0;
      const int count = step < 2 ? limits.sequences : upto(limits.sequences);
      for (int i = 0; i < count; ++i) {
        const int left = limits.rows - rows - (count - i - 1);
        const int max = step == 0   ? 1
                        : step == 1 ? limits.rows / limits.sequences
                                    : upto(std::min({left, limits.context, 40}));
        const int mine = std::min({max, left, limits.context});
        const int longest = limits.context - mine;
        sequences.push_back({rows, mine,
                             step < 2 ? longest : static_cast<int>(random() % (longest + 1)),
                             absl::MakeConstSpan(blocks).subspan(i * each, each)});
        rows += mine;
      }
      const auto uploaded = upload.Rows(sequences, rows, limits.layout);
      ASSERT_TRUE(uploaded.ok()) << uploaded.status();
      // Forgets the allocations of `upload`. Only a backend's step reserves memory for them, and
      // this test does not run one.
      allocated.clear();
      const absl::Status done = launches.Attend({.step = *uploaded,
                                                 .q = q,
                                                 .out = out,
                                                 .q_stride = cols,
                                                 .out_stride = cols,
                                                 .heads = limits.heads,
                                                 .window = step % 2 == 0 ? 0 : upto(limits.context),
                                                 .scale = 0.125f,
                                                 .pages = PagesOf({pool, limits.layout}, 0)},
                                                sequences, upload.rows_version());
      ASSERT_TRUE(done.ok()) << done;
      ASSERT_TRUE(runtime->Synchronize(*stream).ok());
      EXPECT_TRUE(allocated.empty())
          << "round " << round << ", step " << step << ": " << allocated.front() << " of "
          << memory.attention_plan << " and " << memory.attention_partials;
    }
    for (std::byte* piece : {pool, q, out}) runtime->Free(piece);
  }
}

}  // namespace
}  // namespace baton
