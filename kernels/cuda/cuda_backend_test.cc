#include "kernels/cuda/cuda_backend.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/test_device.h"
#include "kernels/cuda/upload_slab.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kernels/formats/element.h"
#include "kernels/formats/weight_format.h"

namespace baton {
namespace {

INSTANTIATE_TEST_SUITE_P(Emulated, BackendConformanceTest,
                         testing::Values(ParamOf("emulated", StrictDevice())),
                         [](const auto& info) { return info.param.name; });

TEST(UploadSlabTest, WorkSeesTheContentThatWasThereWhenItWasPut) {
  TestDevice test;
  DeviceRuntime& runtime = test.runtime();
  UploadSlab slab(&runtime, test.stream());
  // Uploads more often than UploadSlab has slots for copies under way, with growing content, and
  // without waiting.
  std::vector<std::pair<std::byte*, std::vector<int>>> seen;
  for (int i = 0; i < 20; ++i) {
    std::vector<int> content(1 + i * i * 10, i);
    const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(content.data()),
                                           content.size() * sizeof(int));
    const std::byte* uploaded = slab.Upload(bytes).value();
    EXPECT_EQ(slab.version(), static_cast<uint64_t>(i + 1));
    EXPECT_EQ(slab.Upload(bytes).value(), uploaded);
    EXPECT_EQ(slab.version(), static_cast<uint64_t>(i + 1)) << "the same content again";
    std::byte* const copy = runtime.Allocate(bytes.size()).value();
    ASSERT_TRUE(runtime.Copy(copy, uploaded, bytes.size(), *test.stream()).ok());
    seen.emplace_back(copy, std::move(content));
  }
  for (const auto& [copy, content] : seen) {
    std::vector<int> found(content.size());
    test.Copy(found.data(), copy, found.size() * sizeof(int));
    EXPECT_EQ(found, content);
    runtime.Free(copy);
  }
  EXPECT_TRUE(slab.Upload({}).ok());
}

// A backend with enough weights and tensors for the operations of a small model.
class CudaBackendTest : public testing::Test {
 protected:
  static constexpr int kHeadDim = 16, kHeads = 4, kKvHeads = 2, kVocab = 50, kHidden = 64;

  CudaBackendTest() {
    std::vector<float> values(kVocab * kHidden);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 31) / 16 - 1;
    table_ = backend_->LoadWeight({values.data(), WeightFormat::kF32, kVocab, kHidden}).value();
    hidden_ = backend_->Allocate(8, kHidden).value();
    keys_ = backend_->Allocate(8, kHidden).value();
    out_ = backend_->Allocate(8, kHidden).value();
    pool_ = test_.runtime().Allocate(4 * layout_.BlockBytes()).value();
  }
  ~CudaBackendTest() override { test_.runtime().Free(pool_); }

  static Tensor First(Tensor tensor, int rows) { return tensor.rows = rows, tensor; }

  // Embeds tokens, writes their KV, computes attention, and returns the logits of the last token.
  std::vector<float> Step(const std::vector<TokenId>& tokens,
                          const std::vector<SequenceRows>& sequences, float theta) {
    const int rows = static_cast<int>(tokens.size());
    std::vector<float> frequencies;
    for (int i = 0; i < kHeadDim / 2; ++i) frequencies.push_back(1 / (1 + theta * i));
    const Tensor hidden = First(hidden_, rows);
    EXPECT_TRUE(backend_->Embed({table_, tokens, hidden}).ok());
    EXPECT_TRUE(backend_->Embed({table_, tokens, First(keys_, rows)}).ok());
    for (int layer = 0; layer < layout_.layers; ++layer) {
      Tensor k = First(keys_, rows);
      k.cols = kKvHeads * kHeadDim;
      const Rope rope{frequencies, 1};
      EXPECT_TRUE(
          backend_->RopeAndWriteKv({hidden, k, k, {&rope, 1}, layer, sequences, {pool_, layout_}})
              .ok());
      EXPECT_TRUE(
          backend_
              ->Attention(
                  {hidden, kHeads, 0.25f, 0, layer, sequences, {pool_, layout_}, First(out_, rows)})
              .ok());
    }
    std::vector<float> logits(kVocab);
    EXPECT_TRUE(
        backend_->Logits({First(out_, rows), table_, {{rows - 1}}, absl::MakeSpan(logits)}).ok());
    return logits;
  }

  TestDevice test_;
  std::unique_ptr<Backend> backend_ = test_.CreateBackend().value();
  const KvLayout layout_ = {2, kKvHeads, kHeadDim, 4, DType::kBF16};
  Matrix table_;
  Tensor hidden_, keys_, out_;
  std::byte* pool_;
  const std::vector<BlockId> blocks_ = {2, 0}, other_blocks_ = {1, 3};
};

TEST_F(CudaBackendTest, AStepLikeOneBeforeAllocatesNothing) {
  const std::vector<SequenceRows> sequences = {{0, 3, 0, blocks_}, {3, 2, 0, other_blocks_}};
  Step({1, 2, 3, 4, 5}, sequences, 0.1f);
  const size_t free = test_.runtime().FreeBytes().value();
  Step({6, 7, 8, 9, 1}, sequences, 0.2f);
  EXPECT_EQ(test_.runtime().FreeBytes().value(), free);
}

TEST_F(CudaBackendTest, WhatIsKeptOfAStepIsNotTakenForAnother) {
  // Changes positions, block tables, frequencies or rows from one step to the next, one of them at
  // a time. Each step must give the same logits as it gives after an unrelated step, when it can't
  // reuse anything that an earlier step uploaded.
  const std::vector<SequenceRows> early = {{0, 2, 0, blocks_}}, late = {{0, 2, 2, blocks_}},
                                  elsewhere = {{0, 2, 0, other_blocks_}},
                                  one = {{0, 1, 0, blocks_}};
  Step({4, 5}, early, 0.1f);
  const auto steps = [&](const std::function<void()>& before) {
    std::vector<std::vector<float>> logits;
    for (const auto& [sequences, theta] :
         {std::pair{early, 0.1f}, {late, 0.1f}, {elsewhere, 0.1f}, {early, 0.3f}, {early, 0.1f}}) {
      before();
      logits.push_back(Step({4, 5}, sequences, theta));
    }
    before();
    logits.push_back(Step({4}, one, 0.1f));
    return logits;
  };
  const auto kept = steps([] {});
  // Runs an unrelated step before each step, so that every step has to upload everything again.
  const std::vector<BlockId> mixed = {3};
  const auto fresh = steps([&] { Step({1, 2, 3}, {{0, 3, 0, mixed}}, 0.7f); });
  // Leaves out step 1. Unlike the other steps, it also attends to keys and values that an earlier
  // step wrote.
  for (const int i : {0, 2, 3, 4, 5}) EXPECT_EQ(kept[i], fresh[i]) << i;
  EXPECT_NE(kept[0], kept[3]);
}

TEST_F(CudaBackendTest, RotaryTableIsThatOfTheRowsBeingWritten) {
  // Attention over the rows `second` runs before RopeAndWriteKv writes these rows. So the rows are
  // on the device already when RopeAndWriteKv begins, but the rotary table is still that of the
  // rows `first`.
  const std::vector<SequenceRows> first = {{0, 2, 0, blocks_}}, second = {{0, 2, 2, blocks_}};
  std::vector<float> frequencies(kHeadDim / 2, 0.5f);
  const Rope rope{frequencies, 1};
  const KvView kv = {pool_, layout_};
  const auto write = [&](const std::vector<SequenceRows>& rows) {
    ASSERT_TRUE(backend_->Embed({table_, {{4, 5}}, First(hidden_, 2)}).ok());
    ASSERT_TRUE(backend_->Embed({table_, {{4, 5}}, First(keys_, 2)}).ok());
    Tensor k = First(keys_, 2);
    k.cols = kKvHeads * kHeadDim;
    ASSERT_TRUE(backend_->RopeAndWriteKv({First(hidden_, 2), k, k, {&rope, 1}, 0, rows, kv}).ok());
  };
  const auto hidden = [&] {
    EXPECT_TRUE(backend_->Synchronize().ok());
    std::vector<uint16_t> bits(2 * kHidden);
    test_.Copy(bits.data(), hidden_.data, bits.size() * 2);
    return bits;
  };
  write(second);
  const auto expected = hidden();
  write(first);
  EXPECT_NE(hidden(), expected);
  ASSERT_TRUE(
      backend_->Attention({First(hidden_, 2), kHeads, 1, 0, 0, second, kv, First(out_, 2)}).ok());
  write(second);
  EXPECT_EQ(hidden(), expected);
}

TEST_F(CudaBackendTest, QuantisedWeightsAreRoundedToBf16) {
  const WeightFormat format = WeightFormat::kQ8_0;
  std::vector<std::byte> blocks(kVocab * RowBytes(format, kHidden));
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i * 37 % 59);
  const Matrix table = backend_->LoadWeight({blocks.data(), format, kVocab, kHidden}).value();
  EXPECT_EQ(table.format, WeightFormat::kBF16);
  const std::vector<TokenId> tokens = {49, 0};
  ASSERT_TRUE(backend_->Embed({table, tokens, First(hidden_, 2)}).ok());
  ASSERT_TRUE(backend_->Synchronize().ok());
  for (int row = 0; row < 2; ++row) {
    std::vector<float> exact(kHidden);
    Dequantise(format, &blocks[tokens[row] * RowBytes(format, kHidden)], absl::MakeSpan(exact));
    std::vector<uint16_t> expected(kHidden), found(kHidden);
    ConvertElements(DType::kF32, exact.data(), DType::kBF16, expected.data(), kHidden);
    test_.Copy(found.data(),
               static_cast<std::byte*>(hidden_.data) + row * hidden_.stride * sizeof(uint16_t),
               kHidden * sizeof(uint16_t));
    EXPECT_EQ(found, expected);
  }
}

TEST_F(CudaBackendTest, RefusesWhatItCannotDo) {
  const auto code = [](const absl::Status& status) { return status.code(); };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::vector<float> values(kHidden);
  const Matrix host = {values.data(), WeightFormat::kF32, 1, kHidden};
  EXPECT_EQ(code(backend_->RmsNorm({First(hidden_, 1), host, 1e-5f, First(out_, 1)})), kInvalid);

  KvLayout wide = layout_;
  wide.head_dim = 257;
  wide.kv_heads = 1;
  const Tensor q = backend_->Allocate(1, 257).value(), out = backend_->Allocate(1, 257).value();
  const absl::Status status =
      backend_->Attention({q, 1, 1, 0, 0, {{{0, 1, 0, blocks_}}}, {pool_, wide}, out});
  EXPECT_EQ(code(status), kInvalid);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("257"));

  const std::vector<SequenceRows> twice = {{0, 2, 0, blocks_}, {1, 1, 0, other_blocks_}};
  EXPECT_EQ(code(backend_->Attention(
                {First(hidden_, 2), kHeads, 1, 0, 0, twice, {pool_, layout_}, First(out_, 2)})),
            kInvalid);
}

TEST(CudaBackendWithoutGemmsTest, IsRefusedUnlessTheCallerNeedsNone) {
  const auto runtime = CreateEmulatedRuntime({.gemms = false}).value();
  CudaBackendOptions options = {.runtime = runtime.get()};
  EXPECT_EQ(CreateCudaBackend(options).status(), runtime->GemmStatus());
  options.gemms = false;
  EXPECT_TRUE(CreateCudaBackend(options).ok());
}

TEST_F(CudaBackendTest, TooLargeAWeightIsResourceExhaustedAndLeavesTheBackendUsable) {
  const std::vector<uint16_t> values(4);
  const absl::Status status =
      backend_->LoadWeight({values.data(), WeightFormat::kBF16, 1 << 20, 1 << 20}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Step({1}, {{0, 1, 0, blocks_}}, 0.1f).size(), size_t{kVocab});
}

}  // namespace
}  // namespace baton
