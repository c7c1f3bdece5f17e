#include "common/worker/model_host.h"

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/scratch_folder.h"
#include "common/worker/test_backends.h"
#include "common/worker/worker_equipment.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using testing::HasSubstr;

const std::string kDemoModel = absl::StrCat(BATON_SOURCE_DIR, "/common/model/demo");
const std::string kF32Model = absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/gqa_f32");

TEST(ModelHostTest, EveryBackendHasItsOwnNumerics) {
  const auto id = [](const BackendFactory& backend, const std::string& model) {
    return ModelHost::Open({.backend = backend, .model = model, .kv_bytes = 64 << 20})
        .value()
        .numerics_id;
  };
  EXPECT_EQ(id(FakeBackendFactory(), kDemoModel), "fake-v2/kv-f32");
  EXPECT_THAT(id({}, kF32Model), testing::StartsWith("cpu-"));
  EXPECT_EQ(id(EmulatedBackendFactory(), kDemoModel), "cuda-emulated-bf16-v1/kv-bf16");
}

TEST(ModelHostTest, ADeviceHoldsBf16WhateverTheModelIsIn) {
  const auto host = ModelHost::Open(
      {.backend = EmulatedBackendFactory(), .model = kF32Model, .kv_bytes = 1 << 20});
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_TRUE(host->on_device());
  EXPECT_EQ(host->layout.type, DType::kBF16);
  EXPECT_THAT(host->Describe(), HasSubstr("on cuda-emulated: "));
  // Describe() shows the size of the KV with its factors: blocks, tokens per block, bytes per
  // token. So the bytes of a block must be a multiple of its tokens.
  EXPECT_EQ(host->layout.BlockBytes() % host->layout.block_tokens, 0u);
  EXPECT_THAT(host->Describe(),
              HasSubstr(absl::StrFormat("KV %d blocks x %d tokens x %d bytes = %.1f MiB",
                                        host->blocks, host->layout.block_tokens,
                                        host->layout.BlockBytes() / host->layout.block_tokens,
                                        host->blocks * host->layout.BlockBytes() / 1048576.0)));
  const auto as_asked = ModelHost::Open({.backend = EmulatedBackendFactory(),
                                         .model = kF32Model,
                                         .kv_bytes = 1 << 20,
                                         .kv_type = "f16"});
  ASSERT_TRUE(as_asked.ok()) << as_asked.status();
  EXPECT_EQ(as_asked->layout.type, DType::kF16);
}

TEST(ModelHostTest, CudaThatIsNotThereIsAFailedPrecondition) {
  const auto host =
      ModelHost::Open({.backend = FindBackend(ShippedEquipment().backends, "cuda").value(),
                       .model = kDemoModel,
                       .kv_bytes = 64 << 20});
  if (host.ok()) GTEST_SKIP() << host->Describe();
  EXPECT_EQ(host.status().code(), absl::StatusCode::kFailedPrecondition) << host.status();
  EXPECT_THAT(std::string(host.status().message()), HasSubstr("--backend=cuda: "));
}

// If flags or folder are wrong, Open must fail before it calls on_loading.
TEST(ModelHostTest, NothingIsLoadedForWhatCanBeRefusedBefore) {
  const std::string sharded =
      absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/llama3_sharded_bf16");
  bool loading = false;
  ModelHost::Options good = {.model = kF32Model, .kv_bytes = 64 << 20};
  good.on_loading = [&loading] { loading = true; };
  EXPECT_TRUE(ModelHost::Open(good).ok());
  EXPECT_TRUE(std::exchange(loading, false));
  const auto refused = [&](const std::function<void(ModelHost::Options&)>& spoil) {
    ModelHost::Options options = good;
    spoil(options);
    EXPECT_FALSE(ModelHost::Open(options).ok());
    EXPECT_FALSE(loading);
  };
  refused([](ModelHost::Options& options) { options.kv_type = "f8"; });
  refused([](ModelHost::Options& options) { options.context = 1; });
  refused([](ModelHost::Options& options) { options.numerics = "sse"; });
  refused([](ModelHost::Options& options) { options.chunk_tokens = 17; });
  const ScratchFolder other;
  other.Write("config.json", "{");
  refused([&](ModelHost::Options& options) { options.model = other.path(); });
  // The folder holds the weights of one model and the configuration of another.
  std::filesystem::copy_file(absl::StrCat(sharded, "/config.json"), other.File("config.json"),
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(absl::StrCat(kF32Model, "/model.safetensors"),
                             other.File("model.safetensors"));
  refused([&](ModelHost::Options& options) { options.model = other.path(); });
}

TEST(ModelHostTest, OrdersOfSumsAreTheCpusAlone) {
  for (const BackendFactory& backend : {FakeBackendFactory(), EmulatedBackendFactory()}) {
    const absl::Status status =
        ModelHost::Open({.backend = backend, .model = kDemoModel, .numerics = "amx"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("--backend=", backend.name)));
  }
}

// A block of 16 tokens takes 24 KiB, and the model's context is 4,096 tokens.
TEST(ModelHostTest, WithoutAContextItServesWhatThePoolHolds) {
  const ModelHost small = ModelHost::Open({.model = kDemoModel, .kv_bytes = 4 << 20}).value();
  EXPECT_EQ(small.blocks, 170);
  EXPECT_EQ(small.context, 2720);
  EXPECT_EQ(small.max_step().context, 2720);
  const ModelHost large = ModelHost::Open({.model = kDemoModel, .kv_bytes = 16 << 20}).value();
  EXPECT_EQ(large.context, 4096);
  const absl::Status asked =
      ModelHost::Open({.model = kDemoModel, .kv_bytes = 4 << 20, .context = 4096}).status();
  EXPECT_THAT(std::string(asked.message()), HasSubstr("--kv-bytes=6Mi or --context=2720"));
}

TEST(ModelHostTest, SoItDoesOnADevice) {
  ModelHost::Options options = {.backend = EmulatedBackendFactory(), .model = kDemoModel};
  options.max = {48, 6};
  options.device_share = 1;
  options.kv_bytes = 5 << 20;
  const ModelHost sized = ModelHost::Open(options).value();
  EXPECT_EQ(sized.context, sized.blocks * sized.layout.block_tokens);
  EXPECT_LT(sized.context, 4096);

  // The device has too little memory for the model's context, so the worker serves what fits.
  options.kv_bytes.reset();
  options.backend = EmulatedBackendFactory(14 << 20);
  const absl::StatusOr<ModelHost> left = ModelHost::Open(options);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_GE(left->context, 2048);
  EXPECT_LT(left->context, 4096);
  EXPECT_GE(left->blocks, left->layout.BlocksFor(left->context));
  options.context = left->context + left->layout.block_tokens;
  EXPECT_EQ(ModelHost::Open(options).status().code(), absl::StatusCode::kResourceExhausted);
}

// The memory limit is the one of a container's control group, of version 1 or version 2.
TEST(ModelHostTest, TheLimitOfAControlGroupDecidesWhatIsTaken) {
  constexpr uint64_t kMib = 1 << 20;
  for (const bool v2 : {false, true}) {
    const ScratchFolder root;
    root.Write("proc/meminfo", "MemTotal: 25165824 kB\nMemAvailable: 23068672 kB\n");
    root.Write("proc/self/cgroup", v2 ? "0::/pod\n" : "4:memory:/pod\n0::/\n");
    const std::string folder = v2 ? "sys/fs/cgroup/pod/" : "sys/fs/cgroup/memory/pod/";
    root.Write(folder + (v2 ? "memory.max" : "memory.limit_in_bytes"), absl::StrCat(512 * kMib));
    root.Write(folder + "memory.stat", absl::StrCat(v2 ? "anon " : "total_rss ", 100 * kMib, "\n"));
    ModelHost::Options options = {.model = kDemoModel, .threads = 1};
    options.memory_root = root.path();
    options.max_sequences = 1 << 20;
    const ModelHost host = ModelHost::Open(options).value();
    const HostMemoryPlan& plan = *host.host_memory;
    EXPECT_EQ(plan.usable.bytes, 412 * kMib);
    EXPECT_THAT(plan.usable.limit, HasSubstr(v2 ? "/pod/memory.max" : "/memory/pod/memory.limit"));
    EXPECT_LE(plan.kv_bytes + plan.rest_bytes, 165 * kMib);
    EXPECT_GT(plan.kv_bytes + plan.rest_bytes, 160 * kMib);
    options.kv_bytes = 512 * kMib;
    const absl::Status status = ModelHost::Open(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes are missing"));
  }
}

TEST(ModelHostTest, TellsHowFarTheWeightsAre) {
  uint64_t done = 0, total = 0;
  ModelHost::Options options = {.model = kDemoModel, .kv_bytes = 16 << 20};
  options.on_weights = [&](uint64_t bytes, uint64_t of) {
    EXPECT_GE(bytes, done);
    done = bytes;
    total = of;
  };
  for (const BackendFactory& backend : {BackendFactory(), EmulatedBackendFactory()}) {
    done = total = 0;
    options.backend = backend;
    const ModelHost host = ModelHost::Open(options).value();
    EXPECT_EQ(total == 0, backend.name == "cpu") << "mapped and not read";
    EXPECT_TRUE(host.PageInWeights().ok());
    EXPECT_EQ(total, host.model->weight_bytes()) << backend.name;
    EXPECT_EQ(done, total) << backend.name;
  }
}

}  // namespace
}  // namespace baton
