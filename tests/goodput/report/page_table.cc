#include "tests/goodput/report/page_table.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/goodput/plot/axis.h"
#include "tests/goodput/plot/svg.h"
#include "tests/goodput/report/cell_text.h"
#include "tests/goodput/report/phases.h"

namespace baton {
namespace {

// Builds an HTML table from rows of plain-text cells.
class Table {
 public:
  explicit Table(const std::vector<std::string>& head) {
    html_ = "<div class=\"table\"><table>\n<tr>";
    for (const std::string& name : head) absl::StrAppend(&html_, "<th>", XmlEscaped(name), "</th>");
    absl::StrAppend(&html_, "</tr>\n");
  }
  void Begin() { absl::StrAppend(&html_, "<tr>"); }
  void Add(absl::string_view text, absl::string_view attributes = "") {
    absl::StrAppend(&html_, "<td", attributes, ">", XmlEscaped(text), "</td>");
  }
  void AddMarkup(absl::string_view html) { absl::StrAppend(&html_, "<td>", html, "</td>"); }
  void End() { absl::StrAppend(&html_, "</tr>\n"); }
  std::string Html() const { return absl::StrCat(html_, "</table></div>\n"); }

 private:
  std::string html_;
};

std::string QuartileName(const MeasuredLoad& load, size_t i) {
  const PromptQuartile& quartile = load.verdict.quartiles[i];
  if (quartile.offered == 0) return "–";
  return quartile.shortest_tokens == quartile.longest_tokens
             ? absl::StrCat(quartile.shortest_tokens, " tokens")
             : absl::StrCat(quartile.shortest_tokens, "–", quartile.longest_tokens, " tokens");
}

}  // namespace

std::string OverviewTable(const std::vector<Cell>& cells) {
  std::vector<std::string> names;
  for (const Cell& cell : cells) {
    for (const CellMode& mode : cell.modes) {
      if (std::find(names.begin(), names.end(), mode.name) == names.end())
        names.push_back(mode.name);
    }
  }
  std::vector<std::string> head = {"cell", "targets", "goal"};
  head.insert(head.end(), names.begin(), names.end());
  head.push_back("best, over the next");
  Table table(head);
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    const int best = cell.Best();
    table.Begin();
    table.AddMarkup(absl::StrCat("<a href=\"#cell", i + 1, "\">", i + 1, ". ",
                                 XmlEscaped(cell.title), "</a>",
                                 cell.partial ? " <span class=\"badge bad\">PARTIAL</span>" : ""));
    std::vector<std::string> targets;
    if (cell.targets.ttft_s) targets.push_back(SecondsText(*cell.targets.ttft_s));
    if (cell.targets.tpot_s) targets.push_back(SecondsText(*cell.targets.tpot_s));
    if (cell.targets.e2e_s) targets.push_back(SecondsText(*cell.targets.e2e_s));
    table.Add(targets.empty() ? "–" : absl::StrJoin(targets, " / "));
    table.Add(PercentText(cell.goal));
    int second = -1;
    for (const std::string& name : names) {
      std::string text = "–", attributes;
      for (size_t k = 0; k < cell.modes.size(); ++k) {
        if (cell.modes[k].name != name) continue;
        text = CapacityText(cell.modes[k].capacity);
        const int mode = static_cast<int>(k);
        if (mode == best && cell.BestIsShown()) attributes = " class=\"best\"";
        if (mode != best && cell.modes[k].capacity.where != Capacity::Where::kUnknown &&
            (second < 0 || cell.modes[k].capacity.rate > cell.modes[second].capacity.rate)) {
          second = mode;
        }
      }
      table.Add(text, attributes);
    }
    if (!cell.BestIsShown()) {
      table.Add(best < 0 ? "–" : "not known");
    } else if (second < 0) {
      table.Add(cell.modes[best].name);
    } else {
      const Ratio& ratio = cell.ratios[best][second];
      const std::string times = absl::StrCat(", ", RatioText(ratio), " ×: ", RatioVerdict(ratio));
      table.Add(absl::StrCat(cell.modes[best].name, ratio.IsUnknown() ? "" : times),
                " class=\"text\"");
    }
    table.End();
  }
  return absl::StrCat(
      "<p class=\"soft\">Highest offered rates (requests/s) at the goal, with 95 % "
      "intervals; targets are TTFT / TPOT.</p>\n",
      table.Html());
}

std::string LatencyTable(const Cell& cell) {
  Table table({"mode", "offered/s", "attainment", "goodput/s", "strict", "TTFT P50", "P90", "P99",
               "TPOT P50", "P90", "P99", "W10 P90", "end to end P50", "P99", "tokens/s in time"});
  for (const CellMode& mode : cell.modes) {
    const MeasuredLoad* load = LoadNear(mode, cell.ReferenceRate());
    if (load == nullptr) continue;
    const Verdict& verdict = load->verdict;
    table.Begin();
    table.Add(mode.name);
    table.Add(NumberText(verdict.offered_rate));
    table.Add(PercentText(load->attainment.value));
    table.Add(NumberText(verdict.goodput));
    table.Add(NumberText(verdict.strict_goodput));
    for (const Percentiles* of : {&verdict.ttft, &verdict.tpot}) {
      for (const double value : {of->p50, of->p90, of->p99}) table.Add(SecondsText(value));
    }
    table.Add(SecondsText(verdict.w10.p90));
    table.Add(SecondsText(verdict.e2e.p50));
    table.Add(SecondsText(verdict.e2e.p99));
    table.Add(NumberText(verdict.token_goodput));
    table.End();
  }
  return table.Html();
}

std::string QuartileTable(const Cell& cell) {
  Table table({"attainment by prompt length", "shortest quarter", "second", "third", "longest"});
  for (const CellMode& mode : cell.modes) {
    const MeasuredLoad* load = LoadNear(mode, cell.ReferenceRate());
    if (load == nullptr) continue;
    table.Begin();
    table.Add(mode.name);
    for (size_t i = 0; i < 4; ++i) {
      const PromptQuartile& quartile = load->verdict.quartiles[i];
      table.Add(
          quartile.offered == 0
              ? "–"
              : absl::StrCat(PercentText(static_cast<double>(quartile.good) / quartile.offered),
                             " (", QuartileName(*load, i), ")"));
    }
    table.End();
  }
  return table.Html();
}

std::string LossSection(const Cell& cell, size_t mode) {
  const MeasuredLoad* load = LoadNear(cell.modes[mode], cell.ReferenceRate());
  if (load == nullptr) return "";
  const LossTable losses = LossesOf(load->run);
  const std::string where =
      absl::StrCat(cell.modes[mode].name, " at ", NumberText(load->run.rate), "/s");
  if (losses.lost == 0)
    return absl::StrCat("<p>", XmlEscaped(where), ": no request missed its targets.</p>\n");
  Table table({absl::StrCat(where, ": ", losses.lost, " of ", load->verdict.offered, " missed, by"),
               QuartileName(*load, 0), QuartileName(*load, 1), QuartileName(*load, 2),
               QuartileName(*load, 3), "all", "share"});
  std::vector<size_t> order;
  for (size_t loss = 0; loss < kLosses; ++loss) {
    if (losses.Total(loss) > 0) order.push_back(loss);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return losses.Total(a) > losses.Total(b); });
  for (const size_t loss : order) {
    table.Begin();
    table.Add(LossName(loss));
    for (const int count : losses.counts[loss]) {
      table.Add(count == 0 ? "" : absl::StrCat(count),
                absl::StrCat(" class=\"heat\" style=\"--share:",
                             SvgNumber(static_cast<double>(count) / losses.lost), "\""));
    }
    table.Add(absl::StrCat(losses.Total(loss)));
    table.Add(PercentText(static_cast<double>(losses.Total(loss)) / losses.lost));
    table.End();
  }
  return table.Html();
}

std::string IntegritySection(const Cell& cell) {
  std::string html = "<ul>\n";
  const auto item = [&](Weight weight, const std::string& text) {
    absl::StrAppend(&html, "<li><span class=\"",
                    weight == Weight::kFine     ? "fine\">fine"
                    : weight == Weight::kRemark ? "warn\">remark"
                                                : "bad\">problem",
                    "</span>: ", XmlEscaped(text), "</li>\n");
  };
  for (const std::string& remark : cell.remarks)
    item(cell.partial ? Weight::kInvalid : Weight::kRemark, remark);
  for (const CellMode& mode : cell.modes) {
    for (const std::string& note : mode.notes)
      item(Weight::kRemark, absl::StrCat(mode.name, ": ", note));
  }
  size_t loads = 0, clean = 0;
  for (const CellMode& mode : cell.modes) {
    for (const MeasuredLoad& load : mode.loads) {
      ++loads;
      const std::vector<Finding> findings = Findings(load);
      const bool fine = std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
        return finding.weight == Weight::kFine;
      });
      clean += fine;
      if (fine) continue;
      for (const Finding& finding : findings) {
        if (finding.weight != Weight::kFine)
          item(finding.weight, absl::StrCat(mode.name, " at ", NumberText(load.run.rate),
                                            "/s, seed ", load.run.seed, ": ", finding.text));
      }
    }
  }
  double worst_lag = 0;
  uint64_t sent = 0;
  for (const CellMode& mode : cell.modes) {
    for (const MeasuredLoad& load : mode.loads) {
      worst_lag = std::max(worst_lag, load.verdict.lag.worst_s);
      sent += load.verdict.lag.sent;
    }
  }
  item(Weight::kFine,
       absl::StrCat(clean, " of ", loads, " loads leave nothing to remark; ", sent,
                    " requests sent, the latest ", SecondsText(worst_lag), " after its time"));
  return absl::StrCat(html, "</ul>\n");
}

std::string LoadsTable(const Cell& cell) {
  Table table({"mode", "rate/s", "why", "seed", "window", "requests", "attainment", "TTFT alone",
               "TPOT alone", "goodput/s", "TTFT P90", "TPOT P90"});
  for (const CellMode& mode : cell.modes) {
    for (const MeasuredLoad& load : mode.loads) {
      table.Begin();
      table.Add(mode.name);
      table.Add(NumberText(load.run.rate));
      table.Add(load.run.partial ? "PARTIAL" : load.purpose.empty() ? "run" : load.purpose);
      table.Add(absl::StrCat(load.run.seed));
      table.Add(SecondsText(load.verdict.window_s));
      table.Add(absl::StrCat(load.verdict.offered));
      table.Add(ShareText(load.attainment));
      table.Add(PercentText(load.ttft_share.value));
      table.Add(PercentText(load.tpot_share.value));
      table.Add(NumberText(load.verdict.goodput));
      table.Add(SecondsText(load.verdict.ttft.p90));
      table.Add(SecondsText(load.verdict.tpot.p90));
      table.End();
    }
  }
  return table.Html();
}

std::string EnvironmentTable(const Cell& cell) {
  Table table({"what", "value"});
  const auto row = [&](const std::string& name, const std::string& value) {
    if (value.empty()) return;
    table.Begin();
    table.Add(name);
    table.Add(value, " class=\"text\"");
    table.End();
  };
  // Modes may use different servers: each different value is listed once.
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;
  const auto note = [&](const std::string& name, const std::string& value) {
    auto found = std::find_if(rows.begin(), rows.end(),
                              [&](const auto& entry) { return entry.first == name; });
    if (found == rows.end()) found = rows.insert(rows.end(), {name, {}});
    std::vector<std::string>& values = found->second;
    if (!value.empty() && std::find(values.begin(), values.end(), value) == values.end())
      values.push_back(value);
  };
  std::string first, last;
  for (const CellMode& mode : cell.modes) {
    for (const MeasuredLoad& load : mode.loads) {
      const RunResult& run = load.run;
      note("model", run.server.model);
      note("architecture", run.server.architecture);
      note("fingerprint", run.server.fingerprint);
      note("server",
           absl::StrCat(run.server.endpoint, ", ", run.server.prefill_workers, " prefill and ",
                        run.server.decode_workers, " decode workers, context ",
                        run.server.context_tokens, " tokens"));
      note("tool", absl::StrCat("baton-goodput ", run.tool_version));
      if (run.unloaded) {
        note("unloaded latency",
             absl::StrCat("TTFT ", SecondsText(run.unloaded->ttft_s), ", TPOT ",
                          SecondsText(run.unloaded->tpot_s), ", of ", run.unloaded->probes,
                          " requests one by one (", run.unloaded->prompt_tokens, " + ",
                          run.unloaded->output_tokens, " tokens)"));
      }
      if (first.empty() || run.started_at < first) first = run.started_at;
      last = std::max(last, run.started_at);
    }
  }
  for (const auto& [name, values] : rows) row(name, absl::StrJoin(values, "; "));
  row("loads began", first == last ? first : absl::StrCat(first, " to ", last));
  for (const auto& [flag, value] : cell.spec)
    row(absl::StrCat("--", absl::StrReplaceAll(flag, {{"_", "-"}})), value);
  return table.Html();
}

}  // namespace baton
