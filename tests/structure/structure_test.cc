#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
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

namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::Not;

// The rooms and their levels. A file includes its own room, and rooms of lower levels.
const std::map<std::string, int>& Rooms() {
  static const auto* rooms = new std::map<std::string, int>{
      {"baton/v1", 0},        {"grpc/health/v1", 0}, {"common/base", 0},    {"common/tokenizer", 1},
      {"common/sampling", 1}, {"common/rpc", 1},     {"common/metrics", 1}, {"common/up", 1},
      {"common/fetch", 1},    {"kernels", 2},  // which draw as common/sampling does
      {"common/kv_cache", 3}, {"common/model", 3},   {"kv_transfer", 4},    {"common/engine", 4},
      {"common/worker", 5},  // what both worker programs are made of
      {"router", 6},          {"prefill_worker", 6}, {"decode_worker", 6},  {"tests", 7},
  };
  return *rooms;
}

// The room that a path of the repository lies in, or nothing.
std::string RoomOf(const std::string& path) {
  for (const auto& [room, level] : Rooms()) {
    if (absl::StartsWith(path, room + "/")) return room;
  }
  return "";
}

std::string Contents(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Source {
  std::string path;  // from the root of the repository
  std::string room;
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
        found->push_back({path, RoomOf(path), Contents(entry.path())});
      }
    }
    return found;
  }();
  return *sources;
}

// What the file includes, as it is written between the quotes or brackets.
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

// Why a file of `room` may not include `include`; nothing when it may.
std::string Complaint(const std::string& room, const std::string& include) {
  const std::string other = RoomOf(include);
  if (other.empty() || other == room) return "";
  if (Rooms().at(other) < Rooms().at(room)) return "";
  return absl::StrCat(room, " (level ", Rooms().at(room), ") includes ", include, " (level ",
                      Rooms().at(other), ")");
}

TEST(StructureTest, EveryRoomIsOnTheLevelsList) {
  ASSERT_FALSE(Sources().empty());
  for (const Source& source : Sources()) EXPECT_THAT(source.room, Not(IsEmpty())) << source.path;
}

TEST(StructureTest, IncludesPointOnlyDown) {
  EXPECT_THAT(Complaint("prefill_worker", "decode_worker/a.h"), Not(IsEmpty()));
  EXPECT_THAT(Complaint("common/sampling", "kernels/a.h"), Not(IsEmpty()));
  EXPECT_THAT(Complaint("common/base", "baton/v1/a.pb.h"), Not(IsEmpty()));
  EXPECT_THAT(Complaint("router", "router/client/a.h"), IsEmpty());
  size_t includes = 0;
  for (const Source& source : Sources()) {
    if (source.room.empty()) continue;
    for (const std::string& include : IncludesOf(source)) {
      EXPECT_THAT(Complaint(source.room, include), IsEmpty()) << source.path;
      ++includes;
    }
  }
  EXPECT_GT(includes, 100u);
}

// Two classes of one name in namespace baton are two definitions of it where both are linked into
// one program. Unnamed namespaces and the device code's own namespace are apart.
TEST(StructureTest, NoTwoClassesShareAName) {
  static const std::regex kNamespace(R"(^(inline )?namespace ?([\w:]*) ?\{)");
  static const std::regex kClass(
      R"(^(class|struct|enum class|union) (alignas\(\w+\) )?([A-Z]\w*)\b(?!::)[^;]*$)");
  std::map<std::string, std::string> defined;  // the file, by the class's full name
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
    if (source.room == "router" || source.room == "tests" || source.room == "common/tokenizer")
      continue;
    for (const std::string& include : IncludesOf(source)) {
      EXPECT_THAT(include, Not(testing::StartsWith("common/tokenizer/"))) << source.path;
    }
  }
}

TEST(StructureTest, TransfersAndKernelsKnowNoGrpc) {
  for (const Source& source : Sources()) {
    if (source.room != "kv_transfer" && source.room != "kernels" && source.room != "common/model" &&
        source.room != "common/kv_cache" && source.room != "common/engine") {
      continue;
    }
    for (const std::string& include : IncludesOf(source)) {
      EXPECT_THAT(include, Not(testing::StartsWith("grpc"))) << source.path;
    }
  }
}

// One that was forgotten would be the base's: a default, and not what the backend does.
TEST(StructureTest, AForwardingBackendForwardsEverything) {
  const auto text = [](const char* path) {
    return Contents(fs::path(BATON_SOURCE_DIR) / "kernels" / path);
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

TEST(StructureTest, EveryRoomHasAReadme) {
  for (const auto& [room, level] : Rooms()) {
    const fs::path folder = fs::path(BATON_SOURCE_DIR) / room;
    if (!fs::exists(folder)) continue;
    EXPECT_TRUE(fs::exists(folder / "README.md")) << room;
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

// What a library of ours is called in CMake: baton_NAME, or baton::NAME.
bool IsKernelLibrary(const std::string& library) {
  const std::string name = absl::StrReplaceAll(library, {{"::", "_"}});
  // `kernels` alone is the seam: headers.
  return absl::StartsWith(name, "baton_kernels_") || name == "baton_model" ||
         name == "baton_engine";
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
  // The same question finds them where they are.
  const auto& worker = links.at("baton-decode");
  EXPECT_TRUE(std::any_of(worker.begin(), worker.end(), IsKernelLibrary))
      << absl::StrJoin(worker, " ");
}

// It starts programs, and asks the router through baton-client.
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

// It judges them from outside.
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

// Emulated devices, fakes and faulty transports are for the workers of tests/programs alone.
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
  // The workers of tests/programs say of themselves what the shipped ones do.
  const bool for_tests = absl::EndsWith(binary, "-test");
  const Ended help = RunShell(absl::StrCat(BATON_BINARY_DIR "/", for_tests ? "../tests/" : "",
                                           binary, " --help </dev/null"));
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_TRUE(absl::StartsWith(help.output, absl::StripSuffix(binary, "-test")))
      << "the first line says what it is";
  // The shipped programs know nothing of the equipment of tests.
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
      // Its name on one line, and something said of it on the next.
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
