#include "tests/goodput/report_command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <sys/stat.h>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/program.h"
#include "common/base/status_macros.h"
#include "tests/goodput/report/cell_text.h"
#include "tests/goodput/report/report.h"
#include "tests/goodput/results/run_file.h"

ABSL_DECLARE_FLAG(std::string, out);
ABSL_FLAG(double, attainment, 0.9,
          "share of requests that must be good, between 0 and 1: the goal of a search, and the "
          "goal that report and diff compare runs with");
ABSL_FLAG(std::string, title, "Goodput",
          "report: heading of the page; search: name of the search in reports");
ABSL_FLAG(std::string, svg, "",
          "report: folder to write the key plots to, as SVG files; default: none are written");

namespace baton {
namespace {

// Returns the path of the JSON figures, beside the page: report.json for report.html.
std::string FiguresPath(const std::string& page) {
  for (const char* end : {".html", ".htm"}) {
    if (absl::EndsWith(page, end))
      return absl::StrCat(page.substr(0, page.size() - std::strlen(end)), ".json");
  }
  return absl::StrCat(page, ".json");
}

using Plots = std::vector<std::pair<std::string, SvgCanvas>>;

std::string PlotPath(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name);
}

absl::Status WritePlots(const std::string& folder, const Plots& plots) {
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return absl::UnavailableError(
        absl::StrCat("can't make the folder ", folder, ": ", std::strerror(errno)));
  }
  for (const auto& [name, plot] : plots) {
    RETURN_IF_ERROR(WriteWhole(PlotPath(folder, name), plot.Standalone()));
  }
  return absl::OkStatus();
}

// Exits if `written` is one of the inputs. Call it before anything is written.
void RefuseToOverwrite(const std::string& written, const std::vector<std::string>& inputs) {
  if (absl::Status status = CheckIsNoInput(written, inputs); !status.ok())
    RefuseToStart(status.message());
}

// Exits if a file was given twice: its loads would count as twice the evidence.
void RefuseTheSameTwice(const std::vector<std::string>& paths) {
  for (size_t i = 0; i < paths.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      std::error_code not_there;  // A missing file is reported when it is read.
      if (std::filesystem::equivalent(paths[i], paths[k], not_there))
        RefuseToStart(absl::StrCat(paths[k], " and ", paths[i], " are the same file"));
    }
  }
}

int MakeReport(const std::vector<std::string>& paths) {
  const std::string out = absl::GetFlag(FLAGS_out);
  const double goal = absl::GetFlag(FLAGS_attainment);
  if (out.empty()) RefuseToStart("report needs --out=FILE.html");
  if (!(goal > 0 && goal < 1))
    RefuseToStart(absl::StrCat("--attainment=", goal, " is not between 0 and 1"));
  if (absl::Status status = CheckWritable(out); !status.ok()) RefuseToStart(status.message());
  for (const std::string& written : {out, FiguresPath(out)}) RefuseToOverwrite(written, paths);
  RefuseTheSameTwice(paths);
  std::vector<InputFile> files;
  for (const std::string& path : paths) {
    absl::StatusOr<InputFile> file = ReadInputFile(path);
    if (!file.ok()) return Fail(file.status());
    if (FlagGiven("attainment")) {
      if (absl::Status status = CheckGoal(*file, goal); !status.ok())
        RefuseToStart(status.message());
    }
    files.push_back(*std::move(file));
  }
  const std::vector<Cell> cells = CellsOf(std::move(files), goal);
  if (cells.empty()) return Fail(absl::InvalidArgumentError("the files hold no load"));
  const std::string svg = absl::GetFlag(FLAGS_svg);
  const Plots plots = svg.empty() ? Plots() : KeyPlots(cells);
  for (const auto& [name, plot] : plots) RefuseToOverwrite(PlotPath(svg, name), paths);
  const ReportOptions options{
      .title = absl::GetFlag(FLAGS_title),
      .made_at = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone())};
  absl::Status status = WriteWhole(out, ReportPage(cells, options));
  if (status.ok()) {
    status = WriteWhole(
        FiguresPath(out),
        absl::StrCat(ReportJson(cells, options)
                         .dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                     "\n"));
  }
  if (status.ok() && !svg.empty()) status = WritePlots(svg, plots);
  if (!status.ok()) return Fail(status);
  for (const Cell& cell : cells) {
    std::printf("%s%s\n", cell.partial ? "PARTIAL: " : "", cell.title.c_str());
    for (const std::string& sentence : VerdictSentences(cell))
      std::printf("  %s\n", sentence.c_str());
  }
  return 0;
}

}  // namespace

Command ReportCommand() {
  return {
      .name = "report",
      .usage =
          "baton-goodput report FILE... --out=FILE.html [--svg=FOLDER]: makes a page from runs and "
          "searches,\nand a JSON file of its figures.",
      .flags = {"out", "attainment", "title", "svg"},
      .min_words = 1,
      .max_words = 1000,
      .run = MakeReport,
      .groups = {{"What is written", "out svg title"}, {"Goal", "attainment"}}};
}

}  // namespace baton
