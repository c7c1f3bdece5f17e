#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/scratch_folder.h"
#include "tests/shell/run_shell.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class DoorTest : public testing::Test {
 protected:
  ~DoorTest() override {
    Baton("down");
    if (HasFailure() && fs::exists(state_.File("log"))) {
      for (const auto& log : fs::directory_iterator(state_.File("log"))) {
        std::ifstream file(log.path());
        std::stringstream text;
        text << file.rdbuf();
        std::printf("---- %s\n%s", log.path().c_str(), text.str().c_str());
      }
    }
  }

  std::string Command(const std::string& arguments) const {
    return absl::StrCat("env BATON_BUILD=" BATON_BUILD_DIR " BATON_STATE=", state_.path(),
                        " " BATON_SOURCE_DIR "/baton ", arguments);
  }
  Ended Baton(const std::string& arguments) const { return RunShell(Command(arguments)); }

  // Returns the id of a process, which `up` has written to a file in the state folder.
  pid_t PidOf(const std::string& process) const {
    std::ifstream file(state_.File(process + ".pid"));
    pid_t pid = 0;
    file >> pid;
    return pid;
  }

  std::string RouterAddress() const {
    const Ended ended =
        RunShell(absl::StrCat("sed -n 's/^listening on //p' ", state_.File("log/router.log")));
    const std::vector<std::string> lines = absl::StrSplit(ended.output, '\n', absl::SkipEmpty());
    return lines.empty() ? "" : lines.back();
  }

  // Returns the answer to a greedy request, as `generate --json` prints it.
  json Answer() const {
    const Ended ended = Baton("generate 'What is rain?' --json --max-tokens 24 --temperature 0");
    EXPECT_EQ(ended.exit_status, 0) << ended.output;
    return json::parse(ended.output, nullptr, false);
  }

  const ScratchFolder state_;
};

TEST_F(DoorTest, UpOnceAnswersAndLeavesNothing) {
  const Ended up = Baton("up --once --no-build --listen 127.0.0.1:0 --kv-bytes 16Mi");
  EXPECT_EQ(up.exit_status, 0);
  EXPECT_THAT(up.output,
              AllOf(HasSubstr("> Explain how a CPU works to a 5-year-old\n"), HasSubstr("(TTFT)"),
                    HasSubstr("(TPOT)"), HasSubstr("- prefill"), HasSubstr("prefill-1")));
  const Ended status = Baton("status");
  EXPECT_EQ(status.exit_status, 1);
  EXPECT_EQ(status.output, "nothing is up\n");
  EXPECT_EQ(Baton("down").output, "nothing is up\n");
}

TEST_F(DoorTest, ColocatedItServesWithoutPrefillWorkers) {
  const Ended up = Baton(
      "up --once --no-build --listen=127.0.0.1:0 --kv-bytes=16Mi --mode colocated --prefill 0 "
      "--prompt 'What is "
      "rain?'");
  ASSERT_EQ(up.exit_status, 0) << up.output;
  EXPECT_THAT(up.output, HasSubstr("colocated with decode"));
}

TEST_F(DoorTest, DetachedItServesAndWhatDiesComesBack) {
  const Ended up = Baton(
      "up --detach --no-build --listen=127.0.0.1:0 --kv-bytes 16Mi --prefill 2 --prompt 'What is "
      "rain?'");
  ASSERT_EQ(up.exit_status, 0) << up.output;
  const Ended again = Baton("up --no-build");
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.output, StartsWith("baton: the cluster is up already, at 127.0.0.1:"));

  const json answer = Answer();
  EXPECT_EQ(answer["usage"]["completion_tokens"], answer["token_ids"].size());
  const Ended tokens = Baton("tokenize 'What is rain?'");
  EXPECT_EQ(tokens.exit_status, 0);
  const std::string ids = tokens.output.substr(0, tokens.output.size() - 1);
  EXPECT_EQ(Baton(absl::StrCat("detokenize --skip-special ", ids)).output, "What is rain?\n");
  const json text =
      json::parse(Baton(absl::StrCat("detokenize --skip-special --json ", ids)).output);
  EXPECT_EQ(text["text"], "What is rain?");
  EXPECT_EQ(absl::StrJoin(text["token_ids"].get<std::vector<int>>(), ","), ids);

  // Kills workers and sends a request immediately afterwards. The router waits until the workers
  // that the request needs have been restarted.
  for (const std::vector<std::string>& victims :
       {std::vector<std::string>{"prefill-1", "prefill-2"}, std::vector<std::string>{"decode-1"}}) {
    std::vector<pid_t> before;
    for (const std::string& victim : victims) {
      before.push_back(PidOf(victim));
      ASSERT_GT(before.back(), 1);
      kill(before.back(), SIGKILL);
    }
    EXPECT_EQ(Answer()["text"], answer["text"]);
    bool back = false;
    for (size_t i = 0; i < victims.size(); ++i) back |= PidOf(victims[i]) != before[i];
    EXPECT_TRUE(back) << victims[0];
  }
  const pid_t router = PidOf("router");
  kill(router, SIGKILL);
  const std::string wait =
      absl::StrCat(BATON_BUILD_DIR "/bin/baton-client wait --router=", RouterAddress());
  EXPECT_EQ(RunShell(wait).exit_status, 0);  // The router is back at the same address.
  EXPECT_EQ(Answer()["text"], answer["text"]);

  const Ended status = Baton("status");
  EXPECT_EQ(status.exit_status, 0);
  EXPECT_THAT(status.output, AllOf(HasSubstr("prefill-2"), HasSubstr("2 prefill and 1 decode"),
                                   EndsWith("SERVING\n")));
  EXPECT_EQ(Baton("down").output, "stopped\n");
  EXPECT_EQ(Baton("status").exit_status, 1);
  const Ended after = Baton("generate x --router=127.0.0.1:1");
  EXPECT_EQ(after.exit_status, 1);
  EXPECT_THAT(after.output, StartsWith("baton-client: UNAVAILABLE"));
}

TEST_F(DoorTest, InTheForegroundATermStopsEverythingInOrder) {
  bool told = false;
  const auto stop_once_it_serves = [&](pid_t pid, const std::string& output) {
    if (told || output.find("it serves until Ctrl-C") == output.npos) return;
    told = true;
    kill(pid, SIGTERM);
  };
  const Ended up = RunShell("exec " + Command("up --no-build --listen 127.0.0.1:0 --kv-bytes 16Mi"),
                            {.on_output = stop_once_it_serves});
  EXPECT_TRUE(told);
  EXPECT_EQ(up.exit_status, 0);
  EXPECT_THAT(up.output, EndsWith("stopped\n"));
  EXPECT_EQ(Baton("status").output, "nothing is up\n");
}

TEST_F(DoorTest, WhatRefusesToStartIsNamed) {
  const Ended up = Baton("up --once --no-build --listen 127.0.0.1:0 --kv-bytes 4096");
  EXPECT_EQ(up.exit_status, 1);
  EXPECT_THAT(up.output, AllOf(HasSubstr("kv-bytes"), HasSubstr("-1 refused to start")));
  EXPECT_EQ(Baton("status").output, "nothing is up\n");
}

TEST_F(DoorTest, AnEmptyTokenizerIsNamedEveryTime) {
  const ScratchFolder model;
  fs::copy_file(BATON_SOURCE_DIR "/common/model/demo/config.json", model.File("config.json"));
  model.Write("tokenizer.json", "");
  for (int i = 0; i < 10; ++i) {
    const Ended up =
        Baton(absl::StrCat("up --no-build --listen 127.0.0.1:0 --model ", model.path()));
    EXPECT_EQ(up.exit_status, 1);
    EXPECT_THAT(
        up.output,
        AllOf(StartsWith("baton: router refused to start: --model: "),
              HasSubstr(
                  "tokenizer.json: is empty; expected a JSON text, fetch it again\nits log is ")));
  }
}

// Gives `up` a flag of both workers, a flag of one role, and a flag that all programs have.
TEST_F(DoorTest, FlagsReachTheProcessesTheyAreMeantFor) {
  const Ended up = Baton(
      "up --detach --no-build --listen=127.0.0.1:0 --log-format json --threads=1 --max-queued 7 "
      "--decode-metrics-listen 127.0.0.1:0 --prefill-context=512 --prompt 'What is rain?'");
  ASSERT_EQ(up.exit_status, 0) << up.output;
  const std::string router = state_.Read("log/router.log");
  const std::string decode = state_.Read("log/decode-1.log");
  const std::string prefill = state_.Read("log/prefill-1.log");
  EXPECT_THAT(router, AllOf(StartsWith("{"), HasSubstr("\"max_queued\":7")));
  EXPECT_THAT(decode, HasSubstr("\"event\":\"metrics\""));
  EXPECT_THAT(prefill, AllOf(Not(HasSubstr("\"event\":\"metrics\"")), HasSubstr("512")));
  EXPECT_THAT(Baton("status").output, HasSubstr("SERVING\n"));
}

TEST_F(DoorTest, MistakesAreNamedAndExit2) {
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"frob", "unknown command 'frob'"},
           {"help frob", "unknown command 'frob'"},
           {"help ../commands/test", "unknown command"},
           {"up --no-build --colour", "unknown flag --colour of up"},
           {"up --no-build --kvbytes 4", "did you mean --kv-bytes?"},
           {"up --no-build --model", "--model needs a value"},
           {"up --no-build --model /nowhere", "--model /nowhere: there is no such folder"},
           {"up --no-build --prefill 0", "not '0'"},
           {"up --no-build --mode colocated --decode 0 --prefill 0", "not '0'"},
           {"up --no-build --mode both", "not 'both'"},
           {"up --no-build --decode=many", "not 'many'"},
           {"up --no-build --listen nowhere", "not 'nowhere'"},
           {"up --no-build --prompt ''", "--prompt takes a text"},
           {"up --no-build --once --detach", "can't be used together"},
           {"up --no-build --stall 4s", "write --router-stall or --decode-stall"},
           {"test nowhere", "'nowhere' is not a module"},
           {"build --sanitize memory", "not 'memory'"},
           {"deps --colour", "unknown flag --colour of deps"},
           {"bench everything", "not 'everything'"},
           {"soak --kills 0", "not '0'"},
           {"down now", "takes no flags"},
           {"generate x --colour", "unknown flag --colour"},
       }) {
    const Ended ended = Baton(arguments);
    EXPECT_EQ(ended.exit_status, 2) << arguments;
    EXPECT_THAT(ended.output, AllOf(StartsWith("baton"), HasSubstr(message))) << arguments;
  }
}

TEST_F(DoorTest, AReleasedVersionIsToldByTheDoorAndByEveryProgram) {
  const std::string version = Baton("--version").output;
  EXPECT_THAT(version, testing::MatchesRegex("baton [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  const std::string number = version.substr(version.find(' '));
  for (const char* program : {"router", "prefill", "decode", "client", "up"}) {
    EXPECT_EQ(RunShell(absl::StrCat(BATON_BUILD_DIR "/bin/baton-", program, " --version")).output,
              absl::StrCat("baton-", program, number));
  }
}

// Simulates a system without the packages that ./baton needs. Small scripts take the place of the
// system's package tools.
class OtherSystemTest : public DoorTest {
 protected:
  // Runs `./baton deps --check`. Each line of `installed` and `offered` is a package and its
  // version.
  Ended Deps(const std::string& installed, const std::string& offered) {
    system_.Write("installed", installed);
    system_.Write("offered", offered);
    system_.WriteScript("bin/dpkg-query", absl::StrCat("#!/bin/sh\nsed 's/^/installed /' ",
                                                       system_.File("installed"), "\n"));
    system_.WriteScript(
        "bin/apt-cache",
        absl::StrCat("#!/bin/sh\nversion=$(sed -n \"s/^$2 //p\" ", system_.File("offered"),
                     ")\n[ -z \"$version\" ] || echo \"  Candidate: $version\"\n"));
    return RunShell(absl::StrCat("env PATH=", system_.File("bin"), ":$PATH ",
                                 Command("deps --check").substr(4)));
  }

  const ScratchFolder system_;
};

TEST_F(OtherSystemTest, PackagesThatAreTooOldAreNamedInOneSentence) {
  // Packages as Ubuntu 22.04 has them.
  const std::string old =
      "libgrpc++-dev 1.30.2-3build6\nlibprotobuf-dev 3.12.4-1ubuntu7\n"
      "libboost-dev 1.74.0.3ubuntu7\n";
  for (const Ended& deps : {Deps(old, ""), Deps("", old)}) {
    EXPECT_EQ(deps.exit_status, 1);
    EXPECT_THAT(
        deps.output,
        AllOf(StartsWith("baton: "),
              HasSubstr("has packages that are too old for Baton (gRPC 1.30, Protobuf 3.12, "
                        "Boost 1.74; it needs gRPC 1.51, Protobuf 3.21, Boost 1.81 or newer): "
                        "use Debian 12, Debian 13 or Ubuntu 24.04")));
    EXPECT_EQ(std::count(deps.output.begin(), deps.output.end(), '\n'), 1);
  }
}

TEST_F(OtherSystemTest, OfAlternativesTheOneThatThereIsWillBeInstalled) {
  // Packages as Debian 13 has them.
  const Ended deps = Deps("g++ 4:14.2.0-1\n",
                          "libgrpc++-dev 1.51.1-6\nlibprotobuf-dev 3.21.12-11\n"
                          "libboost1.83-dev 1.83.0-4.2\nlibboost-dev 1.83.0.2+b2\n");
  EXPECT_EQ(deps.exit_status, 1);
  EXPECT_THAT(deps.output, AllOf(HasSubstr("  apt-get install -y --no-install-recommends cmake "),
                                 HasSubstr(" libboost1.83-dev "), Not(HasSubstr("libboost1.81"))));
  EXPECT_THAT(Deps("libboost-dev 1.88.0\n", "").output, Not(HasSubstr("boost")))
      << "one alternative is there";
}

// If `./baton build` configures the build, it prints the line in which CMake says if CUDA is used.
TEST_F(DoorTest, ConfiguringItTellsWhatCameOfCuda) {
  state_.WriteScript("tools/cmake",
                     "#!/bin/sh\n"
                     "while [ $# -gt 0 ]; do [ \"$1\" != -B ] || build=$2; shift; done\n"
                     "echo '-- CUDA: not used, because there is no nvcc in PATH'\n"
                     "echo '-- Configuring done'\n"
                     "touch $build/build.ninja\n");
  state_.WriteScript("tools/ninja", "#!/bin/sh\n");
  const std::string command = absl::StrCat(
      "env PATH=", state_.File("tools"), ":$PATH BATON_BUILD=", state_.File("build"),
      " BATON_STATE=", state_.path(), " " BATON_SOURCE_DIR "/baton build --programs --no-install");
  const Ended first = RunShell(command);
  EXPECT_EQ(first.exit_status, 0) << first.output;
  EXPECT_THAT(first.output, StartsWith("CUDA: not used, because there is no nvcc in PATH\n"));
  EXPECT_THAT(first.output, Not(HasSubstr("Configuring")));
  EXPECT_THAT(RunShell(command).output, Not(HasSubstr("CUDA"))) << "nothing was configured";
}

// Runs ./baton with an empty build folder. Help must work there, too.
TEST_F(DoorTest, HelpIsPerCommandAndNeedsNoBuild) {
  const auto unbuilt = [this](const std::string& arguments) {
    return RunShell(absl::StrCat("env BATON_BUILD=", state_.File("nothing"), " BATON_STATE=",
                                 state_.path(), " " BATON_SOURCE_DIR "/baton ", arguments));
  };
  const Ended help = unbuilt("help");
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_EQ(unbuilt("").output, help.output);
  for (const char* command :
       {"up", "status", "down", "generate", "tokenize", "detokenize", "models", "health", "goodput",
        "test", "build", "deps", "bundle", "soak", "bench"}) {
    EXPECT_THAT(help.output, HasSubstr(absl::StrCat("\n  ./baton ", command))) << command;
  }
  for (const char* command :
       {"up", "status", "down", "test", "build", "deps", "bundle", "soak", "bench"}) {
    const Ended own = unbuilt(absl::StrCat("help ", command));
    EXPECT_EQ(own.exit_status, 0) << command;
    EXPECT_THAT(own.output, StartsWith(absl::StrCat("./baton ", command))) << command;
    EXPECT_EQ(unbuilt(absl::StrCat(command, " --help")).output, own.output) << command;
  }
  EXPECT_EQ(unbuilt("help generate").exit_status, 1);
  EXPECT_THAT(Baton("help generate").output, HasSubstr("--temperature"));
  EXPECT_EQ(unbuilt("status").output, "nothing is up\n");
}

// Every flag in the help of `up` must be a flag of `up`, or of a program that `up` passes it on to.
TEST_F(DoorTest, TheHelpOfUpNamesOnlyFlagsThatThereAre) {
  std::set<std::string> known = {"prefill", "decode",     "prompt",   "once",
                                 "detach",  "no-install", "no-build", "NAME"};
  for (const char* role : {"router", "prefill", "decode"}) {
    const Ended list = RunShell(absl::StrCat(BATON_BUILD_DIR "/bin/baton-", role, " --list-flags"));
    for (const absl::string_view line : absl::StrSplit(list.output, '\n', absl::SkipEmpty())) {
      const std::string name(line.substr(0, line.find(' ')));
      known.insert(name);
      known.insert(absl::StrCat(role, "-", name));
    }
    known.insert(absl::StrCat(role, "-NAME"));
  }
  const std::string help = Baton("help up").output;
  static const std::regex kFlag("--([a-zA-Z][a-zA-Z-]*)");
  int flags = 0;
  for (std::sregex_iterator flag(help.begin(), help.end(), kFlag), end; flag != end; ++flag) {
    if ((*flag)[1] == "help") continue;
    EXPECT_TRUE(known.count((*flag)[1])) << (*flag)[1];
    ++flags;
  }
  EXPECT_GT(flags, 30);
}

TEST(DoorScriptTest, StaysThin) {
  std::ifstream file(BATON_SOURCE_DIR "/baton");
  int lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_LE(lines, 250);
  EXPECT_GT(lines, 50);
}

TEST_F(DoorTest, APythonProgramWithGrpcioAloneStreams) {
  std::string python;
  for (const char* candidate : {"python3", "/usr/bin/python3"}) {
    const std::string probe = absl::StrCat(candidate, " -c 'import grpc, google.protobuf'");
    if (python.empty() && RunShell(probe).exit_status == 0) python = candidate;
  }
  if (python.empty()) GTEST_SKIP() << "no python3 here can import grpc (Debian: python3-grpcio)";
  ASSERT_EQ(Baton("up --detach --no-build --listen 127.0.0.1:0 --kv-bytes 16Mi").exit_status, 0);
  const json answer = Answer();
  const Ended ended =
      RunShell(absl::StrCat("env PYTHONPATH=" BATON_PYTHON_STUBS " ", python,
                            " " BATON_SOURCE_DIR "/docs/examples/python_stream.py --router ",
                            RouterAddress(), " --max-tokens 24 --temperature 0 'What is rain?'"));
  EXPECT_EQ(ended.exit_status, 0);
  EXPECT_THAT(ended.output, HasSubstr(answer["text"].get<std::string>()));
}

TEST(SummaryTest, CountsCasesAndProgramsThatLeftNone) {
  const ScratchFolder folder;
  folder.Write("ctest.junit", R"(<testsuite name="all">
	<testcase name="good_test" classname="good_test" time="1" status="run">
	<testcase name="bad_test" classname="bad_test" time="1" status="fail">
	<testcase name="leaky_test" classname="leaky_test" time="1" status="fail">
	<testcase name="crashed_test" classname="crashed_test" time="1" status="fail">
		<failure message=""/>
		<system-out>first line
a &lt; b: Segmentation fault
</system-out>
	</testcase>
	<testcase name="filtered_test" classname="filtered_test" time="1" status="run">
	<testcase name="script" classname="script" time="1" status="run">
	<testcase name="absent" classname="absent" time="1" status="notrun">
	<testcase name="told" classname="told" time="1" status="notrun">
		<skipped message="SKIP_RETURN_CODE=77"/>
		<system-out>begins
skipped: no right to make namespaces
</system-out>
	</testcase>
	<testcase name="last" classname="last" time="1" status="notrun">
</testsuite>)");
  folder.Write("good_test.xml", R"(<testsuites tests="3">
    <testcase name="A" status="run" result="completed" time="0" classname="S" />
    <testcase name="B" status="run" result="skipped" time="0" classname="S">
      <skipped message="f.cc:2&#x0A;no &quot;GPU&quot;&#x0A;here"><![CDATA[f.cc:2
    </testcase>
    <testcase name="B2" status="run" result="skipped" time="0" classname="S">
      <skipped message="f.cc:7&#x0A;no &quot;GPU&quot;&#x0A;there"><![CDATA[f.cc:7
    </testcase>
    <testcase name="DISABLED_C" status="notrun" result="suppressed" time="0" classname="S" />
)");
  folder.Write("bad_test.xml", R"(<testsuites tests="2">
    <testcase name="A/0" value_param="1" status="run" result="completed" time="0" classname="I/S">
      <failure message="f.cc:3&#x0A;x" type=""><![CDATA[f.cc:3
      <failure message="f.cc:4&#x0A;y" type=""><![CDATA[f.cc:4
    </testcase>
    <testcase name="A/1" value_param="2" status="run" result="completed" time="0" classname="I/S" />
)");
  folder.Write("leaky_test.xml", R"(
    <testcase name="A" status="run" result="completed" time="0" classname="S" />
)");
  folder.Write("filtered_test.xml", R"(<testsuites tests="0">
</testsuites>)");
  const Ended ended = RunShell(
      absl::StrCat("awk -f " BATON_SOURCE_DIR "/tests/summary.awk ", folder.File("ctest.junit")));
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_EQ(ended.output,
            "skipped 2 of good_test: no \"GPU\"\n"
            "skipped 1 of absent, 1 of last: not run\n"
            "skipped 1 of told: no right to make namespaces\n"
            "FAILED  bad_test: I/S.A/0\n"
            "    f.cc:3\n"
            "    x\n"
            "    f.cc:4\n"
            "    y\n"
            "FAILED  leaky_test: failed outside its cases\n"
            "FAILED  crashed_test: failed, crashed or ran out of time without naming a case\n"
            "    first line\n"
            "    a < b: Segmentation fault\n"
            "4 passed, 3 failed, 5 skipped\n");
}

}  // namespace
}  // namespace baton
