#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/program.h"
#include "tests/goodput/bench/bare_reader.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/testing/timed_router.h"

ABSL_FLAG(double, rate, 200, "requests per second");
ABSL_FLAG(uint32_t, tokens, 32, "tokens of each answer");
ABSL_FLAG(absl::Duration, ttft, absl::Milliseconds(20),
          "time after which the router sends the first token of an answer");
ABSL_FLAG(absl::Duration, ttft_per_token, absl::ZeroDuration(),
          "time added to --ttft for each token of the prompt");
ABSL_FLAG(absl::Duration, gap, absl::Milliseconds(10), "time between two tokens of an answer");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(10), "length of each load");
ABSL_FLAG(int, rounds, 5, "number of loads for each client, 1 to 1000; the clients take turns");
ABSL_FLAG(double, max_ratio, 0,
          "max median ratio of processor times, baton-goodput to the bare reader; above it the "
          "exit status is 1; 0: no limit");
ABSL_FLAG(std::string, endpoint, "", "reader: HOST:PORT of the router to read from");

namespace baton {
namespace {

constexpr char kUsage[] =
    R"(goodput_bench: measures the processor time that the load generator itself takes.

  goodput_bench            compares baton-goodput with a bare gRPC reader of the same streams, in
                           turns, against a router in another process
  goodput_bench router     runs only that router until it is killed; prints its address
  goodput_bench reader     runs only that reader, against --endpoint

The router has no model; it answers with the latencies that the flags give.)";

LoadSpec SpecFromFlags(const std::string& endpoint) {
  LoadSpec spec;
  spec.endpoint = endpoint;
  spec.workload = {.arrivals = {.rate = absl::GetFlag(FLAGS_rate)},
                   .prompt_tokens = "64",
                   .output_tokens = absl::StrCat(absl::GetFlag(FLAGS_tokens))};
  spec.warmup = absl::ZeroDuration();
  spec.duration = absl::GetFlag(FLAGS_duration);
  spec.tail = false;
  spec.channels = 8;
  return spec;
}

int ServeRouter() {
  BlockStopSignals();
  TimedRouter router;
  router.gaps = {absl::GetFlag(FLAGS_gap)};
  router.ttft = absl::GetFlag(FLAGS_ttft);
  router.ttft_per_token = absl::GetFlag(FLAGS_ttft_per_token);
  std::printf("listening on %s\n", router.address().c_str());
  std::fflush(stdout);
  WaitForStop();
  return 0;
}

// A child process whose standard output is read through a pipe.
class Child {
 public:
  explicit Child(std::vector<std::string> words) {
    int ends[2];
    BATON_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    BATON_CHECK(posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ) == 0)
        << arguments[0];
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
  }
  ~Child() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    std::fclose(out_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::string Line() {
    char buffer[4096];
    return std::fgets(buffer, sizeof buffer, out_) == nullptr ? "" : buffer;
  }
  std::string All() {
    std::string all;
    for (std::string line = Line(); !line.empty(); line = Line()) all += line;
    return all;
  }
  // Waits until the process ends. Returns the seconds of processor time that it used, and its exit
  // status in `*status`.
  double ProcessorTime(int* status) {
    rusage usage{};
    BATON_CHECK(wait4(pid_, status, 0, &usage) == pid_);
    pid_ = -1;
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

 private:
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Compare(const std::string& own_path) {
  const int rounds = absl::GetFlag(FLAGS_rounds);
  if (rounds < 1 || rounds > 1000)
    RefuseToStart(absl::StrCat("--rounds=", rounds, " is not 1 to 1000"));
  const double max_ratio = absl::GetFlag(FLAGS_max_ratio);
  if (!(max_ratio >= 0))
    RefuseToStart(absl::StrCat("--max-ratio=", max_ratio, " is not 0 or more"));
  const std::string folder = own_path.substr(0, own_path.rfind('/') + 1);
  const std::string rate = absl::StrCat("--rate=", absl::GetFlag(FLAGS_rate));
  const std::string duration =
      absl::StrCat("--duration=", absl::FormatDuration(absl::GetFlag(FLAGS_duration)));
  Child router({own_path, "router",
                absl::StrCat("--ttft=", absl::FormatDuration(absl::GetFlag(FLAGS_ttft))),
                absl::StrCat("--gap=", absl::FormatDuration(absl::GetFlag(FLAGS_gap)))});
  std::string address = router.Line();
  address = address.substr(address.rfind(' ') + 1);
  address.pop_back();
  std::printf("round   reader s    tool s   ratio   requests   of the tool late   P99 late\n");
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    double seconds[2] = {};
    std::string said[2];
    // baton-goodput and the baseline alternate in running first, so that the order favours neither
    // of them.
    for (int turn = 0; turn < 2; ++turn) {
      const bool is_tool = (round + turn) % 2 == 1;
      std::vector<std::string> words =
          is_tool ? std::vector<std::string>{folder + "baton-goodput",
                                             "run",
                                             "--endpoint=" + address,
                                             rate,
                                             duration,
                                             "--prompt-tokens=64",
                                             "--warmup=0s",
                                             "--no-tail",
                                             absl::StrCat("--output-tokens=",
                                                          absl::GetFlag(FLAGS_tokens))}
                  : std::vector<std::string>{
                        own_path, "reader", "--endpoint=" + address,
                        rate,     duration, absl::StrCat("--tokens=", absl::GetFlag(FLAGS_tokens))};
      Child client(words);
      said[is_tool] = client.All();
      int status = 0;
      seconds[is_tool] = client.ProcessorTime(&status);
      const int exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      if (exit_status != 0 && !(is_tool && exit_status == 3)) {
        std::fprintf(stderr, "%s ended with %d: %s\n", words[0].c_str(), exit_status,
                     said[is_tool].c_str());
        return 1;
      }
    }
    ratios.push_back(seconds[1] / seconds[0]);
    const size_t lag = said[1].find("the tool itself: ");
    const std::string own = lag == std::string::npos ? "" : said[1].substr(lag + 17);
    std::printf("%5d %10.3f %9.3f %7.3f   %s   %s\n", round, seconds[0], seconds[1], ratios.back(),
                said[0].substr(0, said[0].find('\n')).c_str(),
                own.substr(0, own.find('\n')).c_str());
    std::fflush(stdout);
  }
  const double median = Median(ratios);
  std::printf("median ratio %.3f\n", median);
  if (max_ratio == 0 || median <= max_ratio) return 0;
  std::fflush(stdout);
  std::fprintf(
      stderr,
      "goodput_bench: the tool takes %.3f times the processor time of the bare reader, and "
      "--max-ratio=%g is the most\n",
      median, max_ratio);
  return 1;
}

int Main(int argc, char** argv) {
  const std::vector<std::string> words = StartProgram(argc, argv, kUsage);
  // Raises the priority as baton-goodput does; child processes inherit it.
  setpriority(PRIO_PROCESS, 0, -10);
  if (words.empty()) return Compare(argv[0]);
  if (words[0] == "router") return ServeRouter();
  if (words[0] != "reader") RefuseToStart(absl::StrCat("unknown command '", words[0], "'"));
  const LoadSpec spec = SpecFromFlags(absl::GetFlag(FLAGS_endpoint));
  const absl::Status status = ReadBare(spec);
  if (!status.ok()) RefuseToStart(status.message());
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
