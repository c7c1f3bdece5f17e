#include "tests/goodput/report/report.h"

#include <cstdlib>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/goodput/search/compared_search.h"
#include "tests/goodput/search/simulated_run.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kModes = {"disaggregated", "colocated", "auto"};

SearchResult SimulatedSearch(const SimulatedLoad& base, double probe_s = 20) {
  SearchResult search{.tool_version = "0.1.0", .started_at = "2026-11-21T12:00:00Z", .goal = 0.9};
  for (const std::string& name : kModes)
    search.modes.push_back({.name = name, .endpoint = "127.0.0.1:50051"});
  ComparedSearch driver(kModes.size(),
                        {.first_rate = base.rate, .probe_s = probe_s, .longest_s = 4 * probe_s});
  while (driver.Next()) {
    const ComparedSearch::Step step = *driver.Next();
    SimulatedLoad load = base;
    load.mode = kModes[step.mode];
    load.rate = step.plan.rate;
    load.seed = step.plan.seed;
    load.window_s = step.plan.window_s;
    search.modes[step.mode].loads.push_back({step.plan, SimulatedRun(load)});
    driver.Add(GoodOnes(search.modes[step.mode].loads.back().run));
  }
  for (size_t i = 0; i < kModes.size(); ++i) {
    search.modes[i].finished = driver.search(i).finished();
    search.modes[i].confirmed = driver.search(i).confirmed();
    search.modes[i].notes = driver.search(i).Notes();
  }
  return search;
}

std::vector<Cell> OneRun(RunResult run) {
  std::vector<InputFile> files(1);
  files[0].runs = {std::move(run)};
  return CellsOf(std::move(files), 0.9);
}

std::vector<Cell> ThreeCells() {
  std::vector<InputFile> files(1);
  files[0].searches = {
      SimulatedSearch({}),
      SimulatedSearch({.targets = {.name = "summarise", .ttft_s = 3, .tpot_s = 0.06},
                       .prompt_tokens = 1500,
                       .output_tokens = 20}),
      SimulatedSearch({.targets = {.name = "code", .ttft_s = 0.3, .tpot_s = 0.03},
                       .prompt_tokens = 200,
                       .output_tokens = 80})};
  return CellsOf(std::move(files), 0.9);
}

// Returns the first XML error in `html`, such as tags that do not match, attributes without quotes,
// or a bare '<' or '&'. Returns an empty text if there is none.
std::string Malformed(absl::string_view html) {
  const absl::string_view all = html;
  const auto place = [&] {
    return absl::StrCat(" at: ", all.substr(html.data() - all.data(), 60));
  };
  std::vector<std::string> open;
  while (!html.empty()) {
    const char c = html[0];
    if (c == '>') return "bare >" + place();
    if (c == '&') {
      const size_t end = html.find(';');
      static const std::set<absl::string_view> kKnown = {"&lt", "&gt", "&amp", "&quot", "&#39"};
      if (kKnown.count(html.substr(0, end)) == 0) return "bare &" + place();
    }
    if (c != '<') {
      html.remove_prefix(1);
      continue;
    }
    if (absl::StartsWith(html, "<!DOCTYPE html>")) {
      html.remove_prefix(15);
      continue;
    }
    const bool closes = absl::StartsWith(html, "</");
    html.remove_prefix(closes ? 2 : 1);
    const size_t name_end = html.find_first_of(" />\n");
    const std::string name(html.substr(0, name_end));
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](char l) {
          return ('a' <= l && l <= 'z') || ('0' <= l && l <= '9');
        })) {
      return absl::StrCat("tag '", name, "'", place());
    }
    html.remove_prefix(name_end);
    if (closes) {
      if (open.empty() || open.back() != name || html[0] != '>') return "end of " + name + place();
      open.pop_back();
      html.remove_prefix(1);
      continue;
    }
    while (html[0] == ' ') {
      html.remove_prefix(1);
      const size_t quote = html.find("=\"");
      if (quote == html.npos || html.substr(0, quote).find_first_of(" <>'") != html.npos)
        return "attribute of " + name + place();
      html.remove_prefix(quote + 2);
      const size_t end = html.find('"');
      if (end == html.npos || html.substr(0, end).find('<') != html.npos)
        return "value in " + name + place();
      html.remove_prefix(end + 1);
    }
    const bool empty = html[0] == '/';
    if (empty) html.remove_prefix(1);
    if (html[0] != '>') return "tag " + name + place();
    html.remove_prefix(1);
    if (empty) continue;
    open.push_back(name);
    if (name == "style") html.remove_prefix(html.find("</style>"));
  }
  return open.empty() ? "" : "open at the end: " + open.back();
}

void ExpectWholeAndSelfContained(const std::string& page) {
  EXPECT_EQ(Malformed(page), "");
  for (size_t at = page.find("http"); at != page.npos; at = page.find("http", at + 1)) {
    EXPECT_EQ(page.substr(at, 27), "http://www.w3.org/2000/svg\"") << page.substr(at, 80);
    if (page.substr(at, 4) != "http") break;
  }
  for (const char* what : {"<script", " src=", "@import", "url(", "<link", "<iframe", "<img"})
    EXPECT_THAT(page, Not(HasSubstr(what)));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(page, HasSubstr("name=\"viewport\""));
}

TEST(ReportTest, TheCheckerFindsWhatIsMalformed) {
  EXPECT_EQ(Malformed("<p a=\"b\">x &amp; y</p><br/>"), "");
  for (const char* bad :
       {"<p>", "<p></b>", "a & b", "a > b", "<p a=b></p>", "<P></P>", "<p a=\"<\"/>"})
    EXPECT_NE(Malformed(bad), "") << bad;
}

TEST(ReportTest, PagesAreWellFormedAndNeedNothingElse) {
  const std::vector<Cell> three = ThreeCells();
  const std::string many = ReportPage(three, {.made_at = "2026-11-21T13:00:00Z"});
  ExpectWholeAndSelfContained(many);
  EXPECT_THAT(many, AllOf(HasSubstr("Capacity relative to colocated"), HasSubstr("id=\"cell3\"")));
  const std::string one = ReportPage(OneRun(SimulatedRun({.rate = 5, .window_s = 60})), {});
  ExpectWholeAndSelfContained(one);
  EXPECT_THAT(one, AllOf(HasSubstr("Queues"), HasSubstr("KV cache"), HasSubstr("tokens in time"),
                         Not(HasSubstr("Attainment against offered rate"))));
  // If BATON_SAMPLES is set, writes the page to that folder, so that people can look at it.
  if (const char* folder = std::getenv("BATON_SAMPLES"); folder != nullptr) {
    const auto write = [&](const std::string& name, const std::vector<Cell>& cells) {
      const std::string path = absl::StrCat(folder, "/", name);
      std::ofstream(path + ".html") << ReportPage(cells, {.made_at = "2026-11-21T13:00:00Z"});
      for (const auto& [file, plot] : KeyPlots(cells))
        std::ofstream(path + "-" + file) << plot.Standalone();
    };
    write("many", three);
    write("cell", {three[0]});
    write("one", OneRun(SimulatedRun({.rate = 5, .window_s = 60})));
  }
}

TEST(ReportTest, HostileNamesAreEscaped) {
  RunResult run = SimulatedRun({.rate = 5, .window_s = 10});
  const std::string hostile = "</title></svg><script>alert('x')</script>\"&\x01\xff";
  run.mode = hostile;
  run.server.model = run.server.endpoint = run.server.architecture = hostile;
  run.server.fingerprint = run.tool_version = run.started_at = hostile;
  run.targets.name = run.targets.source = hostile;
  run.spec[hostile] = hostile;
  run.spec["prompt_tokens"] = hostile;
  run.remarks = {hostile};
  run.invalid = {hostile};
  for (MetricSeries& series : run.timeline) {
    series.name += hostile;
    series.source = hostile;
  }
  for (RequestRecord& record : run.records) {
    record.status = record.message = record.link = hostile;
    record.prefill_worker = record.decode_worker = record.mode = hostile;
  }
  const std::vector<Cell> cells = OneRun(run);
  ExpectWholeAndSelfContained(ReportPage(cells, {.title = hostile, .made_at = hostile}));
  for (const auto& [name, plot] : KeyPlots(cells)) {
    EXPECT_EQ(Malformed(plot.Standalone()), "") << name;
    EXPECT_THAT(name, Not(HasSubstr("/")));
  }
  const std::string json =
      ReportJson(cells, {}).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  EXPECT_FALSE(nlohmann::json::parse(json, nullptr, false).is_discarded());
}

TEST(ReportTest, NothingMeasuredIsStillAPage) {
  RunResult run = SimulatedRun({.rate = 5, .window_s = 10});
  run.records.clear();
  run.timeline.clear();
  run.partial = true;
  ExpectWholeAndSelfContained(ReportPage(OneRun(run), {}));
  run = SimulatedRun({.rate = 5, .window_s = 10});
  for (RequestRecord& record : run.records) {
    record.outcome = Outcome::kFailed;
    record.token_s.clear();
    record.has_phases = false;
  }
  run.rate = 0;
  run.targets = {};
  run.window_end_s = run.window_begin_s;
  ExpectWholeAndSelfContained(ReportPage(OneRun(run), {}));
}

TEST(ReportTest, WhatIsPartialIsMarkedSo) {
  SearchResult search = SimulatedSearch({}, 10);
  const auto page = [](const SearchResult& result) {
    std::vector<InputFile> files(1);
    files[0].searches = {result};
    return ReportPage(CellsOf(std::move(files), 0.9), {});
  };
  EXPECT_THAT(page(search), Not(HasSubstr("PARTIAL")));
  search.partial = true;
  search.modes[1].finished = search.modes[1].confirmed = false;
  search.remarks = {"stopped by Ctrl-C"};
  EXPECT_THAT(page(search), AllOf(HasSubstr("PARTIAL"), HasSubstr("search not finished"),
                                  HasSubstr("stopped by Ctrl-C")));
}

TEST(ReportTest, TheJsonHasTheFiguresOfThePage) {
  const std::vector<Cell> cells = ThreeCells();
  const auto json = ReportJson(cells, {.title = "t", .made_at = "m"});
  EXPECT_EQ(json["baton_goodput_report"], 1);
  ASSERT_EQ(json["cells"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const auto& cell = json["cells"][i];
    EXPECT_EQ(cell["best"], cells[i].modes[cells[i].Best()].name);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(cell["modes"][k]["capacity"]["rate"], cells[i].modes[k].capacity.rate);
      EXPECT_EQ(cell["modes"][k]["loads"].size(), cells[i].modes[k].loads.size());
    }
    EXPECT_EQ(cell["modes"][0]["ratios"]["colocated"]["ratio"], cells[i].ratios[0][1].value);
  }
  const auto& load = json["cells"][0]["modes"][0]["loads"][0];
  const MeasuredLoad& measured = cells[0].modes[0].loads[0];
  EXPECT_EQ(load["goodput"], measured.verdict.goodput);
  EXPECT_EQ(load["ttft_ms"]["p90"], measured.verdict.ttft.p90 * 1e3);
  EXPECT_EQ(load["attainment"]["low"], measured.attainment.interval.low);
}

TEST(ReportTest, KeyPlotsHaveFileNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const auto& [name, plot] : KeyPlots(ThreeCells())) {
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(Malformed(plot.Standalone()), "") << name;
  }
  EXPECT_EQ(names.count("overview.svg"), 1u);
  EXPECT_EQ(names.size(), 19u);
}

}  // namespace
}  // namespace baton
