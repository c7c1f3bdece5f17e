#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/shell/run_shell.h"
#include "tests/structure/file_contents.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::Not;

// All folders that hold sources, with their levels. A file may include files of its own folder and
// of folders with lower levels. So no folder depends on a folder of a higher level, or on its own
// parent folder.
const std::map<std::string, int>& Levels() {
  static const auto* levels = new std::map<std::string, int>{
      {"baton/v1", 0},
      {"grpc/health/v1", 0},
      {"common/base", 0},
      {"common/fetch", 1},
      {"common/metrics", 1},
      {"common/rpc", 1},
      {"common/sampling", 1},
      {"common/tokenizer", 1},
      {"common/up", 1},
      {"common/chat", 3},
      {"kernels/formats", 1},
      {"kernels/mutations", 2},
      // A header of this module names a class of common/sampling, whose level is 1.
      {"kernels/backend", 2},
      {"kernels/conformance", 3},
      {"kernels/fake", 4},
      {"kernels/cpu", 4},
      {"kernels/device/runtime", 3},
      {"kernels/device/simt", 4},
      {"kernels/device/code", 5},
      {"kernels/device/simt/testing", 6},
      {"kernels/device/conformance", 6},
      {"kernels/device/emulated", 7},
      {"kernels/device/cuda", 7},
      {"kernels/cuda/kernels", 8},
      {"kernels/cuda/testing", 9},
      {"kernels/cuda", 10},
      {"kv_transfer/transport", 4},
      {"kv_transfer/testing", 5},
      {"kv_transfer/device", 8},
      {"kv_transfer", 9},
      {"common/kv_cache", 11},
      {"common/model/source", 2},
      {"common/model", 11},
      {"common/engine", 12},
      {"common/worker", 13},  // Parts that both worker programs share.
      {"router/index", 13},
      {"router/core", 14},
      {"router/door", 15},
      {"router/testing", 15},
      {"router/client", 15},
      {"router/grpc", 16},
      {"router/http", 16},
      {"router", 17},
      {"prefill_worker", 16},
      {"decode_worker", 16},
      {"tests/shell", 17},
      {"tests/bench", 19},
      {"tests/chat", 18},
      {"tests/cluster", 18},
      {"tests/door", 18},
      {"tests/fuzz", 18},
      {"tests/helm", 18},
      {"tests/models", 18},
      {"tests/numerics", 18},
      {"tests/prefix", 18},
      {"tests/programs", 18},
      {"tests/sim", 18},
      {"tests/structure", 18},
      {"tests/threads", 18},
      {"tests/e2e", 19},
      {"tests/metrics", 19},
      {"tests/shapes", 20},
      {"tests/routing", 20},
      {"tests/faults", 20},
      {"tests/gpu", 20},
      {"tests/messages", 20},
      {"tests/openai_page", 20},
      {"tests/goodput/results", 18},
      {"tests/goodput/plot", 18},
      {"tests/goodput/traces", 19},
      {"tests/goodput/http", 19},
      {"tests/goodput/search", 19},
      {"tests/goodput/load", 20},
      {"tests/goodput/report", 20},
      {"tests/goodput/bench", 22},
      {"tests/goodput/testing", 21},
      {"tests/goodput", 22},
  };
  return *levels;
}

// The only dependencies of folders in `common` on other top-level folders: the code that the
// workers share needs kernels, and moves KV.
const std::set<std::pair<std::string, std::string>>& EdgesOutOfCommon() {
  static const auto* edges = new std::set<std::pair<std::string, std::string>>{
      {"common/model", "kernels"},      {"common/model/source", "kernels"},
      {"common/engine", "kernels"},     {"common/worker", "kernels"},
      {"common/worker", "kv_transfer"},
  };
  return *edges;
}

// Returns the folder of `path`, as named in Levels(). Returns an empty text if `path` is in no
// folder of the repository.
std::string FolderOf(const std::string& path) {
  const std::string folder = fs::path(path).parent_path();
  return Levels().count(folder) > 0 ? folder : "";
}

std::string TopOf(const std::string& path) { return path.substr(0, path.find('/')); }

// Returns the module of `path`: a folder of `common`, or a top-level folder. Some include rules
// apply to a whole module.
std::string ModuleOf(const std::string& path) {
  const std::string top = TopOf(path);
  return top == "common" ? path.substr(0, path.find('/', top.size() + 1)) : top;
}

struct Source {
  std::string path;  // Path of the file, from the repository's root.
  std::string module;
  std::string text;
};

const std::vector<Source>& Sources() {
  static const auto* sources = [] {
    auto* found = new std::vector<Source>;
    for (const char* top : {"common", "kernels", "kv_transfer", "prefill_worker", "decode_worker",
                            "router", "tests"}) {
      for (const auto& entry : fs::recursive_directory_iterator(fs::path(BATON_SOURCE_DIR) / top)) {
        const std::string extension = entry.path().extension();
        if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh")
          continue;
        const std::string path = fs::relative(entry.path(), BATON_SOURCE_DIR);
        found->push_back({path, ModuleOf(path), Contents(entry.path())});
      }
    }
    return found;
  }();
  return *sources;
}

// Returns the includes of a file, as written between the quotes or brackets.
std::vector<std::string> IncludesOf(const Source& source) {
  static const std::regex kInclude(R"(^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">])");
  std::vector<std::string> includes;
  for (const absl::string_view line : absl::StrSplit(source.text, '\n')) {
    if (!absl::StrContains(line, "include")) continue;
    std::cmatch match;
    if (std::regex_search(line.data(), line.data() + line.size(), match, kInclude))
      includes.push_back(match[1]);
  }
  return includes;
}

// Returns true for a folder that all tests in the same top-level folder may include. Such folders
// hold fakes for code that a test does not cover, and test suites that several implementations must
// pass.
bool IsForTests(const std::string& folder) {
  const std::string name = fs::path(folder).filename();
  return name == "testing" || name == "conformance";
}

// Returns the reason if the file may not include `include`, or an empty text if it may.
std::string Complaint(const std::string& file, const std::string& include) {
  const std::string from = FolderOf(file), to = FolderOf(include);
  if (to.empty() || to == from) return "";
  const bool is_test = absl::EndsWith(file, "_test.cc") || absl::EndsWith(file, "_bench.cc");
  if (TopOf(from) == "common" && TopOf(to) != "common" && TopOf(to) != "baton" &&
      TopOf(to) != "grpc" && EdgesOutOfCommon().count({from, TopOf(to)}) == 0) {
    return absl::StrCat(file, " includes ", include, ", and ", from, " may not depend on ",
                        TopOf(to));
  }
  if (Levels().at(to) < Levels().at(from)) return "";
  if (is_test && IsForTests(to) && TopOf(to) == TopOf(from)) return "";
  return absl::StrCat(file, " (level ", Levels().at(from), ") includes ", include, " (level ",
                      Levels().at(to), ")");
}

TEST(StructureTest, EveryFolderHasALevel) {
  ASSERT_FALSE(Sources().empty());
  std::set<std::string> folders;
  for (const Source& source : Sources()) {
    EXPECT_THAT(FolderOf(source.path), Not(IsEmpty())) << source.path;
    folders.insert(FolderOf(source.path));
  }
  for (const auto& [folder, level] : Levels()) {
    const bool generated = TopOf(folder) == "baton" || TopOf(folder) == "grpc";
    EXPECT_TRUE(generated || folders.count(folder) > 0) << folder << " holds no sources";
  }
}

TEST(StructureTest, IncludesPointOnlyDown) {
  EXPECT_THAT(Complaint("prefill_worker/a.cc", "decode_worker/a.h"), Not(IsEmpty()));
  EXPECT_THAT(Complaint("common/sampling/a.cc", "kernels/cpu/a.h"), Not(IsEmpty()));
  EXPECT_THAT(Complaint("common/kv_cache/a.cc", "kernels/backend/a.h"), Not(IsEmpty()));
  EXPECT_THAT(Complaint("common/base/a.cc", "baton/v1/a.pb.h"), Not(IsEmpty()));
  EXPECT_THAT(Complaint("kernels/cuda/kernels/a.cu", "kernels/cuda/a.h"), Not(IsEmpty()));
  EXPECT_THAT(Complaint("router/core/a.cc", "router/testing/a.h"), Not(IsEmpty()));
  EXPECT_THAT(Complaint("router/core/a_test.cc", "router/testing/a.h"), IsEmpty());
  EXPECT_THAT(Complaint("router/a.cc", "router/core/a.h"), IsEmpty());
  size_t includes = 0;
  for (const Source& source : Sources()) {
    if (FolderOf(source.path).empty()) continue;
    for (const std::string& include : IncludesOf(source)) {
      EXPECT_THAT(Complaint(source.path, include), IsEmpty());
      ++includes;
    }
  }
  EXPECT_GT(includes, 100u);
}

// If two classes have the same name in namespace baton, a program that links both has two
// definitions of one class. Unnamed namespaces and the namespace of device code are not checked.
TEST(StructureTest, NoTwoClassesShareAName) {
  static const std::regex kNamespace(R"(^(inline )?namespace ?([\w:]*) ?\{)");
  static const std::regex kClass(
      R"(^(class|struct|enum class|union) (alignas\(\w+\) )?([A-Z]\w*)\b(?!::)[^;]*$)");
  // File that defines a class, by the class's full name.
  std::map<std::string, std::string> defined;
  for (const Source& source : Sources()) {
    std::vector<std::string> namespaces;
    for (const absl::string_view line : absl::StrSplit(source.text, '\n')) {
      std::cmatch match;
      const char* const end = line.data() + line.size();
      if (absl::StartsWith(line, "}  // namespace")) {
        if (!namespaces.empty()) namespaces.pop_back();
      } else if (absl::StrContains(line, "namespace") &&
                 std::regex_search(line.data(), end, match, kNamespace)) {
        namespaces.push_back(match[2]);
      } else if (!line.empty() && absl::StrContains("csue", line[0]) &&
                 std::regex_search(line.data(), end, match, kClass)) {
        if (absl::c_linear_search(namespaces, "")) continue;
        const std::string name =
            absl::StrCat(absl::StrJoin(namespaces, "::"), "::", match[3].str());
        if (absl::StrContains(name, "BATON_DEVICE_NAMESPACE")) continue;
        const auto [it, is_new] = defined.emplace(name, source.path);
        EXPECT_TRUE(is_new) << name << " of " << it->second << " and " << source.path;
      }
    }
  }
  EXPECT_GT(defined.size(), 300u);
}

TEST(StructureTest, TextExistsOnlyInTheRouter) {
  for (const Source& source : Sources()) {
    if (source.module == "router" || source.module == "tests" ||
        source.module == "common/tokenizer" || source.module == "common/chat")
      continue;
    for (const std::string& include : IncludesOf(source)) {
      EXPECT_THAT(include, Not(testing::StartsWith("common/tokenizer/"))) << source.path;
      EXPECT_THAT(include, Not(testing::StartsWith("common/chat/"))) << source.path;
    }
  }
}

TEST(StructureTest, TransfersAndKernelsKnowNoGrpc) {
  for (const Source& source : Sources()) {
    if (source.module != "kv_transfer" && source.module != "kernels" &&
        source.module != "common/model" && source.module != "common/kv_cache" &&
        source.module != "common/engine") {
      continue;
    }
    for (const std::string& include : IncludesOf(source)) {
      EXPECT_THAT(include, Not(testing::StartsWith("grpc"))) << source.path;
    }
  }
}

// A backend that wraps another backend must forward every function. A function that it does not
// forward would run the base class's default instead of the wrapped backend's function.
TEST(StructureTest, AForwardingBackendForwardsEverything) {
  const auto text = [](const char* path) {
    return Contents(fs::path(BATON_SOURCE_DIR) / "kernels/backend" / path);
  };
  const std::string forwarding = text("forwarding_backend.h");
  std::string backend = text("backend.h");
  backend.erase(0, backend.find("class Backend {"));
  static const std::regex kVirtual(R"(virtual [^~;{(]*\b(\w+)\()");
  int operations = 0;
  for (std::sregex_iterator it(backend.begin(), backend.end(), kVirtual), end; it != end; ++it) {
    const std::string name = (*it)[1];
    EXPECT_TRUE(
        std::regex_search(forwarding, std::regex("\\b" + name + R"(\([^;{]*\) (const )?override )" +
                                                 R"(\{\s+return backend_->)" + name + R"(\()")))
        << name;
    ++operations;
  }
  EXPECT_GE(operations, 19);
}

// Every folder has its own README, or is mentioned in the README of a folder above it.
TEST(StructureTest, AReadmeTellsOfEveryFolder) {
  for (const auto& [folder, level] : Levels()) {
    const fs::path root(BATON_SOURCE_DIR);
    if (!fs::exists(root / folder)) continue;
    bool told = fs::exists(root / folder / "README.md");
    for (fs::path above = fs::path(folder).parent_path(); !told && !above.empty();
         above = above.parent_path()) {
      const std::string name = fs::relative(folder, above);
      told = absl::StrContains(Contents(root / above / "README.md"), absl::StrCat("`", name, "/`"));
    }
    EXPECT_TRUE(told) << folder;
  }
}

std::map<std::string, std::vector<std::string>> LinksOfBinaries() {
  std::map<std::string, std::vector<std::string>> links;
  for (const absl::string_view line :
       absl::StrSplit(Contents(BATON_LINKS_FILE), '\n', absl::SkipEmpty())) {
    std::vector<std::string> words = absl::StrSplit(line, ' ');
    links[words[0]].assign(words.begin() + 1, words.end());
  }
  return links;
}

// Returns true for a library of kernels, and for a library that needs kernels. In CMake our
// libraries are called baton_NAME or baton::NAME.
bool IsKernelLibrary(const std::string& library) {
  const std::string name = absl::StrReplaceAll(library, {{"::", "_"}});
  // The library `baton_kernels` does not count: it holds only the headers of the interface. Neither
  // does `baton_kernels_formats`, which says how weights are stored.
  return (absl::StartsWith(name, "baton_kernels_") && name != "baton_kernels_formats") ||
         name == "baton_model" || name == "baton_engine";
}

TEST(StructureTest, TheRouterLinksNoKernels) {
  const auto links = LinksOfBinaries();
  for (const char* binary : {"baton-router", "baton-client"}) {
    ASSERT_TRUE(links.count(binary));
    EXPECT_FALSE(links.at(binary).empty());
    for (const std::string& library : links.at(binary)) {
      EXPECT_FALSE(IsKernelLibrary(library)) << binary << " links " << library;
    }
  }
  // Tests the check itself: it must find kernels in a worker, which links them.
  const auto& worker = links.at("baton-decode");
  EXPECT_TRUE(std::any_of(worker.begin(), worker.end(), IsKernelLibrary))
      << absl::StrJoin(worker, " ");
}

// baton-up must not link gRPC or kernels. It starts programs, and reaches the router only through
// baton-client.
TEST(StructureTest, WhatStartsTheProgramsLinksNeitherGrpcNorKernels) {
  const auto links = LinksOfBinaries();
  ASSERT_TRUE(links.count("baton-up"));
  std::vector<std::string> ours;
  for (const std::string& library : links.at("baton-up")) {
    EXPECT_FALSE(absl::StrContains(library, "gRPC")) << library;
    const std::string name = absl::StrReplaceAll(library, {{"::", "_"}});
    if (absl::StartsWith(name, "baton_")) ours.push_back(name);
  }
  EXPECT_THAT(ours, testing::UnorderedElementsAre("baton_base", "baton_up"));
}

// The load tester must not link the router or the workers, because it measures them from outside.
TEST(StructureTest, TheLoadTesterLinksNeitherRouterNorWorkers) {
  const auto links = LinksOfBinaries();
  ASSERT_TRUE(links.count("baton-goodput"));
  std::vector<std::string> ours;
  for (const std::string& library : links.at("baton-goodput")) {
    const std::string name = absl::StrReplaceAll(library, {{"::", "_"}});
    if (absl::StartsWith(name, "baton_")) ours.push_back(name);
  }
  EXPECT_THAT(ours, testing::Contains("baton_proto"));
  for (const std::string& name : ours) {
    EXPECT_TRUE(name == "baton_proto" || name == "baton_base" ||
                absl::StartsWith(name, "baton_goodput"))
        << name;
  }
}

// Only the worker programs of tests/programs link emulated devices, fakes and faulty transports.
TEST(StructureTest, ShippedProgramsLinkNoEquipmentOfTests) {
  const auto links = LinksOfBinaries();
  ASSERT_TRUE(links.count("test-libraries"));
  const std::vector<std::string>& equipment = links.at("test-libraries");
  EXPECT_THAT(equipment, testing::IsSupersetOf({"baton_emulated_runtime", "baton_kernels_emulated",
                                                "baton_kernels_fake", "baton_kv_transfer_testing",
                                                "baton_open_emulated_device", "baton_simt"}));
  const auto linked_by = [&](const std::string& binary) {
    std::vector<std::string> found;
    for (const std::string& library : links.at(binary)) {
      const std::string name = absl::StrReplaceAll(library, {{"::", "_"}});
      if (std::find(equipment.begin(), equipment.end(), name) != equipment.end()) {
        found.push_back(name);
      }
    }
    return found;
  };
  for (const char* binary : {"baton-router", "baton-prefill", "baton-decode", "baton-client",
                             "baton-goodput", "baton-up", "baton-fetch"}) {
    ASSERT_TRUE(links.count(binary)) << binary;
    EXPECT_THAT(linked_by(binary), IsEmpty()) << binary;
  }
  for (const char* binary : {"baton-prefill-test", "baton-decode-test"}) {
    ASSERT_TRUE(links.count(binary)) << binary;
    EXPECT_THAT(linked_by(binary),
                testing::IsSupersetOf({"baton_emulated_runtime", "baton_kernels_fake"}))
        << binary;
  }
}

class HelpTest : public testing::TestWithParam<const char*> {};

TEST_P(HelpTest, DocumentsEveryFlag) {
  const std::string binary = GetParam();
  // The --help of a worker in tests/programs begins with the name of the shipped worker.
  const bool for_tests = absl::EndsWith(binary, "-test");
  const Ended help = RunShell(absl::StrCat(BATON_BINARY_DIR "/", for_tests ? "../tests/" : "",
                                           binary, " --help </dev/null"));
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_TRUE(absl::StartsWith(help.output, absl::StripSuffix(binary, "-test")))
      << "the first line says what it is";
  // The shipped programs must not mention test equipment.
  for (const char* equipment : {"emulated", "fake", "for tests", "For tests", "faulty"}) {
    EXPECT_TRUE(for_tests || !absl::StrContains(help.output, equipment)) << equipment;
  }
  EXPECT_EQ(for_tests, absl::StrContains(help.output, "--emulated-device-bytes"));
  static const std::map<std::string, std::vector<std::string>> kFolders = {
      {"baton-router", {"router", "common/base", "common/metrics"}},
      {"baton-prefill", {"prefill_worker", "common/worker", "common/base", "common/metrics"}},
      {"baton-decode", {"decode_worker", "common/worker", "common/base", "common/metrics"}},
      {"baton-prefill-test",
       {"prefill_worker", "common/worker", "common/base", "common/metrics", "tests/programs"}},
      {"baton-decode-test",
       {"decode_worker", "common/worker", "common/base", "common/metrics", "tests/programs"}},
      {"baton-client", {"router/client", "common/base"}},
      {"baton-goodput", {"tests/goodput", "common/base"}},
      {"baton-fetch", {"common/fetch"}},
  };
  static const std::regex kFlag(R"(ABSL_FLAG\([^,;]+,\s*(\w+),)");
  int flags = 0;
  for (const Source& source : Sources()) {
    const std::string folder = fs::path(source.path).parent_path();
    const auto& folders = kFolders.at(binary);
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) continue;
    if (absl::EndsWith(source.path, "_test.cc")) continue;
    for (std::sregex_iterator flag(source.text.begin(), source.text.end(), kFlag), end; flag != end;
         ++flag) {
      const std::string name = absl::StrReplaceAll((*flag)[1].str(), {{"_", "-"}});
      // In the help text, the name of a flag is on one line, and its description on the next line.
      EXPECT_TRUE(
          std::regex_search(help.output, std::regex("\n  --(\\[no-\\])?" + name + "\n      \\S")))
          << name;
      ++flags;
    }
  }
  EXPECT_GT(flags, 3);
  EXPECT_THAT(help.output, Not(testing::HasSubstr("\nOther flags:")))
      << "a flag stands in no FlagGroup of the program";
}

INSTANTIATE_TEST_SUITE_P(, HelpTest,
                         testing::Values("baton-router", "baton-prefill", "baton-decode",
                                         "baton-prefill-test", "baton-decode-test", "baton-client",
                                         "baton-goodput", "baton-fetch"),
                         [](const auto& info) {
                           return absl::StrReplaceAll(info.param, {{"-", "_"}});
                         });

}  // namespace
}  // namespace baton
