#include "common/metrics/process_metrics.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "common/base/program.h"

namespace baton {
namespace {

std::string Contents(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The second word of /proc/self/statm is the resident size in pages (proc(5)).
double ResidentBytes() {
  const std::vector<std::string> words = absl::StrSplit(Contents("/proc/self/statm"), ' ');
  int64_t pages = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &pages)) return 0;
  return static_cast<double>(pages * sysconf(_SC_PAGESIZE));
}

// Word 22 of /proc/self/stat is the start in ticks after boot (proc(5)). The second word, in
// parentheses, may contain anything.
double StartSeconds() {
  const std::string stat = Contents("/proc/self/stat");
  const size_t name_end = stat.rfind(')');
  int64_t ticks = 0, boot = 0;
  if (name_end != stat.npos) {
    const std::vector<std::string> words = absl::StrSplit(stat.substr(name_end + 2), ' ');
    if (words.size() < 20 || !absl::SimpleAtoi(words[19], &ticks)) return 0;
  }
  for (const absl::string_view line : absl::StrSplit(Contents("/proc/stat"), '\n')) {
    if (line.substr(0, 6) == "btime ") {
      if (!absl::SimpleAtoi(line.substr(6), &boot)) return 0;
    }
  }
  return static_cast<double>(boot) +
         static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double OpenFiles() {
  std::error_code error;
  double files = 0;
  for (std::filesystem::directory_iterator file("/proc/self/fd", error), end; !error && file != end;
       file.increment(error)) {
    ++files;
  }
  return files;
}

}  // namespace

void AddProcessMetrics(absl::string_view program, MetricRegistry* registry) {
  registry->AddGauge("baton_build_info", "Always 1. The labels name the program and its version.",
                     {{"program", std::string(program)}, {"version", std::string(kVersion)}},
                     [] { return 1.0; });
  registry->AddCounter("process_cpu_seconds_total",
                       "Processor time of this process, user and system, in seconds.", {},
                       CpuSeconds);
  registry->AddGauge("process_resident_memory_bytes", "Resident memory of this process, in bytes.",
                     {}, ResidentBytes);
  registry->AddGauge("process_open_fds", "Number of open file descriptors.", {}, OpenFiles);
  registry->AddCounter("baton_log_lines_dropped_total",
                       "Log lines that were dropped because nobody read standard error.", {},
                       [] { return static_cast<double>(LogLinesDropped()); });
  registry->AddGauge("process_start_time_seconds",
                     "Start time of this process, in seconds since 1970-01-01 UTC.", {},
                     [start = StartSeconds()] { return start; });
}

}  // namespace baton
