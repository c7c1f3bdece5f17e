#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/goodput/report/cell_text.h"
#include "tests/goodput/report/page_style.h"
#include "tests/goodput/report/page_table.h"
#include "tests/goodput/report/phases.h"
#include "tests/goodput/report/plots.h"
#include "tests/goodput/report/report.h"

namespace baton {
namespace {

const char* ClassOf(Weight weight) {
  return weight == Weight::kFine ? "fine" : weight == Weight::kRemark ? "warn" : "bad";
}

std::string Badge(Weight weight, absl::string_view text) {
  return absl::StrCat("<span class=\"badge ", ClassOf(weight), "\">", XmlEscaped(text),
                      "</span>\n");
}

std::string Swatch(int color) {
  return absl::StrCat("<span class=\"swatch\" style=\"background:var(--s", color % kColors,
                      ")\"></span>");
}

std::string Tile(absl::string_view name, absl::string_view figure, absl::string_view below,
                 int color = -1) {
  return absl::StrCat("<div class=\"tile\"><div class=\"name\">", color < 0 ? "" : Swatch(color),
                      XmlEscaped(name), "</div><div class=\"figure\">", XmlEscaped(figure),
                      "</div><div class=\"soft\">", XmlEscaped(below), "</div></div>\n");
}

std::string Plots(const std::vector<SvgCanvas>& plots) {
  std::string html = "<div class=\"plots\">\n";
  for (const SvgCanvas& plot : plots) absl::StrAppend(&html, plot.Inline());
  return absl::StrCat(html, "</div>\n");
}

std::string VerdictBox(const Cell& cell) {
  std::string html = "<div class=\"verdict\">\n";
  for (const std::string& sentence : VerdictSentences(cell))
    absl::StrAppend(&html, "<p>", XmlEscaped(sentence), "</p>\n");
  absl::StrAppend(&html, "<p>");
  if (cell.partial) absl::StrAppend(&html, Badge(Weight::kInvalid, "PARTIAL"));
  const Weight worst = WorstOf(cell);
  absl::StrAppend(&html,
                  Badge(worst, worst == Weight::kFine     ? "nothing against these figures"
                               : worst == Weight::kRemark ? "read the remarks on integrity"
                                                          : "not to be relied on: see integrity"),
                  "</p>\n</div>\n");
  return html;
}

// Returns true if the cell has a curve over rates, and false if it has only loads of one rate.
bool HasCurve(const Cell& cell) {
  for (const CellMode& mode : cell.modes) {
    for (const MeasuredLoad& load : mode.loads) {
      if (load.run.rate != mode.loads[0].run.rate) return true;
    }
  }
  return false;
}

std::string CapacityTiles(const Cell& cell) {
  std::string html = "<div class=\"tiles\">\n";
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    const CellMode& mode = cell.modes[i];
    const Capacity& capacity = mode.capacity;
    std::string figure = "unknown", below;
    if (capacity.where != Capacity::Where::kUnknown) {
      const bool below_all = capacity.where == Capacity::Where::kBelow;
      const bool above_all = capacity.where == Capacity::Where::kAbove;
      figure = absl::StrCat(below_all   ? "< "
                            : above_all ? "≥ "
                                        : "",
                            NumberText(capacity.rate), "/s");
      below = absl::StrCat("95 %: ", IntervalText(capacity.interval));
    }
    if (mode.searched) {
      absl::StrAppend(&below, below.empty() ? "" : "; ", ConfirmationText(mode));
    }
    absl::StrAppend(&html, Tile(mode.name, figure, below, ModeColor(cell, i)));
  }
  return absl::StrCat(html, "</div>\n");
}

std::string LoadTiles(const MeasuredLoad& load) {
  const auto& verdict = load.verdict;
  const auto percentiles = [](const Percentiles& of) {
    return absl::StrCat("P50 ", SecondsText(of.p50), ", P99 ", SecondsText(of.p99));
  };
  return absl::StrCat("<div class=\"tiles\">\n",
                      Tile("goodput", absl::StrCat(NumberText(verdict.goodput), "/s"),
                           absl::StrCat("of ", NumberText(verdict.offered_rate), "/s offered")),
                      Tile("attainment", PercentText(load.attainment.value),
                           absl::StrCat("95 %: ", PercentText(load.attainment.interval.low), " to ",
                                        PercentText(load.attainment.interval.high))),
                      Tile("TTFT, P90", SecondsText(verdict.ttft.p90), percentiles(verdict.ttft)),
                      Tile("TPOT, P90", SecondsText(verdict.tpot.p90), percentiles(verdict.tpot)),
                      Tile("tokens in time", absl::StrCat(NumberText(verdict.token_goodput), "/s"),
                           absl::StrCat("of ", NumberText(verdict.token_rate), "/s received")),
                      "</div>\n");
}

std::string CellSection(const Cell& cell, size_t number, bool alone) {
  std::string html;
  if (!alone) {
    absl::StrAppend(&html, "<h2 id=\"cell", number, "\">", number, ". ", XmlEscaped(cell.title),
                    "</h2>\n");
  }
  absl::StrAppend(&html, "<p class=\"soft\">", XmlEscaped(TargetsSentence(cell.targets)),
                  cell.targets.source.empty() ? "" : " (", XmlEscaped(cell.targets.source),
                  cell.targets.source.empty() ? "" : ")",
                  cell.model.empty() ? "" : absl::StrCat(" · model ", XmlEscaped(cell.model)),
                  cell.workload.empty() ? "" : absl::StrCat(" · ", XmlEscaped(cell.workload)),
                  "</p>\n", VerdictBox(cell));
  const bool curve = HasCurve(cell);
  if (curve) absl::StrAppend(&html, CapacityTiles(cell));
  if (!curve && cell.modes.size() == 1 && cell.modes[0].loads.size() == 1)
    absl::StrAppend(&html, LoadTiles(cell.modes[0].loads[0]));
  std::vector<SvgCanvas> plots;
  if (curve) plots = {AttainmentPlot(cell), GoodputPlot(cell), CapacityPlot(cell)};
  plots.push_back(PhasesPlot(cell));
  absl::StrAppend(&html, Plots(plots));

  absl::StrAppend(
      &html, "<h3>Latencies at ", NumberText(cell.ReferenceRate()),
      " requests/s</h3>\n<p class=\"soft\">Of each mode the load nearest to that rate. The "
      "curves count every offered request; the table's percentiles only completed ones."
      "</p>\n",
      Plots({TtftPlot(cell), TpotPlot(cell), W10Plot(cell), ScalePlot(cell)}), LatencyTable(cell));

  absl::StrAppend(&html, "<h3>Where missed targets lost their time</h3>\n");
  std::vector<SvgCanvas> lost;
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    if (curve) lost.push_back(TargetsPlot(cell, i));
    const MeasuredLoad* load = LoadNear(cell.modes[i], cell.ReferenceRate());
    if (load != nullptr && HasPhases(*load)) lost.push_back(CoursesPlot(cell, i));
  }
  for (size_t i = 0; i < cell.modes.size(); ++i) absl::StrAppend(&html, LossSection(cell, i));
  absl::StrAppend(&html, Plots(lost), QuartileTable(cell));

  absl::StrAppend(&html, "<h3>Over time</h3>\n");
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    const MeasuredLoad* load = LoadNear(cell.modes[i], cell.ReferenceRate());
    if (load == nullptr) continue;
    absl::StrAppend(&html, "<details", i == 0 ? " open=\"open\"" : "", "><summary>",
                    XmlEscaped(cell.modes[i].name), " at ", NumberText(load->run.rate),
                    " requests/s</summary>\n", Plots(TimelinePlots(*load)), "</details>\n");
  }
  absl::StrAppend(&html, "<h3>Integrity</h3>\n", IntegritySection(cell),
                  "<details><summary>All loads</summary>\n", LoadsTable(cell), "</details>\n",
                  "<details><summary>Environment</summary>\n", EnvironmentTable(cell),
                  "</details>\n");
  return html;
}

std::string Overview(const std::vector<Cell>& cells) {
  std::string html = OverviewTable(cells);
  const std::string base = BaseMode(cells);
  if (!base.empty()) absl::StrAppend(&html, Plots({OverviewPlot(cells, base)}));
  return html;
}

}  // namespace

std::string ReportPage(const std::vector<Cell>& cells, const ReportOptions& options) {
  const std::string title = XmlEscaped(options.title);
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
      title, "</title>\n<style>\n", PlotStyle(), kPageStyle,
      "</style>\n</head>\n<body>\n<main>\n<h1>", title, "</h1>\n<p class=\"soft\">");
  const bool partial =
      std::any_of(cells.begin(), cells.end(), [](const Cell& cell) { return cell.partial; });
  if (cells.size() == 1) absl::StrAppend(&html, XmlEscaped(cells[0].title), " · ");
  absl::StrAppend(&html, "made ", XmlEscaped(options.made_at), " by baton-goodput</p>\n");
  if (partial && cells.size() > 1) {
    absl::StrAppend(&html, "<p>", Badge(Weight::kInvalid, "PARTIAL: not everything ran to its end"),
                    "</p>\n");
  }
  if (cells.size() > 1) absl::StrAppend(&html, Overview(cells));
  for (size_t i = 0; i < cells.size(); ++i)
    absl::StrAppend(&html, CellSection(cells[i], i + 1, cells.size() == 1));
  return absl::StrCat(
      html,
      "<h3>How to read this</h3>\n<p class=\"soft\">A request is good when it completed with as "
      "many "
      "tokens as asked, its first token came within the TTFT target after its <em>scheduled</em> "
      "arrival, and its later tokens within the TPOT target on average. Attainment is good over "
      "offered requests; rejected, failed and unfinished ones count as missed. Capacity is the "
      "highest offered rate at which attainment reaches the goal. Intervals are at 95 %: Wilson's "
      "over independent requests for shares, bootstrap over blocks of requests for capacities, and "
      "paired over equal arrivals for their ratios.</p>\n</main>\n</body>\n</html>\n");
}

}  // namespace baton
