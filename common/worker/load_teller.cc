#include "common/worker/load_teller.h"

#include <unistd.h>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "common/base/log.h"
#include "common/base/program.h"
#include "common/base/steady_time.h"

ABSL_DECLARE_FLAG(baton::LogFormat, log_format);  // defined in common/base/program.cc

namespace baton {
namespace {

LoadProgress::Options Options() {
  LoadProgress::Options options;
  options.terminal =
      isatty(STDERR_FILENO) != 0 && absl::GetFlag(FLAGS_log_format) == LogFormat::kText;
  options.log = [](const LoadProgress::Now& now) {
    Log(Severity::kInfo, "loading",
        {{"what", now.what},
         {"done_bytes", now.done_bytes},
         {"total_bytes", now.total_bytes},
         {"progress", LoadProgress::Text(now)}});
  };
  options.terminal_write = [](absl::string_view text) {
    (void)!write(STDERR_FILENO, text.data(), text.size());
  };
  return options;
}

}  // namespace

LoadTeller::LoadTeller()
    : progress_(Options(), SteadyNow()),
      loop_({.name = "progress", .idle = LoadProgress::kBetweenBars}, [this](absl::Time now) {
        progress_.Tick(now);
        return false;
      }) {}

void LoadTeller::Stop() {
  loop_.Stop();
  progress_.End();
}

}  // namespace baton
