// Checks that in every mode the output equals that of a single process, token for token. Uses real
// processes and UCX.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/histories.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/truth.h"
#include "tests/e2e/e2e_test.h"

namespace baton {
namespace {

constexpr int kLongestPrompt = 2000;  // Max length of a prompt, in tokens.
constexpr char kGgufModel[] = BATON_SOURCE_DIR "/common/model/testdata/llama.Q4_0.gguf";

struct Served {
  const char* name;
  const char* model;
  const char* link;  // Value of --kv-transports.
};
void PrintTo(const Served& served, std::ostream* out) { *out << served.name; }

struct Case {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
  std::vector<TokenId> expected;
};

// Returns cases with prompts of 1 to 2,000 tokens, mostly short ones. Half of the cases are greedy,
// and half are sampled with a seed.
std::vector<Case> MakeCases(int vocab) {
  std::mt19937 random(kE2eSeed);
  std::vector<Case> cases(Histories(60, 200));
  for (int i = 0; i < static_cast<int>(cases.size()); ++i) {
    Case& c = cases[i];
    const double share = std::uniform_real_distribution<double>(0, 1)(random);
    const int length = i == 0   ? 1
                       : i == 1 ? kLongestPrompt
                                : static_cast<int>(std::pow(kLongestPrompt, share));
    for (int t = 0; t < length; ++t)
      c.prompt.push_back(std::uniform_int_distribution<TokenId>(0, vocab - 1)(random));
    c.sampling.max_tokens = std::uniform_int_distribution<int>(2, 24)(random);
    if (i % 2 == 1) {
      c.sampling.temperature = 0.9f;
      c.sampling.top_p = 0.95f;
      c.sampling.top_k = 50;
      c.sampling.seed = random();
    }
  }
  return cases;
}

std::vector<Case> CasesOf(const std::string& model) {
  const auto truth = Truth::Load(model);
  BATON_CHECK(truth.ok()) << truth.status();
  std::vector<Case> cases = MakeCases((*truth)->config().vocab);
  for (Case& c : cases) {
    auto expected = (*truth)->Answer(c.prompt, c.sampling);
    BATON_CHECK(expected.ok()) << expected.status();
    c.expected = *std::move(expected);
  }
  return cases;
}

v1::GenerateRequest RequestFor(const Case& c) {
  v1::GenerateRequest request = TokenRequest(c.prompt, c.sampling.max_tokens);
  v1::SamplingParams* sampling = request.mutable_sampling();
  sampling->set_temperature(c.sampling.temperature);
  sampling->set_top_p(c.sampling.top_p);
  sampling->set_top_k(static_cast<uint32_t>(c.sampling.top_k));
  sampling->set_min_p(c.sampling.min_p);
  sampling->set_seed(c.sampling.seed);
  return request;
}

class SameTokensTest : public testing::TestWithParam<Served> {
 protected:
  static const std::vector<Case>& Cases() {
    static auto& cases = *new std::map<std::string, std::vector<Case>>;
    std::vector<Case>& of_model = cases[GetParam().model];
    if (of_model.empty()) of_model = CasesOf(GetParam().model);
    return of_model;
  }

  // Runs every case, `streams` cases at the same time. Successive cases use successive entries of
  // `modes`, again from the first after the last.
  static void RunAll(Cluster& cluster, int streams, const std::vector<v1::ServingMode>& modes) {
    const std::vector<Case>& cases = Cases();
    std::atomic<size_t> next = 0;
    std::vector<Answer> answers(cases.size());
    std::vector<std::thread> threads;
    for (int s = 0; s < streams; ++s) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < cases.size(); i = next++) {
          v1::GenerateRequest request = RequestFor(cases[i]);
          request.set_mode(modes[i % modes.size()]);
          answers[i] = Generate(cluster.stub(), request);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < cases.size(); ++i) {
      ASSERT_TRUE(answers[i].status.ok()) << "case " << i << ": " << answers[i].status;
      ASSERT_EQ(answers[i].ids(), cases[i].expected)
          << "case " << i << " of seed " << kE2eSeed << ", prompt of " << cases[i].prompt.size()
          << " tokens";
      const v1::Summary& summary = answers[i].summary;
      const v1::ServingMode asked = modes[i % modes.size()];
      if (asked != v1::SERVING_MODE_AUTO) {
        ASSERT_EQ(summary.mode(), asked);
      }
      if (summary.mode() == v1::SERVING_MODE_COLOCATED) {
        ASSERT_EQ(summary.link(), "");
        ASSERT_EQ(summary.prefill_worker(), summary.decode_worker());
      } else if (cases[i].expected.size() > 1) {
        ASSERT_EQ(summary.link(), GetParam().link);
      }
      ASSERT_EQ(answers[i].summary.migrations(), 0u);
    }
  }
};

TEST_P(SameTokensTest, AsOneProcessGivesAloneAndBatched) {
  const std::string transports = absl::StrCat("--kv-transports=", GetParam().link);
  absl::StatusOr<std::unique_ptr<Cluster>> cluster =
      Cluster::Start({.model = GetParam().model,
                      .prefill = 2,
                      .decode = 2,
                      .prefill_flags = {transports, "--chunk-tokens=256"},
                      .decode_flags = {transports, "--max-batch=16", "--chunk-tokens=96"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  {
    SCOPED_TRACE("alone");
    RunAll(**cluster, 1, {v1::SERVING_MODE_DISAGGREGATED});
  }
  {
    SCOPED_TRACE("batched");
    RunAll(**cluster, 32, {v1::SERVING_MODE_DISAGGREGATED});
  }
  {
    SCOPED_TRACE("batched, colocated");
    RunAll(**cluster, 32, {v1::SERVING_MODE_COLOCATED});
  }
  {
    SCOPED_TRACE("batched, all modes beside one another");
    RunAll(**cluster, 32,
           {v1::SERVING_MODE_AUTO, v1::SERVING_MODE_COLOCATED, v1::SERVING_MODE_AUTO,
            v1::SERVING_MODE_DISAGGREGATED});
  }
}

INSTANTIATE_TEST_SUITE_P(Links, SameTokensTest,
                         testing::Values(Served{"shm", kDemoModel, "shm"},
                                         Served{"tcp", kDemoModel, "tcp"},
                                         Served{"gguf", kGgufModel, "shm"}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace baton
