#include "common/worker/device_memory_plan.h"

#include <cmath>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/scratch_folder.h"
#include "common/engine/engine.h"
#include "common/worker/model_host.h"
#include "common/worker/test_backends.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/open_emulated_device.h"
#include "kv_transfer/kv_meta.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Folder(absl::string_view name) {
  return absl::StrCat(BATON_SOURCE_DIR, "/common/model/", name);
}

// A model folder with only a config.json. It describes a Llama with heads of 64 elements, a size
// that tensor cores support.
class ConfigFolder : public ScratchFolder {
 public:
  ConfigFolder() {
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"hidden_size", 128},
                                   {"num_hidden_layers", 2},
                                   {"intermediate_size", 200},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"head_dim", 64},
                                   {"vocab_size", 300},
                                   {"max_position_embeddings", 2048},
                                   {"rms_norm_eps", 1e-5},
                                   {"rope_theta", 10000.0}};
    Write("config.json", config.dump());
  }
};

ModelHost::Options OptionsOf(const std::string& model) {
  ModelHost::Options options = {.backend = EmulatedBackendFactory(), .model = model};
  options.block_tokens = 16;
  options.max = {48, 6};
  options.device_share = 1;
  options.batch_flag = "--max-batch";
  return options;
}

// Allocates everything that a worker allocates on the device. Returns the bytes that remain free.
size_t FreeBehind(const ModelHost& host) {
  DeviceRuntime& device = *host.device.runtime;
  const auto pool = device.Allocate(KvMeta::PoolBytes(host.layout, host.blocks), true);
  EXPECT_TRUE(pool.ok()) << pool.status();
  if (!pool.ok()) return 0;
  {
    const auto engine =
        Engine::Create(host.model.get(), host.backend.get(), {*pool, host.layout}, host.max_step());
    EXPECT_TRUE(engine.ok()) << engine.status();
  }
  return device.FreeBytes().value();
}

TEST(DeviceMemoryPlanTest, CountsAllThatAWorkerTakes) {
  const ConfigFolder config;
  for (const std::string& model :
       {config.path(), Folder("demo"), Folder("testdata/mha_tied_f16"),
        Folder("testdata/phi3_long_bf16"), Folder("testdata/qwen3_f32")}) {
    SCOPED_TRACE(model);
    ModelHost::Options options = OptionsOf(model);
    options.kv_bytes = 8 << 20;
    constexpr size_t kDeviceBytes = 64 << 20;
    options.backend = EmulatedBackendFactory(kDeviceBytes);
    if (model == config.path()) options.random_weights = 4;
    const auto host = ModelHost::Open(options);
    ASSERT_TRUE(host.ok()) << host.status();
    EXPECT_EQ(FreeBehind(*host), kDeviceBytes - host->device_memory->together());
  }
}

// The device has exactly the memory that a worker with N blocks needs. N blocks fit, N + 1 do not,
// and without --kv-bytes the worker chooses N.
TEST(DeviceMemoryPlanTest, FitsToTheLastByteAndNotWithABlockMore) {
  const ConfigFolder config;
  for (const std::string& model : {config.path(), Folder("demo")}) {
    SCOPED_TRACE(model);
    ModelHost::Options options = OptionsOf(model);
    options.random_weights = 4;
    options.context = 512;
    options.backend = EmulatedBackendFactory(64 << 20);
    options.kv_bytes = 4 << 20;
    const auto large = ModelHost::Open(options);
    ASSERT_TRUE(large.ok()) << large.status();
    const size_t block = large->layout.BlockBytes();
    ASSERT_GT(block, 4096u);
    const int blocks = large->blocks;
    options.backend = EmulatedBackendFactory(large->device_memory->together());

    options.kv_bytes = blocks * block;
    const auto exact = ModelHost::Open(options);
    ASSERT_TRUE(exact.ok()) << exact.status();
    EXPECT_EQ(exact->blocks, blocks);
    EXPECT_EQ(FreeBehind(*exact), 0u);

    options.kv_bytes = (blocks + 1) * block;
    const absl::Status more = ModelHost::Open(options).status();
    EXPECT_EQ(more.code(), absl::StatusCode::kResourceExhausted) << more;
    EXPECT_THAT(std::string(more.message()),
                AllOf(HasSubstr("bytes are missing"),
                      HasSubstr(absl::StrCat("(--kv-bytes=", blocks * block, " fits)"))));

    options.kv_bytes.reset();
    const auto automatic = ModelHost::Open(options);
    ASSERT_TRUE(automatic.ok()) << automatic.status();
    EXPECT_EQ(automatic->blocks, blocks);
    EXPECT_EQ(FreeBehind(*automatic), 0u);
  }
}

TEST(DeviceMemoryPlanTest, WhatDoesNotFitIsToldWithEveryPart) {
  const ConfigFolder config;
  ModelHost::Options options = OptionsOf(config.path());
  options.random_weights = 4;
  options.backend = EmulatedBackendFactory(2 << 20);
  options.device_share = 0.5;
  const absl::Status status = ModelHost::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  for (const std::string part :
       {"does not fit on emulated device 0: weights 0.00", "activations of 48 rows 0.000 GiB",
        "partial results of attention 0.00", "logits of 16 rows 0.000 GiB",
        "uploads of a step 0.000 GiB", "KV pool of 128 blocks of 16384 bytes 0.003 GiB",
        "together 0.0", "0.001 GiB may be taken (--gpu-memory-utilization=0.5 of 0.002 GiB",
        "of which 0.002 GiB are free", "bytes are missing", "; lower --chunk-tokens, --context",
        "--max-batch", "or raise --gpu-memory-utilization"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  // The worker may already use the whole device, and no flag sets its batch size. So the error must
  // not advise to raise the share or to lower --max-batch.
  options.device_share = 1;
  options.batch_flag = "";
  const absl::Status whole = ModelHost::Open(options).status();
  EXPECT_THAT(std::string(whole.message()), Not(HasSubstr("raise")));
  EXPECT_THAT(std::string(whole.message()), Not(HasSubstr("--max-batch")));
  options.backend = EmulatedBackendFactory(64 << 10);
  EXPECT_THAT(
      std::string(ModelHost::Open(options).status().message()),
      AllOf(HasSubstr("the part that no flag can reduce takes 0.00"), Not(HasSubstr("lower"))));
}

TEST(DeviceMemoryPlanTest, IsToldBeforeAnythingIsLoadedAndOnlyIfItIsOfUse) {
  const ConfigFolder config;
  ModelHost::Options options = OptionsOf(config.path());
  options.random_weights = 4;
  options.backend = EmulatedBackendFactory(64 << 20);
  std::string table;
  std::set<std::string> fields;
  options.on_plan = [&](const DeviceMemoryPlan& plan) {
    table = plan.Table();
    for (const LogField& field : plan.LogFields())
      EXPECT_TRUE(fields.insert(std::string(field.name)).second) << field.name;
  };
  bool loaded = false;
  options.on_loading = [&] {
    loaded = true;
    EXPECT_NE(table, "");
  };
  const absl::Status opened = ModelHost::Open(options).status();
  EXPECT_TRUE(opened.ok()) << opened;
  EXPECT_TRUE(loaded);
  EXPECT_THAT(table, AllOf(HasSubstr("weights"), HasSubstr("together")));
  EXPECT_THAT(fields, testing::IsSupersetOf({"weights_bytes", "activations_bytes", "kv_pool_bytes",
                                             "together_bytes"}));
  table.clear();
  loaded = false;
  options.kv_bytes = 100'000;
  EXPECT_THAT(std::string(ModelHost::Open(options).status().message()),
              HasSubstr("one sequence of 2048 tokens needs 128 blocks"));
  EXPECT_EQ(table, "");
  EXPECT_FALSE(loaded);
}

TEST(DeviceMemoryPlanTest, ALongestSequenceThatDoesNotFitNamesOneThatDoes) {
  ModelHost::Options options = OptionsOf(Folder("demo"));
  options.backend = EmulatedBackendFactory(10 << 20);
  const absl::Status status = ModelHost::Open(options).status();
  ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  const std::string message(status.message());
  const size_t at = message.find("(--context=");
  ASSERT_NE(at, message.npos) << message;
  options.context = std::atoi(message.c_str() + at + 11);
  const auto host = ModelHost::Open(options);
  ASSERT_TRUE(host.ok()) << host.status();
  FreeBehind(*host);
}

TEST(DeviceMemoryPlanTest, TheShareIsOfTheWholeDeviceAndOfWhatIsFree) {
  const ModelConfig config = ReadModelConfig(Folder("demo")).value();
  const KvLayout layout = Model::LayoutOf(config, 16, DType::kBF16);
  const auto device = OpenEmulatedDevice(64 << 20).value();
  DeviceMemoryPlan::Options options = {
      .config = config, .layout = layout, .max = {32}, .context = 100};
  options.share = 0.5;
  const DeviceMemoryPlan half = DeviceMemoryPlan::Make(options, device.runtime.get()).value();
  EXPECT_EQ(half.usable_bytes, uint64_t{32} << 20);
  EXPECT_LE(half.together(), half.usable_bytes);
  EXPECT_GT(half.together() + layout.BlockBytes() + 4096, half.usable_bytes);

  std::byte* const others = device.runtime->Allocate(24 << 20).value();
  EXPECT_EQ(DeviceMemoryPlan::Make(options, device.runtime.get())->usable_bytes,
            uint64_t{32} << 20);
  std::byte* const more = device.runtime->Allocate(20 << 20).value();
  const DeviceMemoryPlan rest = DeviceMemoryPlan::Make(options, device.runtime.get()).value();
  EXPECT_EQ(rest.usable_bytes, device.runtime->FreeBytes().value());
  EXPECT_LT(rest.blocks, half.blocks);
  device.runtime->Free(others);
  device.runtime->Free(more);

  for (const double share : {0.0, -1.0, 1.01, std::nan("")}) {
    options.share = share;
    const absl::Status status = DeviceMemoryPlan::Make(options, device.runtime.get()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--gpu-memory-utilization is "));
  }
}

TEST(DeviceMemoryPlanTest, TheTableHasEveryPartAndTheirSum) {
  DeviceMemoryPlan plan;
  plan.device = "a device";
  plan.total_bytes = uint64_t{80} << 30;
  plan.free_bytes = uint64_t{79} << 30;
  plan.usable_bytes = uint64_t{72} << 30;
  plan.share = 0.9;
  plan.blocks = 7;
  plan.parts = {{"weights", uint64_t{15} << 30, "", "weights_bytes"},
                {"KV pool of 7 blocks", uint64_t{9} << 28, "", "kv_pool_bytes"}};
  EXPECT_EQ(plan.Table(),
            "memory of a device: 80.000 GiB, 79.000 GiB free, 72.000 GiB may be taken "
            "(--gpu-memory-utilization=0.9)\n"
            "  weights                 15.000 GiB\n"
            "  KV pool of 7 blocks      2.250 GiB\n"
            "  together                17.250 GiB\n");
  std::string fields;
  for (const LogField& field : plan.LogFields())
    absl::StrAppend(&fields, field.name, "=", field.value, field.bare ? " " : "(text) ");
  EXPECT_EQ(fields,
            "device=a device(text) total_bytes=85899345920 free_bytes=84825604096 "
            "usable_bytes=77309411328 gpu_memory_utilization=0.9 kv_blocks=7 "
            "weights_bytes=16106127360 kv_pool_bytes=2415919104 together_bytes=18522046464 ");
}

}  // namespace
}  // namespace baton
