// Checks docs/troubleshooting.md against the sources: some program can write every message on the
// page, and every message of a program is on the page.

#include "tests/messages/troubleshooting.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/messages/source_messages.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr char kChartSection[] = "Helm refuses the values";
constexpr char kPodSection[] = "Pods";

std::string Contents(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the files that `name` stands for. `name` is a path in the repository: of a file, or of a
// folder, which stands for all files below it. "folder/*END" stands for the files below the folder
// whose names end in END.
std::vector<fs::path> FilesOf(const std::string& name) {
  const fs::path top = fs::path(BATON_SOURCE_DIR) / name.substr(0, name.find('*'));
  const std::string end = name.find('*') == name.npos ? "" : name.substr(name.find('*') + 1);
  if (fs::is_regular_file(top)) return {top};
  std::vector<fs::path> files;
  if (!fs::is_directory(top)) ADD_FAILURE() << "there is no " << name;
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(top, none)) {
    if (entry.is_regular_file() && absl::EndsWith(entry.path().string(), end)) {
      files.push_back(entry.path());
    }
  }
  EXPECT_FALSE(files.empty()) << name;
  absl::c_sort(files);
  return files;
}

bool IsProgramSource(const fs::path& path) {
  const std::string name = path.filename();
  return (path.extension() == ".cc" || path.extension() == ".h") &&
         !absl::StrContains(name, "_test") && !absl::StrContains(name, "for_tests");
}

// Joins adjacent string literals, and replaces escape sequences by their characters.
std::string Joined(const std::string& all) {
  std::string joined;
  joined.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == '"' && (i == 0 || all[i - 1] != '\\')) {
      const size_t next = all.find_first_not_of(" \n", i + 1);
      if (next != all.npos && next > i + 1 && all[next] == '"' && all.find('\n', i + 1) < next) {
        i = next;
        continue;
      }
    }
    joined.push_back(all[i]);
  }
  return absl::StrReplaceAll(joined, {{"\\\"", "\""}, {"\\\n", ""}});
}

// Returns the text of all shipped source files in one string.
const std::string& Sources() {
  static const auto* text = [] {
    std::string programs, others;
    for (const char* top : {"common", "kernels", "kv_transfer", "prefill_worker", "decode_worker",
                            "router", "tests/goodput"}) {
      for (const fs::path& path : FilesOf(top)) {
        if (IsProgramSource(path)) programs += Contents(path);
      }
    }
    for (const char* top : {"helm/templates", "baton", "tests/commands"}) {
      for (const fs::path& path : FilesOf(top)) others += Contents(path);
    }
    return new std::string(
        absl::StrCat(Joined(programs), absl::StrReplaceAll(Joined(others), {{"%%", "%"}})));
  }();
  return *text;
}

TEST(TroubleshootingTest, EveryMessageStandsInTheSources) {
  EXPECT_GE(TroubleshootingMessages().size(), 60u);
  for (const KnownMessage& message : TroubleshootingMessages()) {
    size_t fixed = 0;
    for (const std::string& whole : FixedParts(message.text)) {
      absl::string_view part = whole;
      fixed += part.size();
      // Removes punctuation at both ends of the part, because in the source it may belong to
      // another string literal.
      const auto is_mark = [](char c) {
        return absl::string_view(":;,'\"- ").find(c) != absl::string_view::npos;
      };
      while (!part.empty() && is_mark(part.front())) part.remove_prefix(1);
      while (!part.empty() && is_mark(part.back())) part.remove_suffix(1);
      EXPECT_TRUE(absl::StrContains(Sources(), part)) << "'" << part << "' of: " << message.text;
    }
    EXPECT_GE(fixed, 5u) << "fits everything: " << message.text;
  }
}

TEST(TroubleshootingTest, ALineThatNoProgramWritesIsNotFound) {
  EXPECT_FALSE(IsInTroubleshooting("baton-router: something else went wrong"));
  EXPECT_TRUE(IsInTroubleshooting("baton-router: flag --listen needs a value"));
  EXPECT_FALSE(IsInTroubleshooting("baton-router: flag --listen needs a value", kChartSection));
}

// Files whose messages need a row in docs/troubleshooting.md. The messages in `no_end` need none,
// because they do not end a program.
struct Covered {
  std::vector<SourceMessage> (*messages_of)(absl::string_view source);
  std::vector<std::string> files;  // Files or folders, as FilesOf accepts them.
  std::string section;  // Section that must have the rows; if empty, a row may be in any section.
  std::vector<std::string> no_end;
};

// Returns true for a text such as "--listen: …", which is the beginning of a message that another
// function makes.
bool OnlyNamesFlag(absl::string_view text) {
  return absl::StartsWith(text, "--") && absl::EndsWith(text, ": …") &&
         absl::c_count(text, ' ') == 1;
}

// Expects a row in the tables for every message. Returns the number of messages.
size_t ExpectRows(const Covered& covered) {
  size_t found = 0;
  for (const std::string& name : covered.files) {
    for (const fs::path& path : FilesOf(name)) {
      if (covered.messages_of == MessagesOfProgram && !IsProgramSource(path)) continue;
      for (const SourceMessage& message : covered.messages_of(Contents(path))) {
        if (absl::c_linear_search(covered.no_end, message.text) || OnlyNamesFlag(message.text)) {
          continue;
        }
        ++found;
        EXPECT_TRUE(IsInTroubleshooting(message.text, covered.section))
            << fs::relative(path, BATON_SOURCE_DIR).string() << ":" << message.line
            << ": docs/troubleshooting.md has no row for: " << message.text;
      }
    }
  }
  return found;
}

TEST(TroubleshootingTest, EveryRefusalOfAProgramHasARow) {
  const size_t found = ExpectRows(
      {.messages_of = MessagesOfProgram,
       .files = {"common/up",
                 "common/fetch",
                 "common/base/api_key.cc",
                 "common/base/byte_size.cc",
                 "common/base/listen_check.cc",
                 "common/base/page_in.cc",
                 "common/base/program.cc",
                 "common/metrics/metrics_flag.cc",
                 "common/metrics/metrics_server.cc",
                 "common/model/source/checkpoint.cc",
                 "common/model/source/folder_advice.cc",
                 "common/model/source/gguf_file.cc",
                 "common/model/source/mapped_file.cc",
                 "common/model/source/json_reader.cc",
                 "common/model/model.cc",
                 "common/model/model_folder.cc",
                 "common/model/source/safetensors_file.cc",
                 "common/rpc/attach_client.cc",
                 "common/rpc/dial.cc",
                 "common/rpc/rpc_server.cc",
                 "common/rpc/serving_mode.cc",
                 "common/tokenizer/json_node.cc",
                 "common/worker/host_memory_plan.cc",
                 "common/worker/device_memory_plan.cc",
                 "common/worker/model_host.cc",
                 "common/worker/worker_host.cc",
                 "decode_worker/*main.cc",
                 "kernels/cpu/dispatch.cc",
                 "kernels/cuda/open_cuda_device.cc",
                 "kv_transfer/device/device_path.cc",
                 "kv_transfer/transport/memory_budget.cc",
                 "kv_transfer/transport/ucx_devices.cc",
                 "kv_transfer/transport/ucx_settings.cc",
                 "prefill_worker/*main.cc",
                 "router/main.cc",
                 "router/core/routing_policy.cc",
                 "router/core/served_identity.cc",
                 "router/client/main.cc",
                 "router/client/generate_request.cc"},
       .no_end = {// Messages about the folder's lock, and texts that only begin a message.
                  "another process holds the lock", "… (… help)", "…: …: …", "--mode is '…'; …",
                  "--policy is '…'; …",
                  // Texts that describe the expected value within a longer message.
                  "a number from … to …", "true or false", "a string",
                  "…, or a list of such integers", "at most … lists of 1 to … of …", "an object",
                  // Reasons why a worker can't read a peer's memory, which occur while it runs and
                  // do not end it.
                  "the owner can't export its pool", "the pool is on another node",
                  "the owner has not registered its pool",
                  "device memory can't be read by the path asked for: …"}});
  EXPECT_GE(found, 150u);
}

TEST(TroubleshootingTest, EveryRefusalOfTheLoadTesterHasARow) {
  const size_t found = ExpectRows(
      {.messages_of = MessagesOfProgram,
       .files = {"tests/goodput/main.cc", "tests/goodput/load/arrivals.cc",
                 "tests/goodput/diff_command.cc", "tests/goodput/traces/length_distribution.cc",
                 "tests/goodput/load/load.cc", "tests/goodput/load_flags.cc",
                 "tests/goodput/report_command.cc", "tests/goodput/load/router_connection.cc",
                 "tests/goodput/run_command.cc", "tests/goodput/load/schedule.cc",
                 "tests/goodput/search_command.cc", "tests/goodput/load/serving_mode.cc",
                 "tests/goodput/search/compared_modes.cc", "tests/goodput/results/slo_file.cc",
                 "tests/goodput/slo_folder.cc", "tests/goodput/slos_command.cc",
                 "tests/goodput/load/unloaded.cc", "tests/goodput/verdict_command.cc"},
       .no_end = {"…:…: …: …"}});
  EXPECT_GE(found, 60u);
}

TEST(TroubleshootingTest, EveryRefusalOfARequestHasARow) {
  const size_t found =
      ExpectRows({.messages_of = MessagesOfProgram,
                  .files = {"common/sampling/sampling_options.cc", "router/door/door.cc",
                            "router/door/request_check.cc", "router/grpc/client_messages.cc",
                            "router/core/router_core.cc", "router/core/slo_verdict.cc"}});
  EXPECT_GE(found, 30u);
}

TEST(TroubleshootingTest, EveryEndOfTheFrontDoorHasARow) {
  const size_t found = ExpectRows(
      {.messages_of = MessagesOfScript,
       .files = {"baton", "tests/commands"},
       .no_end = {
           "baton: …", "baton: … (./baton help)",
           // Messages about progress and results, which troubleshooting.md does not list.
           "installing … Debian packages:", "building in …; the first time takes some minutes",
           "all packages are there", "…: … bytes",
           "Next: copy it to another x86-64 Linux machine, and start a router and workers there:",
           "  scp -r … HOST:", "  …", "  …/bin/baton-up --model DIR",
           "  …/bin/baton-up    # serves the demo model; --model DIR serves another one",
           "  …/run    # tests and measures a GPU"}});
  EXPECT_GE(found, 25u);
}

TEST(TroubleshootingTest, EveryRefusalOfTheChartHasARow) {
  size_t found = 0;
  for (const fs::path& path : FilesOf("helm/templates")) {
    const std::string name = fs::relative(path, BATON_SOURCE_DIR);
    found +=
        ExpectRows({.messages_of = MessagesOfTemplate,
                    .files = {name},
                    .section = absl::StrContains(name, "/tests/") ? kPodSection : kChartSection});
  }
  EXPECT_GE(found, 35u);
}

}  // namespace
}  // namespace baton
