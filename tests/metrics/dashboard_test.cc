// Checks that the dashboard and the alerts use only metrics and labels that docs/metrics.md lists.
// metrics_test.cc compares docs/metrics.md with the programs. tests/metrics/prometheus runs the
// queries of dashboard and alerts.

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "tests/metrics/metrics_document.h"

namespace baton {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kDashboard[] = BATON_SOURCE_DIR "/helm/dashboards/baton.json";
constexpr char kRules[] = BATON_SOURCE_DIR "/helm/rules/baton.yaml";
constexpr char kCases[] = BATON_SOURCE_DIR "/tests/metrics/alerts_test.yaml";

std::string Contents(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

// Returns the labels of each metric that a query may name. A histogram is not listed by its own
// name, but by the names of its series (_bucket, _sum, _count).
std::map<std::string, std::set<std::string>> LabelsOfSeries() {
  std::map<std::string, std::set<std::string>> series = {{"up", {}}};
  for (const auto& [heading, rows] : MetricsDocument()) {
    for (const auto& [name, type, labels] : rows) {
      const std::vector<std::string> suffixes =
          type == "histogram" ? std::vector<std::string>{"_bucket", "_sum", "_count"}
                              : std::vector<std::string>{""};
      for (const std::string& suffix : suffixes) {
        std::set<std::string>& all = series[absl::StrCat(name, suffix)];
        all.insert(labels.begin(), labels.end());
        if (suffix == "_bucket") all.insert("le");
      }
    }
  }
  return series;
}

// Returns the errors of `query`: unknown metrics, and labels that none of its metrics has. The
// labels job and instance are always known, because Prometheus adds them.
std::vector<std::string> Complaints(const std::string& query) {
  static const auto* series = new std::map<std::string, std::set<std::string>>(LabelsOfSeries());
  static const std::regex kSeries(R"(\b((?:baton|process)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?)");
  static const std::regex kMatcher(R"(([a-z_]+)\s*(?:=~|!~|!=|=)\s*"[^"]*")");
  static const std::regex kLabels(R"(\b(?:by|on|ignoring|without|group_left)\s*\(([^)]*)\))");
  std::vector<std::string> complaints;
  std::set<std::string> of_query = {"job", "instance"};
  const auto each = [](const std::string& text, const std::regex& what, const auto& visit) {
    for (std::sregex_iterator at(text.begin(), text.end(), what), end; at != end; ++at) visit(*at);
  };
  int found = 0;
  each(query, kSeries, [&](const std::smatch& match) {
    ++found;
    const std::string name = match[1];
    if (!series->contains(name)) {
      complaints.push_back(absl::StrCat("no metric ", name));
      return;
    }
    const std::set<std::string>& labels = series->at(name);
    of_query.insert(labels.begin(), labels.end());
    each(match[2], kMatcher, [&](const std::smatch& matcher) {
      const std::string label = matcher[1];
      if (label != "job" && label != "instance" && !labels.contains(label))
        complaints.push_back(absl::StrCat(name, " has no label ", label));
    });
  });
  each(query, kLabels, [&](const std::smatch& match) {
    for (absl::string_view label : absl::StrSplit(match[1].str(), ", ")) {
      if (!of_query.contains(std::string(label)))
        complaints.push_back(absl::StrCat("no metric of it has a label ", label));
    }
  });
  if (found == 0) complaints.push_back("it asks for no metric");
  return complaints;
}

TEST(DashboardTest, ComplaintsNameWhatIsNotThere) {
  EXPECT_THAT(Complaints("sum by (role) (baton_router_workers{job=~\"$job\", state=\"ready\"})"),
              IsEmpty());
  EXPECT_THAT(Complaints("sum(rate(baton_router_worker{job=\"a\"}[5m]))"),
              ElementsAre("no metric baton_router_worker"));
  EXPECT_THAT(Complaints("baton_router_workers{phase=\"ready\"}"),
              ElementsAre("baton_router_workers has no label phase"));
  EXPECT_THAT(Complaints("sum by (le, code) (baton_decode_step_seconds_bucket)"),
              ElementsAre("no metric of it has a label code"));
  EXPECT_THAT(Complaints("baton_decode_step_seconds"),
              ElementsAre("no metric baton_decode_step_seconds"));
  EXPECT_THAT(Complaints("time()"), ElementsAre("it asks for no metric"));
}

TEST(DashboardTest, ItsQueriesAskForMetricsThatThereAre) {
  const json dashboard = json::parse(Contents(kDashboard));
  std::set<int> ids;
  int queries = 0;
  for (const json& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << panel["title"];
    if (panel["type"] == "row") continue;
    EXPECT_FALSE(panel.value("description", "").empty()) << panel["title"];
    for (const json& target : panel["targets"]) {
      const std::string query = target["expr"];
      EXPECT_THAT(Complaints(query), IsEmpty()) << panel["title"] << ": " << query;
      EXPECT_TRUE(absl::StrContains(query, "job=~\"$job\"")) << panel["title"] << ": " << query;
      ++queries;
    }
  }
  EXPECT_GT(queries, 60);
}

// Returns the lines of the file `path` that begin with `begin`, without this beginning.
std::vector<std::string> LinesWith(const char* path, absl::string_view begin) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(Contents(path), '\n')) {
    line = absl::StripLeadingAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, begin)) lines.emplace_back(line);
  }
  return lines;
}

TEST(AlertsTest, TheirQueriesAskForMetricsThatThereAre) {
  const std::vector<std::string> queries = LinesWith(kRules, "expr: ");
  EXPECT_GT(queries.size(), 10u);
  for (const std::string& query : queries) EXPECT_THAT(Complaints(query), IsEmpty()) << query;
}

TEST(AlertsTest, EachHasACase) {
  const std::string cases = Contents(kCases);
  const std::vector<std::string> alerts = LinesWith(kRules, "- alert: ");
  EXPECT_EQ(alerts.size(), LinesWith(kRules, "expr: ").size());
  for (const std::string& alert : alerts)
    EXPECT_TRUE(absl::StrContains(cases, absl::StrCat("alertname=\"", alert, "\""))) << alert;
}

TEST(AlertsTest, AreRaisedWhereTheCasesSay) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no promtool on PATH; Debian's package prometheus has it";
  }
  const std::string test =
      absl::StrCat("promtool check rules '", kRules, "' && promtool test rules '", kCases, "'");
  EXPECT_EQ(std::system(test.c_str()), 0);
}

}  // namespace
}  // namespace baton
