#include "tests/goodput/load/progress_line.h"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

// Show() is called once a second. If the output is no terminal, it prints at every fifth call.
constexpr int kPlainEvery = 5;

}  // namespace

ProgressLine::ProgressLine(FILE* out, std::string what)
    : out_(out), what_(std::move(what)), terminal_(isatty(fileno(out)) == 1) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && width_ > 0) std::fputc('\n', out_);
}

std::string ProgressLine::Text(const RunProgress& progress) {
  std::string text = absl::StrFormat("%.0f of %.0f s, %.1f requests/s, %u open", progress.elapsed_s,
                                     progress.total_s, progress.recent_rate, progress.in_flight);
  if (progress.measured > 0) {
    absl::StrAppendFormat(&text, ", attainment %.1f %% of %u",
                          100.0 * progress.good / progress.measured, progress.measured);
  } else {
    absl::StrAppend(&text, ", warming up");
  }
  const double left_s = progress.total_s - progress.elapsed_s;
  absl::StrAppend(&text, left_s > 0 ? absl::StrFormat(", %.0f s left", left_s)
                                    : std::string(", waiting for the last measured answers"));
  return text;
}

void ProgressLine::Show(const RunProgress& progress) {
  if (!terminal_ && ++lines_ % kPlainEvery != 0) return;
  const std::string line = absl::StrCat(what_, what_.empty() ? "" : ": ", Text(progress));
  if (terminal_) {
    const std::string blanks(width_ > line.size() ? width_ - line.size() : 0, ' ');
    std::fprintf(out_, "\r%s%s", line.c_str(), blanks.c_str());
    width_ = line.size();
  } else {
    std::fprintf(out_, "%s\n", line.c_str());
  }
  std::fflush(out_);
}

}  // namespace baton
