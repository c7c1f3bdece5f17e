// Checks the metrics that the programs serve at --metrics-listen.

#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/program.h"
#include "common/metrics/exposition.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/scrape.h"
#include "tests/metrics/metrics_document.h"

namespace baton {
namespace {

using testing::IsEmpty;
using testing::Not;

// All tests of this file share one cluster. No test changes what another test checks.
class MetricsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::vector<std::string> flags = {"--metrics-listen=127.0.0.1:0"};
    std::vector<std::string> router_flags = flags;
    router_flags.push_back("--http-listen=127.0.0.1:0");
    auto cluster = Cluster::Start(
        {.router_flags = router_flags, .prefill_flags = flags, .decode_flags = flags});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = cluster->release();
    programs_ = {{"baton-router", &cluster_->router()},
                 {"baton-prefill", &cluster_->prefill(0)},
                 {"baton-decode", &cluster_->decode(0)}};
  }
  static void TearDownTestSuite() { delete cluster_; }

  static inline Cluster* cluster_ = nullptr;
  static inline std::map<std::string, Process*> programs_;
};

TEST_F(MetricsTest, EveryPageIsWellFormed) {
  for (const auto& [program, process] : programs_) {
    const auto page = Scrape(*process);
    ASSERT_TRUE(page.ok()) << program << ": " << page.status();
    EXPECT_EQ(
        page->Value("baton_build_info", {{"program", program}, {"version", std::string(kVersion)}}),
        1);
    for (const MetricFamily& family : page->families) {
      EXPECT_TRUE(absl::StartsWith(family.name, "baton_") ||
                  absl::StartsWith(family.name, "process_"))
          << family.name;
    }
  }
}

// The router must count the same requests and tokens as the workers and the client.
TEST_F(MetricsTest, RequestsAreCountedAlike) {
  v1::GenerateRequest request = TokenRequest({5, 6, 7, 8, 9, 10, 11}, 12);
  request.mutable_slo()->set_ttft_ms(1e6);
  request.mutable_slo()->set_tpot_ms(1e-6);  // Sets a TPOT target that no answer can meet.
  for (int i = 0; i < 3; ++i) {
    const Answer answer = Generate(cluster_->stub(), request);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_TRUE(answer.summary.slo().ttft_met());
    EXPECT_FALSE(answer.summary.slo().met());
    EXPECT_NE(answer.summary.slo().lost_to(), v1::SLO_PHASE_UNSPECIFIED);
  }
  request.mutable_slo()->set_ttft_ms(0);
  const Answer refused = Generate(cluster_->stub(), request);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument) << refused.status;
  const auto router = Scrape(cluster_->router()), prefill = Scrape(cluster_->prefill(0)),
             decode = Scrape(cluster_->decode(0));
  ASSERT_TRUE(router.ok() && prefill.ok() && decode.ok());
  const auto ended = [&](const char* code) {
    return router->Value("baton_router_requests_total",
                         {{"mode", "disaggregated"}, {"code", code}});
  };
  EXPECT_EQ(ended("OK"), 3);
  EXPECT_EQ(ended("INVALID_ARGUMENT"), 1);
  EXPECT_EQ(router->Sum("baton_router_time_to_first_token_seconds_count"), 3);
  EXPECT_EQ(router->Sum("baton_router_time_per_output_token_seconds_count"), 3);
  EXPECT_EQ(router->Sum("baton_router_prompt_tokens_total"), 21);
  EXPECT_EQ(router->Sum("baton_router_generated_tokens_total"), 36);
  EXPECT_EQ(router->Value("baton_router_slo_requests_total", {{"verdict", "missed"}}), 4);
  EXPECT_EQ(router->Sum("baton_router_slo_missed_total"), 4);
  EXPECT_EQ(router->Value("baton_router_workers", {{"role", "prefill"}, {"state", "ready"}}), 1);
  EXPECT_EQ(router->Value("baton_router_workers", {{"role", "decode"}, {"state", "ready"}}), 1);
  EXPECT_EQ(prefill->Sum("baton_prefill_prompt_tokens_total"), 21);
  EXPECT_EQ(prefill->Value("baton_prefill_prompt_seconds_count"), 3);
  EXPECT_EQ(decode->Sum("baton_decode_generated_tokens_total"), 33) << "one of each is prefill's";
  EXPECT_EQ(decode->Value("baton_decode_pulls_total", {{"code", "OK"}}), 3);
  EXPECT_GT(decode->Sum("baton_decode_pulled_bytes_total"), 0);
  EXPECT_EQ(decode->Sum("baton_decode_kv_links"), 1);
  EXPECT_GT(decode->Value("baton_decode_kv_blocks").value_or(0), 0);
}

TEST_F(MetricsTest, PromtoolFindsNothingToSay) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no promtool on PATH; Debian's package prometheus has it";
  }
  for (const auto& [program, process] : programs_) {
    const auto text = ScrapeText(*MetricsAddress(*process));
    ASSERT_TRUE(text.ok()) << text.status();
    const std::string page = absl::StrCat(cluster_->folder(), "/", program, ".txt");
    std::ofstream(page) << *text;
    FILE* promtool = popen(absl::StrCat("promtool check metrics <'", page, "' 2>&1").c_str(), "r");
    std::string says;
    char bytes[4096];
    while (const size_t got = fread(bytes, 1, sizeof bytes, promtool)) says.append(bytes, got);
    EXPECT_EQ(WEXITSTATUS(pclose(promtool)), 0) << program;
    EXPECT_THAT(says, IsEmpty()) << program;
  }
}

std::set<MetricRow> RowsOf(const Exposition& page) {
  std::set<MetricRow> rows;
  for (const MetricFamily& family : page.families) {
    std::set<std::string> labels;
    for (const MetricSample& sample : family.samples) {
      for (const auto& [label, value] : sample.labels) {
        if (label != "le") labels.insert(label);
      }
    }
    rows.insert({family.name, family.type, labels});
  }
  return rows;
}

std::string Print(const std::set<MetricRow>& rows) {
  std::string text;
  for (const auto& [name, type, labels] : rows) {
    absl::StrAppend(&text, name, " ", type, " {", absl::StrJoin(labels, ","), "}\n");
  }
  return text;
}

TEST_F(MetricsTest, TheDocumentListsExactlyWhatIsThere) {
  const std::map<std::string, std::set<MetricRow>> listed = MetricsDocument();
  for (const auto& [program, process] : programs_) {
    ASSERT_TRUE(listed.count(program)) << program;
    std::set<MetricRow> rows = listed.at(program);
    rows.insert(listed.at("Every program").begin(), listed.at("Every program").end());
    const auto page = Scrape(*process);
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_EQ(Print(rows), Print(RowsOf(*page))) << program;
  }
}

}  // namespace
}  // namespace baton
