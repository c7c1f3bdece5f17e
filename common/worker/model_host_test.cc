#include "common/worker/model_host.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using testing::HasSubstr;

const std::string kDemoModel = absl::StrCat(BATON_SOURCE_DIR, "/common/model/demo");
const std::string kF32Model = absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/gqa_f32");

TEST(ModelHostTest, EveryBackendHasItsOwnNumerics) {
  const auto id = [](const std::string& backend, const std::string& model) {
    return ModelHost::Open({.backend = backend, .model = model, .kv_bytes = 64 << 20})
        .value()
        .numerics_id;
  };
  EXPECT_EQ(id("fake", kDemoModel), "fake-v1/kv-f32");
  EXPECT_THAT(id("cpu", kF32Model), testing::StartsWith("cpu-"));
  EXPECT_EQ(id("cuda-emulated", kDemoModel), "cuda-emulated-bf16-v1/kv-bf16");
}

TEST(ModelHostTest, ADeviceHoldsBf16WhateverTheModelIsIn) {
  const auto host =
      ModelHost::Open({.backend = "cuda-emulated", .model = kF32Model, .kv_bytes = 1 << 20});
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_TRUE(host->on_device());
  EXPECT_EQ(host->layout.type, DType::kBF16);
  EXPECT_THAT(host->Describe(), HasSubstr("on cuda-emulated: "));
  // The factors and their product.
  EXPECT_EQ(host->layout.BlockBytes() % host->layout.block_tokens, 0u);
  EXPECT_THAT(host->Describe(),
              HasSubstr(absl::StrFormat("KV %d blocks x %d tokens x %d bytes = %.1f MiB",
                                        host->blocks, host->layout.block_tokens,
                                        host->layout.BlockBytes() / host->layout.block_tokens,
                                        host->blocks * host->layout.BlockBytes() / 1048576.0)));
  const auto as_asked = ModelHost::Open(
      {.backend = "cuda-emulated", .model = kF32Model, .kv_bytes = 1 << 20, .kv_type = "f16"});
  ASSERT_TRUE(as_asked.ok()) << as_asked.status();
  EXPECT_EQ(as_asked->layout.type, DType::kF16);
}

TEST(ModelHostTest, CudaThatIsNotThereIsAFailedPrecondition) {
  const auto host = ModelHost::Open({.backend = "cuda", .model = kDemoModel, .kv_bytes = 64 << 20});
  if (host.ok()) GTEST_SKIP() << host->Describe();
  EXPECT_EQ(host.status().code(), absl::StatusCode::kFailedPrecondition) << host.status();
  EXPECT_THAT(std::string(host.status().message()), HasSubstr("--backend=cuda: "));
}

TEST(ModelHostTest, OrdersOfSumsAreTheCpusAlone) {
  for (const std::string backend : {"fake", "cuda-emulated"}) {
    const absl::Status status =
        ModelHost::Open({.backend = backend, .model = kDemoModel, .numerics = "amx"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("--backend=", backend)));
  }
}

}  // namespace
}  // namespace baton
