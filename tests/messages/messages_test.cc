// Runs every case of the tables beside this file with the shipped programs. Checks the exit status
// and the first line of the output. README.md describes the format of a case.

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/served_folder.h"
#include "tests/messages/troubleshooting.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Case {
  std::string table, group, name;
  std::string folder = "none";
  std::string gguf;               // Name of a GGUF file, which is copied to model.gguf.
  std::vector<std::string> put;   // Changes to model.gguf, each as "TEXT OFFSET BYTES".
  std::vector<std::string> set;   // Changes to JSON files, each as "FILE POINTER JSON".
  std::vector<std::string> make;  // Shell commands that prepare the case's folder.
  std::string needs;              // Shell command. If it fails, the case is skipped.
  std::string run;                // Shell command under test.
  int status = 2;
  bool serves = false;
  bool after_loading = false;
  std::vector<std::string> first;
};

// GoogleTest calls this function to print the case in the output of a failed test.
void PrintTo(const Case& c, std::ostream* out) { *out << c.table << ": " << c.name; }

// Aborts on a line without a known key. Otherwise a misspelt key would go unnoticed, and the case
// would check less.
std::vector<Case> ReadTable(const fs::path& path) {
  std::vector<Case> cases;
  std::string group;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
    BATON_CHECK(parts.size() == 2) << path << ": " << line;
    const absl::string_view key = parts[0];
    const std::string value(absl::StripAsciiWhitespace(parts[1]));
    if (key == "group") {
      group = value;
      continue;
    }
    if (key == "case") {
      cases.push_back({.table = path.stem(), .group = group, .name = value});
      continue;
    }
    BATON_CHECK(!cases.empty()) << path << ": " << line;
    Case& c = cases.back();
    if (key == "folder") {
      c.folder = value;
    } else if (key == "gguf") {
      c.gguf = value;
    } else if (key == "put") {
      c.put.push_back(value);
    } else if (key == "set") {
      c.set.push_back(value);
    } else if (key == "make") {
      c.make.push_back(value);
    } else if (key == "needs") {
      c.needs = value;
    } else if (key == "run") {
      c.run = value;
    } else if (key == "status") {
      BATON_CHECK(absl::SimpleAtoi(value, &c.status)) << path << ": " << line;
    } else if (key == "serves") {
      c.serves = true;
      c.status = 0;
    } else if (key == "after loading") {
      c.after_loading = true;
    } else if (key == "first") {
      c.first.push_back(value);
    } else {
      BATON_CHECK(false) << path << ": unknown key in: " << line;
    }
  }
  return cases;
}

const std::vector<Case>& Cases() {
  static const auto* cases = [] {
    auto* all = new std::vector<Case>;
    std::set<fs::path> tables;
    for (const auto& entry : fs::directory_iterator(BATON_SOURCE_DIR "/tests/messages")) {
      if (entry.path().extension() == ".cases") tables.insert(entry.path());
    }
    for (const fs::path& table : tables) {
      const std::vector<Case> more = ReadTable(table);
      all->insert(all->end(), more.begin(), more.end());
    }
    return all;
  }();
  return *cases;
}

int Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Returns a copy of a folder of testdata, with a tokenizer added. Makes the copy at the first call.
const ServedFolder& Original(const std::string& name) {
  static auto* folders = new std::map<std::string, std::unique_ptr<ServedFolder>>;
  std::unique_ptr<ServedFolder>& folder = (*folders)[name];
  if (folder == nullptr) folder = std::make_unique<ServedFolder>(name);
  return *folder;
}

void SetJson(const ScratchFolder& folder, absl::string_view edit) {
  const std::vector<std::string> parts = absl::StrSplit(edit, absl::MaxSplits(' ', 2));
  ASSERT_EQ(parts.size(), 3u) << edit;
  nlohmann::json file = nlohmann::json::parse(folder.Read(parts[0]));
  file[nlohmann::json::json_pointer(parts[1])] = nlohmann::json::parse(parts[2]);
  folder.Write(parts[0], file.dump());
}

void PutBytes(const ScratchFolder& folder, absl::string_view edit) {
  const std::vector<std::string> parts = absl::StrSplit(edit, ' ');
  int offset = 0;
  ASSERT_TRUE(parts.size() == 3 && absl::SimpleAtoi(parts[1], &offset)) << edit;
  const std::string bytes = absl::HexStringToBytes(parts[2]);
  std::string file = folder.Read("model.gguf");
  const size_t found = file.find(parts[0]);
  ASSERT_NE(found, file.npos) << edit;
  const size_t at = found + parts[0].size() + offset;
  ASSERT_LE(at + bytes.size(), file.size()) << edit;
  folder.Write("model.gguf", file.replace(at, bytes.size(), bytes));
}

struct Ended {
  std::string output;  // Standard output and standard error, interleaved as they were written.
  int status = -1;
};

// Runs the case's command until it ends. If the case expects the program to serve, sends SIGTERM
// once the program listens.
Ended RunCase(const Case& c, const ScratchFolder& folder) {
  const std::string script =
      folder.Write("../run-of-" + fs::path(folder.path()).filename().string(),
                   absl::StrCat("echo $$\nexec timeout --foreground 30 sh -c 'exec ", c.run,
                                "' </dev/null 2>&1\n"));
  FILE* const pipe = popen(absl::StrCat("cd ", folder.path(), " && exec sh ", script).c_str(), "r");
  Ended ended;
  std::string line;
  int pid = 0;
  for (int letter = fgetc(pipe); letter != EOF; letter = fgetc(pipe)) {
    line.push_back(static_cast<char>(letter));
    if (letter != '\n') continue;
    if (pid == 0) {
      if (!absl::SimpleAtoi(line, &pid)) pid = -1;
    } else {
      ended.output += line;
      if (c.serves && pid > 0 && absl::StartsWith(line, "listening on ")) kill(pid, SIGTERM);
    }
    line.clear();
  }
  ended.output += line;
  ended.status = WEXITSTATUS(pclose(pipe));
  fs::remove(script);
  return ended;
}

// Returns the first line that tells a user the result. If the fault is found only after loading
// (`after_loading`), lines about the progress of the start are skipped: log lines of level I, and
// the lines in which `up` says what it waits for.
std::string FirstLine(const Case& c, const std::string& output) {
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    if (c.after_loading &&
        (absl::StrContains(line, "Z I baton-") || absl::StartsWith(line, "waiting for "))) {
      continue;
    }
    return std::string(line);
  }
  return "";
}

class MessagesTest : public testing::TestWithParam<Case> {
 public:
  static void SetUpTestSuite() {
    const bool root = geteuid() == 0;
    setenv("PATH", absl::StrCat(BATON_BINARY_DIR, ":", getenv("PATH")).c_str(), 1);
    setenv("BIN", BATON_BINARY_DIR, 1);
    setenv("SOURCE", BATON_SOURCE_DIR, 1);
    // Makes ./baton use the programs of this build, and keep its addresses, process ids and logs in
    // the case's folder.
    setenv("BATON",
           absl::StrCat("env BATON_STATE=state BATON_BUILD=",
                        fs::path(BATON_BINARY_DIR).parent_path().string(), " ", BATON_SOURCE_DIR,
                        "/baton")
               .c_str(),
           1);
    for (const char* variable : {"BATON_API_KEY", "BATON_ATTACH_TOKEN", "BATON_CALLED_AS",
                                 "BATON_SLO", "HF_TOKEN", "HF_ENDPOINT"}) {
      unsetenv(variable);
    }
    // $UNPRIVILEGED runs a command without root's rights. $OWN_MOUNTS runs a command with mounts of
    // its own.
    setenv("UNPRIVILEGED",
           root ? "setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all" : "env",
           1);
    setenv("OWN_MOUNTS", root ? "unshare -m" : "unshare -rm", 1);
  }
};

TEST_P(MessagesTest, FirstLineHasTheValueAndWhatToDo) {
  const Case& c = GetParam();
  const ScratchFolder folder;
  fs::permissions(folder.path(), fs::perms(0755));
  if (!c.needs.empty() && Shell(absl::StrCat("{ ", c.needs, "\n} >/dev/null 2>&1")) != 0) {
    GTEST_SKIP() << "needs what is not here: " << c.needs;
  }
  if (c.folder != "none") {
    fs::copy(Original(c.folder).path(), folder.path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  if (!c.gguf.empty()) {
    fs::copy(absl::StrCat(BATON_SOURCE_DIR "/common/model/testdata/", c.gguf, ".gguf"),
             absl::StrCat(folder.path(), "/model.gguf"));
  }
  for (const std::string& edit : c.put) PutBytes(folder, edit);
  for (const std::string& edit : c.set) SetJson(folder, edit);
  for (const std::string& make : c.make) {
    ASSERT_EQ(Shell(absl::StrCat("cd ", folder.path(), " && { ", make, "; }")), 0) << make;
  }
  const Ended ended = RunCase(c, folder);
  // If the case removed access rights from a folder, a user other than root could not delete it.
  if (geteuid() != 0) Shell(absl::StrCat("chmod -R u+rwX ", folder.path()));
  EXPECT_EQ(ended.status, c.status) << ended.output;
  const std::string first = FirstLine(c, ended.output);
  for (const std::string& words : c.first) {
    EXPECT_THAT(first, HasSubstr(words)) << "all output:\n" << ended.output;
  }
  if (c.status != 0) {
    EXPECT_TRUE(absl::StartsWith(first, "baton")) << "not our own sentence: " << first;
    EXPECT_TRUE(IsInTroubleshooting(first)) << "not in docs/troubleshooting.md: " << first;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MessagesTest, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = absl::StrCat(info.param.table, "_", info.param.name);
  for (char& letter : name) {
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  }
  return absl::StrCat(name, "_", info.index);
});

TEST(MessageTablesTest, EveryCaseSaysSomethingAndAllKindsAreThere) {
  std::set<std::string> groups, names;
  for (const Case& c : Cases()) {
    groups.insert(c.group);
    EXPECT_TRUE(names.insert(c.name).second) << "twice: " << c.name;
    EXPECT_THAT(c.run, Not(IsEmpty())) << c.name;
    // An expected refusal has at least two parts: the wrong value, and what to do.
    EXPECT_GE(c.first.size(), c.status == 0 ? 0u : 2u) << c.name;
  }
  EXPECT_GE(Cases().size(), 60u);
  for (const char* group : {"supported folders", "damaged folders", "foreign folders",
                            "wrong flags", "missing rights"}) {
    EXPECT_TRUE(groups.count(group)) << group;
  }
}

}  // namespace
}  // namespace baton
