#include "common/up/processes.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"

namespace baton {
namespace {

// the default of --drain-grace in all programs
constexpr absl::Duration kDefaultGrace = absl::Seconds(30);
constexpr absl::Duration kAfterGrace = absl::Seconds(5);
// Shares of memory that all workers together may use, in parts of ten thousand. For the GPU's
// memory the share is the default of --gpu-memory-utilization. For the machine's memory it leaves
// some memory to other programs.
constexpr int kTenThousandthsOfGpu = 9000;
constexpr int kTenThousandthsOfMachine = 8000;
// Number of workers that fit into the machine's memory with the default of --memory-share.
constexpr int kWorkersThatFit = 2;

// Returns the number of workers whose backend is `cuda`.
int WorkersOnGpu(const UpOptions& options) {
  int workers = 0;
  if (PassedValue(options, Role::kPrefill, "backend") == "cuda") workers += options.prefill;
  if (PassedValue(options, Role::kDecode, "backend") == "cuda") workers += options.decode;
  return workers;
}

void AppendPassed(const UpOptions& options, Role role, std::vector<std::string>* arguments) {
  const auto flags = options.flags.find(role);
  if (flags == options.flags.end()) return;
  for (const std::string& flag : flags->second) {
    if (!absl::StartsWith(flag, "--routers=")) arguments->push_back(flag);
  }
}

}  // namespace

std::vector<ProcessSpec> ProcessesOf(const UpOptions& options) {
  std::vector<ProcessSpec> processes = {{"router", Role::kRouter}};
  for (int i = 1; i <= options.prefill; ++i) {
    processes.push_back({absl::StrCat("prefill-", i), Role::kPrefill});
  }
  for (int i = 1; i <= options.decode; ++i) {
    processes.push_back({absl::StrCat("decode-", i), Role::kDecode});
  }
  return processes;
}

std::string ProgramOf(Role role) { return absl::StrCat("baton-", NameOf(role)); }

std::vector<std::string> RouterArguments(const UpOptions& options, absl::string_view listen,
                                         absl::string_view http_listen) {
  std::vector<std::string> arguments = {
      absl::StrCat("--listen=", listen), absl::StrCat("--http-listen=", http_listen),
      absl::StrCat("--model=", options.model), absl::StrCat("--mode=", options.mode)};
  AppendPassed(options, Role::kRouter, &arguments);
  return arguments;
}

std::vector<std::string> WorkerArguments(const UpOptions& options, Role role,
                                         absl::string_view router) {
  const std::string more = PassedValue(options, role, "routers");
  std::vector<std::string> arguments = {
      "--listen=127.0.0.1:0",
      absl::StrCat("--routers=", ReachableAddress(router), more.empty() ? "" : ",", more),
      absl::StrCat("--model=", options.model)};
  for (std::string& flag : MemoryFlags(options, role)) arguments.push_back(std::move(flag));
  AppendPassed(options, role, &arguments);
  return arguments;
}

std::vector<std::string> MemoryFlags(const UpOptions& options, Role role) {
  std::vector<std::string> flags;
  if (PassedValue(options, role, "backend") == "cuda") {
    flags.push_back(absl::StrFormat("--gpu-memory-utilization=0.%04d",
                                    kTenThousandthsOfGpu / WorkersOnGpu(options)));
    return flags;
  }
  // A worker allocates its whole pool at start, and the demo model needs no more than this.
  if (options.demo) flags.push_back("--kv-bytes=256Mi");
  if (options.usable_memory_bytes > 0) {
    flags.push_back(absl::StrCat("--usable-memory=", options.usable_memory_bytes));
  }
  const int workers = options.prefill + options.decode - WorkersOnGpu(options);
  if (workers > kWorkersThatFit) {
    flags.push_back(absl::StrFormat("--memory-share=0.%04d", kTenThousandthsOfMachine / workers));
  }
  return flags;
}

absl::Duration StopLimit(const UpOptions& options, Role role) {
  absl::Duration grace;
  const std::string given = PassedValue(options, role, "drain-grace");
  if (given.empty() || !absl::ParseDuration(given, &grace)) grace = kDefaultGrace;
  return grace + kAfterGrace;
}

std::string ReachableAddress(absl::string_view address) {
  if (!IsAnyAddress(address)) return std::string(address);
  const bool six = absl::StrContains(HostOf(address), ':');
  return absl::StrCat(six ? "[::1]" : "127.0.0.1", ":", PortOf(address));
}

}  // namespace baton
