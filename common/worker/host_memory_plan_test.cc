#include "common/worker/host_memory_plan.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/byte_size.h"
#include "common/model/model.h"
#include "kv_transfer/kv_meta.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kGib = uint64_t{1} << 30, kMib = uint64_t{1} << 20;

// Configuration of Llama-3.2-1B, with 32 KiB of KV per token and a context of 131,072 tokens.
ModelConfig Llama1b() {
  return {.architecture = "LlamaForCausalLM",
          .layers = 16,
          .hidden = 2048,
          .intermediate = 8192,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 64,
          .vocab = 128256,
          .context = 131072};
}

HostMemoryPlan::Options OptionsOf(uint64_t usable) {
  HostMemoryPlan::Options options;
  options.config = Llama1b();
  options.layout = {
      .layers = 16, .kv_heads = 8, .head_dim = 64, .block_tokens = 16, .type = DType::kBF16};
  options.usable = {.bytes = usable,
                    .limit_bytes = usable + kGib,
                    .used_bytes = kGib,
                    .limit = "/sys/fs/cgroup/memory.max"};
  options.weight_bytes = 2'471'628'800;
  options.max = {512, 64};
  options.threads = 2;
  options.max_sequences = 128;
  options.batch_flag = "--max-batch";
  return options;
}

std::string Refusal(const HostMemoryPlan::Options& options) {
  const absl::StatusOr<HostMemoryPlan> plan = HostMemoryPlan::Make(options);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted) << plan.status();
  return std::string(plan.status().message());
}

// Returns the value after `flag` in a message, up to the next blank, comma or semicolon.
std::string ValueOf(const std::string& message, const std::string& flag) {
  const size_t at = message.rfind(flag);
  if (at == message.npos) return "";
  const size_t begin = at + flag.size();
  return message.substr(begin, message.find_first_of(" ,;", begin) - begin);
}

TEST(HostMemoryPlanTest, AutomaticTakesItsShareOfWhatWeightsLeaveAndNoMore) {
  for (const uint64_t usable : {5 * kGib, 8 * kGib, 12 * kGib, 22 * kGib}) {
    const HostMemoryPlan::Options options = OptionsOf(usable);
    const HostMemoryPlan plan = HostMemoryPlan::Make(options).value();
    const double left = static_cast<double>(usable - options.weight_bytes);
    EXPECT_LE(static_cast<double>(plan.kv_bytes + plan.rest_bytes), 0.4 * left);
    // The plan uses its whole share of 0.4: with 2 MiB more it would exceed the share.
    EXPECT_GT(static_cast<double>(plan.kv_bytes + plan.rest_bytes + 2 * kMib), 0.4 * left);
    EXPECT_EQ(plan.context, std::min(131072, plan.blocks * 16));
    // Two workers that are started at the same time fit.
    EXPECT_LE(options.weight_bytes + 2 * (plan.kv_bytes + plan.rest_bytes), usable);
  }
}

TEST(HostMemoryPlanTest, AutomaticTakesAtMostEightGibOrWhatSequencesCanFill) {
  HostMemoryPlan::Options options = OptionsOf(256 * kGib);
  const HostMemoryPlan large = HostMemoryPlan::Make(options).value();
  EXPECT_LE(large.kv_bytes, 8 * kGib);
  EXPECT_GT(large.kv_bytes, 8 * kGib - 2 * kMib);
  EXPECT_EQ(large.context, 131072);

  // 128 sequences of 100 tokens need 7 blocks of 16 tokens each.
  options.context = 100;
  const HostMemoryPlan few = HostMemoryPlan::Make(options).value();
  EXPECT_EQ(few.blocks, 128 * 7);
  EXPECT_EQ(few.context, 100);
  options.max_sequences = 0;
  EXPECT_GT(HostMemoryPlan::Make(options)->blocks, 128 * 7);

  options = OptionsOf(256 * kGib);
  options.kv_bytes = 100 * kGib;
  EXPECT_EQ(HostMemoryPlan::Make(options)->blocks, 100 * kGib / options.layout.BlockBytes());
}

TEST(HostMemoryPlanTest, AutomaticTakesLittleForASmallModel) {
  HostMemoryPlan::Options options = OptionsOf(256 * kGib);
  options.weight_bytes = 80 * kMib;
  options.config.context = 8192;  // 256 MiB
  // The blocks, of half a MiB each, and their KvMeta fit into 1 GiB.
  EXPECT_EQ(HostMemoryPlan::Make(options)->kv_bytes / kMib, 1023);
  options.weight_bytes = 500 * kMib;
  EXPECT_EQ(HostMemoryPlan::Make(options)->kv_bytes / kMib, 1999);
  // A sequence of the whole context has room.
  options.config.context = 131072;
  EXPECT_EQ(HostMemoryPlan::Make(options)->blocks, 131072 / 16);
}

TEST(HostMemoryPlanTest, TheContextThatIsServedIsWhatThePoolHolds) {
  HostMemoryPlan::Options options = OptionsOf(22 * kGib);
  options.kv_bytes = 256 * kMib;
  const HostMemoryPlan plan = HostMemoryPlan::Make(options).value();
  EXPECT_EQ(plan.blocks, 512);
  EXPECT_EQ(plan.context, 8192);
  options.context = 4000;
  EXPECT_EQ(HostMemoryPlan::Make(options)->context, 4000);
  options.kv_bytes = 16 * kGib;
  options.context = 0;
  EXPECT_EQ(HostMemoryPlan::Make(options)->context, 131072);
}

TEST(HostMemoryPlanTest, APoolBelowTwoThousandTokensIsRefusedWithSizesThatWork) {
  HostMemoryPlan::Options options = OptionsOf(22 * kGib);
  options.kv_bytes = 63 * kMib;
  std::string why = Refusal(options);
  EXPECT_THAT(why, AllOf(HasSubstr("--kv-bytes=66060288 hold 126 blocks of 524288 bytes, 2016 "),
                         HasSubstr("at least 2048 tokens, which need 67108864 bytes"),
                         HasSubstr("--kv-bytes=64Mi would work")));
  options.kv_bytes = *ParseByteSize(ValueOf(why, "--kv-bytes="));
  EXPECT_EQ(HostMemoryPlan::Make(options)->context, 2048);

  // A pool usually needs 2048 tokens. This model's context is shorter, so the pool need only hold
  // one sequence of that length.
  options.config.context = 1000;
  options.kv_bytes = 32 * kMib;
  EXPECT_EQ(HostMemoryPlan::Make(options)->context, 1000);
  options.kv_bytes = 31 * kMib;
  EXPECT_THAT(Refusal(options), HasSubstr("at least 1000 tokens"));
}

TEST(HostMemoryPlanTest, AContextThatThePoolCannotHoldIsRefusedWithBothFlags) {
  HostMemoryPlan::Options options = OptionsOf(22 * kGib);
  options.kv_bytes = kGib;
  options.context = 131072;
  const std::string why = Refusal(options);
  EXPECT_THAT(why, AllOf(HasSubstr("one sequence of --context=131072 tokens needs 8192 blocks, "
                                   "4294967296 bytes"),
                         HasSubstr("--kv-bytes=4Gi or --context=32768 would work")));
  options.context = 32768;
  EXPECT_TRUE(HostMemoryPlan::Make(options).ok());
  options.context = 131072;
  options.kv_bytes = 4 * kGib;
  EXPECT_TRUE(HostMemoryPlan::Make(options).ok());
}

TEST(HostMemoryPlanTest, AShareThatIsTooSmallIsRefusedWithFlagsThatWork) {
  // The weights leave 450 MiB of the usable memory.
  const HostMemoryPlan::Options options = OptionsOf(2'471'628'800 + 450 * kMib);
  const std::string why = Refusal(options);
  EXPECT_THAT(why, AllOf(HasSubstr("weights 2.5 GB (2471628800 bytes)"),
                         HasSubstr("KV pool of 2048 tokens 68 MB"), HasSubstr("the rest ("),
                         HasSubstr("/sys/fs/cgroup/memory.max has"), HasSubstr("0.4 (--memory-"),
                         HasSubstr("--kv-bytes=64Mi or --memory-share=0.")));
  HostMemoryPlan::Options other = options;
  ASSERT_TRUE(absl::SimpleAtod(ValueOf(why, "--memory-share="), &other.share)) << why;
  EXPECT_TRUE(HostMemoryPlan::Make(other).ok());
  other = options;
  other.kv_bytes = 64 * kMib;
  EXPECT_TRUE(HostMemoryPlan::Make(other).ok());
}

TEST(HostMemoryPlanTest, WhatNeverFitsNamesEveryPartAndWhatIsMissing) {
  // Llama-3.1-8B, with a memory limit of 12 GiB.
  HostMemoryPlan::Options options = OptionsOf(12 * kGib);
  options.config.layers = 32;
  options.config.hidden = 4096;
  options.config.intermediate = 14336;
  options.config.head_dim = 128;
  options.layout.layers = 32;
  options.layout.head_dim = 128;
  options.weight_bytes = 16'060'522'496;
  options.usable = {
      .bytes = 12 * kGib, .limit_bytes = 12 * kGib, .limit = "/sys/fs/cgroup/memory.max"};
  const std::string why = Refusal(options);
  EXPECT_THAT(why, AllOf(HasSubstr("weights 16.1 GB (16060522496 bytes) + KV pool of 2048 tokens "
                                   "270 MB ("),
                         HasSubstr("the rest (activations, logits, gRPC, UCX) "),
                         HasSubstr("may still use 12884901888 bytes (/sys/fs/cgroup/memory.max has "
                                   "12884901888, of which 0 are in use)"),
                         HasSubstr("bytes are missing; give this process a limit of "),
                         Not(HasSubstr("--"))));
  options.usable.bytes = options.usable.limit_bytes = *ParseByteSize(ValueOf(why, "a limit of "));
  options.kv_bytes = 256 * kMib;
  EXPECT_TRUE(HostMemoryPlan::Make(options).ok());
}

TEST(HostMemoryPlanTest, APoolThatIsTooLargeNamesOneThatFits) {
  HostMemoryPlan::Options options = OptionsOf(8 * kGib);
  options.kv_bytes = 8 * kGib;
  std::string why = Refusal(options);
  EXPECT_THAT(why, AllOf(HasSubstr("bytes are missing"),
                         HasSubstr(" fits, or give this process a limit of ")));
  options.kv_bytes = *ParseByteSize(ValueOf(why, "--kv-bytes="));
  EXPECT_TRUE(HostMemoryPlan::Make(options).ok());
  options.kv_bytes.reset();
  options.usable.bytes = 2'471'628'800 + kGib;
  options.context = 131072;
  why = Refusal(options);
  EXPECT_THAT(why, HasSubstr("--context="));
  ASSERT_TRUE(absl::SimpleAtoi(ValueOf(why, "--context="), &options.context)) << why;
  options.kv_bytes = *ParseByteSize(ValueOf(why, "--kv-bytes="));
  EXPECT_TRUE(HostMemoryPlan::Make(options).ok()) << why;
}

TEST(HostMemoryPlanTest, RandomWeightsAreThisProcessesOwn) {
  HostMemoryPlan::Options options = OptionsOf(12 * kGib);
  options.weights_shared = false;
  const HostMemoryPlan plan = HostMemoryPlan::Make(options).value();
  EXPECT_LE(static_cast<double>(plan.together()), 0.4 * 12 * kGib);
  EXPECT_LT(plan.kv_bytes, [] {
    HostMemoryPlan::Options shared = OptionsOf(12 * kGib);
    return HostMemoryPlan::Make(shared)->kv_bytes;
  }());
}

TEST(HostMemoryPlanTest, StepsThatAreTooLargeNameTheirFlags) {
  HostMemoryPlan::Options options = OptionsOf(8 * kGib);
  options.max = {1 << 20, 64};
  EXPECT_THAT(Refusal(options), HasSubstr("lower --chunk-tokens, --max-batch or --threads"));
}

TEST(HostMemoryPlanTest, SharesAndPoolsThatAreNoneAreNamed) {
  HostMemoryPlan::Options options = OptionsOf(8 * kGib);
  for (const double share : {0.0, -0.5, 1.5}) {
    options.share = share;
    EXPECT_THAT(std::string(HostMemoryPlan::Make(options).status().message()),
                HasSubstr("--memory-share is "));
  }
  options.share = 0.4;
  options.kv_bytes = uint64_t{1} << 60;
  EXPECT_THAT(std::string(HostMemoryPlan::Make(options).status().message()),
              HasSubstr("a pool has at most"));
}

}  // namespace
}  // namespace baton
