// Tests of workers with --backend=cuda-emulated, which are the programs of tests/programs. Their KV
// lies in the memory of emulated devices, one for each process, and is handed over from device to
// device. The tokens must equal those of a single process. common/engine/cuda_answers_test.cc
// checks how close they are to the CPU's answers.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/scrape.h"
#include "tests/cluster/truth.h"
#include "tests/e2e/served_folder.h"

namespace baton {
namespace {

using testing::HasSubstr;

struct DeviceCase {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
};

// Returns cases with prompts of 1 to 90 tokens. Every second case is sampled with a seed.
std::vector<DeviceCase> DeviceCases(int vocab) {
  std::mt19937 random(20261122);
  std::vector<DeviceCase> cases(8);
  for (size_t i = 0; i < cases.size(); ++i) {
    DeviceCase& c = cases[i];
    const int length = i == 0 ? 1 : std::uniform_int_distribution<int>(2, 90)(random);
    for (int t = 0; t < length; ++t) {
      c.prompt.push_back(std::uniform_int_distribution<TokenId>(0, vocab - 1)(random));
    }
    c.sampling.max_tokens = 6;
    c.sampling.logprobs = 1;
    if (i % 2 == 1) {
      c.sampling.temperature = 0.9f;
      c.sampling.top_k = 20;
      c.sampling.seed = random();
    }
  }
  return cases;
}

v1::GenerateRequest RequestFor(const DeviceCase& c, v1::ServingMode mode) {
  v1::GenerateRequest request = TokenRequest(c.prompt, c.sampling.max_tokens);
  v1::SamplingParams* sampling = request.mutable_sampling();
  sampling->set_temperature(c.sampling.temperature);
  // Sets every option for which the model's generation_config.json may have another default.
  sampling->set_top_k(static_cast<uint32_t>(c.sampling.top_k));
  sampling->set_top_p(c.sampling.top_p);
  sampling->set_min_p(c.sampling.min_p);
  sampling->set_repetition_penalty(c.sampling.repetition_penalty);
  sampling->set_seed(c.sampling.seed);
  sampling->set_logprobs(*c.sampling.logprobs);
  request.set_mode(mode);
  return request;
}

class DeviceAnswersTest : public testing::TestWithParam<const char*> {};

TEST_P(DeviceAnswersTest, AnswerAsOneProcessInEveryMode) {
  const bool demo = GetParam() == std::string("demo");
  const ServedFolder folder(demo ? absl::StrCat(BATON_SOURCE_DIR, "/common/model/demo")
                                 : std::string(GetParam()));
  const auto truth = Truth::LoadOnEmulatedDevice(folder.path());
  ASSERT_TRUE(truth.ok()) << truth.status();
  const std::string context = absl::StrCat("--context=", std::min(256, (*truth)->config().context));
  const auto cluster = Cluster::Start(
      {.model = folder.path(),
       .test_workers = true,
       .prefill_flags = {"--backend=cuda-emulated", "--kv-bytes=16777216", context,
                         "--block-tokens=16", "--chunk-tokens=32"},
       .decode_flags = {"--backend=cuda-emulated", "--kv-bytes=16777216", context,
                        "--block-tokens=16", "--chunk-tokens=48", "--metrics-listen=127.0.0.1:0"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::vector<DeviceCase> cases = DeviceCases((*truth)->config().vocab);
  for (const auto mode : {v1::SERVING_MODE_DISAGGREGATED, v1::SERVING_MODE_COLOCATED}) {
    // Sends all cases at the same time.
    std::vector<Answer> answers(cases.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < cases.size(); ++i) {
      threads.emplace_back(
          [&, i] { answers[i] = Generate((*cluster)->stub(), RequestFor(cases[i], mode)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("case ", i, ", mode ", v1::ServingMode_Name(mode)));
      ASSERT_TRUE(answers[i].status.ok()) << answers[i].status;
      const auto expected = (*truth)->FullAnswer(cases[i].prompt, cases[i].sampling);
      ASSERT_TRUE(expected.ok()) << expected.status();
      ASSERT_EQ(answers[i].tokens.size(), expected->tokens.size());
      for (size_t t = 0; t < expected->tokens.size(); ++t) {
        EXPECT_EQ(answers[i].tokens[t].token_id(), expected->tokens[t].id) << "token " << t;
        EXPECT_EQ(answers[i].tokens[t].logprob(), *expected->tokens[t].logprob) << "token " << t;
      }
      EXPECT_EQ(answers[i].summary.mode(), mode);
      EXPECT_EQ(answers[i].summary.link(),
                mode == v1::SERVING_MODE_DISAGGREGATED ? "cuda-ipc" : "");
    }
  }
  // A decode worker may start a step before it knows the tokens of the previous step. For a
  // sequence that runs alone, the worker can do so in every step except the first.
  const auto page = Scrape((*cluster)->decode(0));
  ASSERT_TRUE(page.ok()) << page.status();
  const double steps = page->Value("baton_decode_step_seconds_count").value_or(0);
  const double ahead = page->Value("baton_decode_steps_ahead_total").value_or(0);
  RecordProperty("steps", static_cast<int>(steps));
  RecordProperty("steps_ahead", static_cast<int>(ahead));
  EXPECT_GT(ahead, steps / 3);
}

// A CPU and a device compute slightly different numbers. So a CPU worker and a device worker never
// hand over KV to each other, and a client that asks for it gets the reason. A single worker still
// answers by itself, and workers of the same kind still work together.
TEST(DeviceWorkersTest, AreNotPairedWithWorkersOfTheCpu) {
  const auto cluster = Cluster::Start(
      {.test_workers = true,
       .router_flags = {"--pair-wait=300ms"},
       .prefill_flags = {"--backend=cpu", "--block-tokens=16", "--kv-type=bf16", "--context=256"},
       .decode_flags = {"--backend=cuda-emulated", "--kv-bytes=16777216", "--block-tokens=16",
                        "--context=256"},
       .pairs = false});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string prefill = (*cluster)->prefill_address(0),
                    decode = (*cluster)->decode_address(0);
  v1::GenerateRequest request = TokenRequest({5, 6, 7}, 4);
  const Answer answer = Generate((*cluster)->stub(), request);
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnavailable) << answer.status;
  EXPECT_TRUE(answer.tokens.empty());
  const auto says =
      testing::AllOf(HasSubstr(absl::StrCat("prefill worker ", prefill)),
                     HasSubstr(absl::StrCat("decode worker ", decode)), HasSubstr("numerics cpu-"),
                     HasSubstr("cuda-emulated-bf16-v1/kv-bf16"));
  EXPECT_THAT(std::string(answer.status.message()), says);
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr(" have numerics cpu-"))
      << "nothing else keeps them apart";
  const auto line = (*cluster)->router().log().WaitFor("worker_without_partner", absl::Seconds(10));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(*line, HasSubstr("cuda-emulated-bf16-v1/kv-bf16"));
  // In the mode colocated, the decode worker answers alone.
  request.set_mode(v1::SERVING_MODE_COLOCATED);
  const Answer alone = Generate((*cluster)->stub(), request);
  EXPECT_TRUE(alone.status.ok()) << alone.status;
  EXPECT_EQ(alone.tokens.size(), 4u);
}

// Both workers have the same weights, because random weights depend on the seed alone. The model's
// folder holds no weights, and the KV blocks have a device's default size. The decode worker must
// give the same answer with and without the prefill worker.
TEST(DeviceWorkersTest, RandomWeightsNeedNoFile) {
  const ServedFolder folder("qwen3_five_layers_bf16");
  std::filesystem::remove(folder.path() + "/model.safetensors");
  const std::vector<std::string> flags = {"--backend=cuda-emulated", "--random-weights",
                                          "--weights-seed=7", "--kv-bytes=16777216"};
  const auto cluster = Cluster::Start({.model = folder.path(),
                                       .test_workers = true,
                                       .prefill_flags = flags,
                                       .decode_flags = flags});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::vector<TokenId> prompt(100);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i * i % 250);
  std::vector<std::vector<int32_t>> answers;
  for (const auto mode : {v1::SERVING_MODE_DISAGGREGATED, v1::SERVING_MODE_COLOCATED}) {
    v1::GenerateRequest request = TokenRequest(prompt, 8);
    request.set_mode(mode);
    const Answer answer = Generate((*cluster)->stub(), request);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    answers.push_back(answer.ids());
  }
  EXPECT_EQ(answers[0].size(), 8u);
  EXPECT_EQ(answers[0], answers[1]);
  const auto line = (*cluster)->decode(0).log().WaitFor(" model ", absl::Seconds(10));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(*line, HasSubstr("random weights of seed 7"));
}

// Each of the two workers uses one of two GPUs, and both processes see both GPUs. So KV can go over
// the link between the GPUs.
TEST(DeviceWorkersTest, KvFromOneGpuToAnotherTakesThePeerLinkAndSaysSo) {
  const ServedFolder folder("qwen3_f32");
  const auto truth = Truth::LoadOnEmulatedDevice(folder.path());
  ASSERT_TRUE(truth.ok()) << truth.status();
  std::vector<std::string> flags = {"--backend=cuda-emulated", "--kv-bytes=16777216",
                                    "--block-tokens=16"};
  Cluster::Options options = {.model = folder.path(), .test_workers = true, .prefill_flags = flags};
  flags.push_back("--gpu=1");
  options.decode_flags = flags;
  const auto cluster = Cluster::Start(options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const DeviceCase c = DeviceCases((*truth)->config().vocab)[2];
  const Answer answer = Generate((*cluster)->stub(), RequestFor(c, v1::SERVING_MODE_DISAGGREGATED));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  const auto expected = (*truth)->Answer(c.prompt, c.sampling);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(answer.ids(), *expected);
  EXPECT_EQ(answer.summary.link(), "nvlink");
}

class DeviceFailureTest : public testing::TestWithParam<const char*> {};

// One worker's device fails for good in the middle of a step. The worker ends immediately, without
// a message to its clients, and the clients get all their tokens from the remaining worker.
TEST_P(DeviceFailureTest, EndsTheWorkerAndNoAnswer) {
  const std::string role = GetParam();
  const ServedFolder folder("qwen3_f32");
  const auto truth = Truth::LoadOnEmulatedDevice(folder.path());
  ASSERT_TRUE(truth.ok()) << truth.status();
  const std::vector<std::string> flags = {"--backend=cuda-emulated", "--kv-bytes=16777216",
                                          "--block-tokens=16", "--chunk-tokens=32"};
  const auto cluster = Cluster::Start({.model = folder.path(),
                                       .test_workers = true,
                                       .prefill_flags = flags,
                                       .decode_flags = flags});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::vector<std::string> failing = {
      TestWorkerProgram(role, BATON_BINARY_DIR), absl::StrCat("--model=", folder.path()),
      absl::StrCat("--routers=", (*cluster)->address()), "--emulated-device-kernels=150"};
  failing.insert(failing.end(), flags.begin(), flags.end());
  const auto worker =
      Process::Start(failing, absl::StrCat((*cluster)->folder(), "/failing-", role, ".log"));
  ASSERT_TRUE(worker.ok()) << worker.status();
  const bool decode = role == "decode";
  ASSERT_TRUE((*cluster)->WaitReady(decode ? 1 : 2, decode ? 2 : 1, absl::Seconds(60)).ok());
  const std::vector<DeviceCase> cases = DeviceCases((*truth)->config().vocab);
  std::vector<std::vector<TokenId>> expected;
  for (const DeviceCase& c : cases)
    expected.push_back((*truth)->Answer(c.prompt, c.sampling).value());
  uint32_t migrations = 0;
  absl::StatusOr<int> ended = absl::UnavailableError("it was not waited for");
  for (int round = 0; round < 20 && !ended.ok(); ++round) {
    std::vector<Answer> answers(cases.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < cases.size(); ++i) {
      threads.emplace_back([&, i] {
        answers[i] =
            Generate((*cluster)->stub(), RequestFor(cases[i], v1::SERVING_MODE_DISAGGREGATED));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("round ", round, ", case ", i));
      ASSERT_TRUE(answers[i].status.ok()) << answers[i].status;
      EXPECT_EQ(answers[i].ids(), expected[i]);
      migrations += answers[i].summary.migrations();
    }
    ended = (*worker)->Wait(absl::ZeroDuration());
  }
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(*ended, 3);
  EXPECT_GE(migrations, 1u) << "nothing was in flight there";
  const auto line = (*worker)->log().WaitFor(" device_failed ", absl::Seconds(10));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(*line, HasSubstr("emulated device 0 was to fail after 150 kernels"));
}

INSTANTIATE_TEST_SUITE_P(Roles, DeviceFailureTest, testing::Values("prefill", "decode"),
                         [](const auto& info) { return std::string(info.param); });

// Returns a few models by default, and all models if BATON_CASES is above 10.
std::vector<const char*> Models() {
  const char* const cases = std::getenv("BATON_CASES");
  if (cases == nullptr || std::atoi(cases) <= 10) {
    return {"demo", "mistral_five_mqa_bf16", "phi3_five_crossing_f32", "qwen2_window_f32",
            "qwen3_f32"};
  }
  return {"demo",
          "gqa_bias_bf16",
          "gqa_f32",
          "llama3_sharded_bf16",
          "llama_five_dynamic_f32",
          "llama_linear_mixed",
          "mha_tied_f16",
          "mistral_dynamic_f16",
          "mistral_five_mqa_bf16",
          "mistral_window_f32",
          "mqa_llama3_f32",
          "phi3_five_crossing_f32",
          "phi3_long_bf16",
          "phi3_window_f32",
          "qwen2_five_yarn_f32",
          "qwen2_window_f32",
          "qwen2_yarn_tied_bf16",
          "qwen3_f32",
          "qwen3_five_layers_bf16"};
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceAnswersTest, testing::ValuesIn(Models()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace baton
