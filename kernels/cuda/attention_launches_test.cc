#include "kernels/cuda/attention_launches.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention_choice.h"
#include "kernels/cuda/emulated_runtime.h"
#include "kernels/cuda/layer_pages.h"
#include "kernels/cuda/step_memory.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/cuda/test_device.h"
#include "kernels/element.h"

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

TEST(AttentionChoiceTest, SplitTakesPoolsOf16BitsAndHeadsThatFitATile) {
  constexpr size_t kShared = size_t{99} << 10;
  EXPECT_EQ(ChooseAttention(SomeParams(), 1, kShared), AttentionKernel::kSplit);
  for (const int head_dim : kAttentionHeadDims) {
    PagedAttentionParams params = SomeParams();
    params.pages.head_dim = head_dim;
    EXPECT_EQ(ChooseAttention(params, 1, kShared), AttentionKernel::kSplit) << head_dim;
    EXPECT_EQ(ChooseAttention(params, 1, SplitAttentionSharedBytes(head_dim) - 1),
              AttentionKernel::kPaged);
  }
  const auto paged = [](const auto& change) {
    PagedAttentionParams params = SomeParams();
    change(params);
    return ChooseAttention(params, 1, kShared) == AttentionKernel::kPaged;
  };
  EXPECT_FALSE(paged([](auto& p) { p.pages.type = DType::kF16; }));
  EXPECT_TRUE(paged([](auto& p) { p.pages.type = DType::kF32; }));
  EXPECT_TRUE(paged([](auto& p) { p.pages.head_dim = 72; }));
  EXPECT_TRUE(paged([](auto& p) { p.heads = 34; }));
  EXPECT_FALSE(paged([](auto& p) { p.heads = 32; }));
  EXPECT_TRUE(paged([](auto& p) { p.pages.data = reinterpret_cast<void*>((1 << 20) + 8); }));
}

TEST(AttentionChoiceTest, PrefillTakesSequencesThatFillItsBlocks) {
  const size_t enough = PrefillAttentionSharedBytes(64);
  EXPECT_EQ(ChooseAttention(SomeParams(), 15, enough), AttentionKernel::kSplit);
  EXPECT_EQ(ChooseAttention(SomeParams(), 16, enough), AttentionKernel::kPrefill);
  EXPECT_EQ(ChooseAttention(SomeParams(), 16, enough - 1), AttentionKernel::kSplit);
}

TEST(AttentionChoiceTest, ATileHasTheRowsThatItsHeadsLeaveRoomFor) {
  PagedAttentionParams params = SomeParams();
  params.pages.kv_heads = 1;
  for (const auto& [heads, rows] : {std::pair{1, 16}, {2, 8}, {3, 5}, {5, 3}, {8, 2}, {9, 1}}) {
    params.heads = heads;
    EXPECT_EQ(AttentionTileRows(params), rows) << heads;
  }
}

// Attention of three sequences, with that much memory for partial results; all bytes of `out`.
std::vector<uint16_t> Attend(size_t most_partial_bytes, int window) {
  constexpr KvLayout kLayout = {2, 2, 64, 16, DType::kBF16};
  constexpr int kHeads = 4, kRows = 32, kBlocks = 60, kCols = kHeads * 64;
  const KernelTable kernels = EmulatedKernels();
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
  const absl::Span<const BlockId> all = blocks;
  // Out of order, with rows that are nobody's.
  const std::vector<SequenceRows> sequences = {
      {20, 11, 530, all.subspan(0, 34)}, {0, 1, 300, all.subspan(34, 19)}, {2, 17, 0, all.last(7)}};
  StepUpload upload(&runtime, test.stream(), &kernels);
  AttentionLaunches launches(&runtime, test.stream(), &kernels, most_partial_bytes);
  const auto step = upload.Rows(sequences, kRows, kLayout);
  EXPECT_TRUE(step.ok());
  for (const int layer : {1, 0}) {
    const auto offset = [&](KvLayout::Plane plane) {
      return static_cast<int64_t>(kLayout.HeadOffset(0, layer, plane, 0));
    };
    EXPECT_EQ(launches.Attend({.step = *step,
                               .q = q,
                               .out = out,
                               .q_stride = kCols,
                               .out_stride = kCols,
                               .heads = kHeads,
                               .window = window,
                               .scale = 0.125f,
                               .pages = {.data = pool,
                                         .block_bytes = static_cast<int64_t>(kLayout.BlockBytes()),
                                         .key_offset = offset(KvLayout::kKeys),
                                         .value_offset = offset(KvLayout::kValues),
                                         .head_bytes = static_cast<int64_t>(kLayout.HeadBytes()),
                                         .block_tokens = kLayout.block_tokens,
                                         .kv_heads = kLayout.kv_heads,
                                         .head_dim = kLayout.head_dim,
                                         .type = kLayout.type}},
                              sequences, upload.rows_version()),
              absl::OkStatus());
  }
  EXPECT_EQ(runtime.Synchronize(*test.stream()), absl::OkStatus());
  std::vector<uint16_t> result(kRows * kCols);
  test.Copy(result.data(), out, 2 * result.size());
  for (std::byte* memory : {pool, q, out}) runtime.Free(memory);
  return result;
}

TEST(AttentionLaunchesTest, LittleMemoryForPartialResultsChangesNoBit) {
  for (const int window : {0, 40}) {
    const auto expected = Attend(size_t{64} << 20, window);
    EXPECT_EQ(Attend(1, window), expected);       // a tile at a time
    EXPECT_EQ(Attend(40'000, window), expected);  // some
  }
}

// Random steps within random limits, up to the largest that there are.
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
    StepLimits limits = {.rows = upto(60), .sequences = upto(5), .context = upto(900)};
    limits.layout = {1, upto(2), 64, 16, DType::kBF16};
    limits.heads = limits.layout.kv_heads * upto(kAttentionTileRows);
    limits.rows = std::max(limits.rows, limits.sequences);
    const size_t most_partial = round % 3 == 0 ? 1 : round % 3 == 1 ? 200'000 : 64 << 20;
    const StepMemory memory = StepMemory::For(limits, runtime->info().shared_bytes, most_partial);
    StepUpload upload(runtime.get(), stream.get(), &kernels);
    AttentionLaunches launches(runtime.get(), stream.get(), &kernels, most_partial);
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
        const int most = step == 0   ? 1
                         : step == 1 ? limits.rows / limits.sequences
                                     : upto(std::min({left, limits.context, 20}));
        const int mine = std::min({most, left, limits.context});
        const int longest = limits.context - mine;
        sequences.push_back({rows, mine,
                             step < 2 ? longest : static_cast<int>(random() % (longest + 1)),
                             absl::MakeConstSpan(blocks).subspan(i * each, each)});
        rows += mine;
      }
      const auto uploaded = upload.Rows(sequences, rows, limits.layout);
      ASSERT_TRUE(uploaded.ok()) << uploaded.status();
      allocated.clear();  // uploads without a step of a backend have a place of their own
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
