// Tests of baton-up as a process. Small scripts replace the programs that it starts.

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {  // Debian 12's header lacks extern "C"
#include <sys/pidfd.h>
}

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/scratch_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A fake server. It logs that it listens at the given addresses, and then waits for a signal.
constexpr char kServer[] = R"(#!/bin/sh
case $1 in --list-flags) echo "listen value"; exit;; esac
for a; do
  case $a in
    --listen=*) echo "listening on ${a#--listen=}" ;;
    --http-listen=?*) echo "listening for HTTP on ${a#--http-listen=}" ;;
  esac
done
exec sleep 1000
)";
constexpr char kClient[] = R"(#!/bin/sh
case $1 in generate) echo "an answer";; esac
)";

struct Ended {
  int exit_status;  // 128 + signal if a signal killed it
  std::string output;
};

using OnOutput = std::function<void(pid_t, const std::string&)>;

class UpCommandTest : public testing::Test {
 protected:
  UpCommandTest() {
    fs::create_directory(folder_.File("bin"));
    fs::copy_file(BATON_BINARY_DIR "/baton-up", folder_.File("bin/baton-up"));
    for (const char* program : {"router", "prefill", "decode"}) Program(program, kServer);
    Program("client", kClient);
    folder_.Write("model/config.json", "{}");
  }
  ~UpCommandTest() override { Run("down"); }

  void Program(const std::string& name, const std::string& script) {
    folder_.WriteScript("bin/baton-" + name, script);
  }

  // Runs baton-up. Calls `on_output` with its process id and all output so far: once before any
  // output, then after each new line.
  Ended Run(const std::string& arguments, const OnOutput& on_output = nullptr) {
    const std::string command = absl::StrCat(
        "exec 2>&1; echo $$; exec env -u BATON_CALLED_AS -u BATON_API_KEY ", environment_,
        " BATON_STATE=", folder_.File("state"), " ", folder_.File("bin/baton-up"), " ", arguments);
    FILE* pipe = popen(command.c_str(), "r");
    Ended ended;
    char buffer[4096];
    const pid_t pid = std::fgets(buffer, sizeof buffer, pipe) == nullptr ? 0 : std::atoi(buffer);
    if (on_output) on_output(pid, "");
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
      ended.output += buffer;
      if (on_output) on_output(pid, ended.output);
    }
    const int status = pclose(pipe);
    ended.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ended;
  }
  // Without HTTP, unless the arguments ask for it.
  Ended Up(const std::string& arguments, const OnOutput& on_output = nullptr) {
    return Run(absl::StrCat("up --listen=127.0.0.1:7 --http-listen= --model=",
                            folder_.File("model"), " ", arguments),
               on_output);
  }

  pid_t PidOf(const std::string& process) const {
    std::ifstream file(folder_.File(absl::StrCat("state/", process, ".pid")));
    pid_t pid = 0;
    file >> pid;
    return pid;
  }

  // Waits up to 10 seconds until no process has this id. The process need not be a child of this
  // one.
  static bool Gone(pid_t pid) {
    const int process = pidfd_open(pid, 0);
    if (process < 0) return errno == ESRCH;
    pollfd file = {.fd = process, .events = POLLIN};
    const bool gone = poll(&file, 1, 10'000) == 1;
    close(process);
    return gone;
  }

  // Waits until a process that has ended runs again. `before` is its id before it ended. `status`
  // does not wait, so this function repeats it.
  void WaitUntilBack(const char* process, pid_t before) {
    for (pid_t now = 0; now == 0 || now == before; now = PidOf(process)) Run("status");
  }

  const ScratchFolder folder_;
  std::string environment_;  // variables for baton-up, as NAME=VALUE
};

// Sends a signal once the output contains a text.
OnOutput KillAt(std::string text, int number) {
  return
      [text = std::move(text), number, done = false](pid_t pid, const std::string& output) mutable {
        if (done || !absl::StrContains(output, text)) return;
        done = true;
        kill(pid, number);
      };
}

TEST_F(UpCommandTest, OnceItAnswersAndLeavesNothing) {
  const Ended up = Up("--once --decode 2");
  EXPECT_EQ(up.exit_status, 0);
  EXPECT_THAT(up.output, ContainsRegex("serving .*/model at\n  router     127.0.0.1:7\n"
                                       "  prefill-1  127.0.0.1:0\n  decode-1   127.0.0.1:0\n"
                                       "  decode-2   127.0.0.1:0\n> Explain .*\nan answer\n"));
  EXPECT_EQ(Run("status").output, "nothing is up\n");
  EXPECT_EQ(PidOf("router"), 0);
  Program("client", "#!/bin/sh\n[ $1 = wait ] || exit 7\n");
  EXPECT_EQ(Up("--once").exit_status, 7) << "the answer's status";
}

TEST_F(UpCommandTest, TheFirstLineSaysWhyAProcessRefused) {
  Program("decode",
          "#!/bin/sh\necho 'E0000 chttp2_server.cc:1] noise' >&2\n"
          "echo 'baton-decode: --kv-bytes is 4; it takes more' >&2\necho later >&2\nexit 2\n");
  const Ended up = Up("--detach");
  EXPECT_EQ(up.exit_status, 1);
  EXPECT_THAT(up.output, ContainsRegex("^baton-up: decode-1 refused to start: --kv-bytes is 4; it "
                                       "takes more\nits log is .*/state/log/decode-1.log\n"));
  EXPECT_EQ(Run("status").output, "nothing is up\n");
}

TEST_F(UpCommandTest, ARouterThatRefusesIsNamedEveryTime) {
  Program("router", "#!/bin/sh\necho 'baton-router: --model: tokenizer.json is empty'\nexit 2\n");
  for (int i = 0; i < 25; ++i) {
    const Ended up = Up(i % 2 == 0 ? "--once" : "--detach");
    EXPECT_EQ(up.exit_status, 1);
    EXPECT_THAT(
        up.output,
        StartsWith("baton-up: router refused to start: --model: tokenizer.json is empty\n"));
  }
}

TEST_F(UpCommandTest, ASlowStartSaysWhatItWaitsForAndWhy) {
  Program("prefill", absl::StrCat("#!/bin/sh\necho 'loading weights, 3.1 of 16.0 GB'\n"
                                  "while ! [ -e ",
                                  folder_.File("go"),
                                  " ]; do sleep 0.05; done\necho 'listening on h:9'\n"
                                  "exec sleep 1000\n"));
  const Ended up = Up("--once --prefill 2", [&](pid_t, const std::string& output) {
    if (absl::StrContains(output, "waiting")) folder_.Write("go", "");
  });
  EXPECT_EQ(up.exit_status, 0);
  EXPECT_THAT(up.output,
              AllOf(StartsWith("waiting for prefill-1: loading weights, 3.1 of 16.0 GB; prefill-2: "
                               "loading weights, 3.1 of 16.0 GB (2 s)\n"),
                    HasSubstr("  prefill-1  h:9\n  prefill-2  h:9\n")));
}

TEST_F(UpCommandTest, CtrlCWhileTheFirstPromptBeginsEndsAll) {
  Program("client", "#!/bin/sh\n[ $1 = wait ] && exit\necho begins\nexec sleep 1000\n");
  std::vector<pid_t> pids;
  const Ended up =
      Up("", [&, kill_at = KillAt("begins", SIGINT)](pid_t pid, const std::string& output) mutable {
        for (const char* name : {"router", "prefill-1", "decode-1"}) pids.push_back(PidOf(name));
        kill_at(pid, output);
      });
  EXPECT_EQ(up.exit_status, 130);
  EXPECT_THAT(up.output, AllOf(Not(HasSubstr("baton-up:")), EndsWith("\nstopping\nstopped\n")));
  for (const pid_t pid : pids) EXPECT_TRUE(pid == 0 || Gone(pid));
}

TEST_F(UpCommandTest, CtrlCWhileAModelLoadsIsAnswered) {
  Program("prefill", "#!/bin/sh\necho loading\nkill -INT $PPID\nexec sleep 1000\n");
  const Ended up = Up("");
  EXPECT_EQ(up.exit_status, 130);
  EXPECT_EQ(up.output, "stopping\nstopped\n");
}

TEST_F(UpCommandTest, ASignalAtAnyMomentOfTheStartEndsAll) {
  for (const char* flags : {"", "--detach"}) {
    for (const char* moment : {"", "serving", "an answer"}) {
      const Ended up = Up(flags, KillAt(moment, SIGTERM));
      // After a signal before the first answer, the exit status is 128 + SIGTERM = 143. After a
      // signal to a cluster that already serves, the cluster ends in order and the status is 0.
      EXPECT_THAT(up.exit_status, testing::AnyOf(143, 0)) << flags << moment << up.output;
      EXPECT_THAT(up.output, Not(HasSubstr("baton-up:"))) << moment;
      Run("down");
    }
  }
}

TEST_F(UpCommandTest, WhatDiesComesBackAndTheRouterWhereItWas) {
  const Ended up = Up("--detach");
  ASSERT_EQ(up.exit_status, 0) << up.output;
  EXPECT_THAT(up.output, HasSubstr("it serves until baton-up down; try:\n  baton-client generate "
                                   "--router=127.0.0.1:7 "));
  const pid_t router = PidOf("router"), decode = PidOf("decode-1");
  for (const pid_t pid : {router, decode}) kill(pid, SIGKILL);
  WaitUntilBack("router", router);
  WaitUntilBack("decode-1", decode);
  const Ended status = Run("status");
  EXPECT_EQ(status.exit_status, 0);
  EXPECT_THAT(status.output,
              ContainsRegex("router     127.0.0.1:7 .*pid [0-9]+ +log .*router.log"));
  EXPECT_THAT(folder_.Read("state/log/supervisor.log"),
              HasSubstr("router was killed by signal 9 (Killed); it starts again in 200ms"));
  const Ended again = Up("");
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_EQ(again.output,
            "baton-up: the cluster is up already, at 127.0.0.1:7; baton-up status shows it, and "
            "baton-up down "
            "stops it\n");
  EXPECT_EQ(Run("down").output, "stopped\n");
  EXPECT_EQ(Run("down").output, "nothing is up\n");
}

TEST_F(UpCommandTest, HttpIsShownAndStaysWhereItIsWhenTheRouterComesBack) {
  // The router gets port 9 when it asks for any free port.
  Program("router", R"(#!/bin/sh
case $1 in --list-flags) exit;; esac
for a; do
  case $a in
    --http-listen=*:0) a=--http-listen=127.0.0.1:9 ;;
    --http-listen=*) echo "again at ${a#--http-listen=}" ;;
  esac
  case $a in --http-listen=*) http=${a#--http-listen=} ;; esac
done
echo "listening on 127.0.0.1:7"
echo "listening for HTTP on $http"
exec sleep 1000
)");
  const Ended up = Up("--detach --http-listen=0.0.0.0:0");
  ASSERT_EQ(up.exit_status, 0) << up.output;
  EXPECT_THAT(up.output,
              AllOf(HasSubstr("  router     127.0.0.1:7\n  http       127.0.0.1:9\n  prefill-1"),
                    HasSubstr("\n  curl http://127.0.0.1:9/v1/completions -H 'Content-Type: "
                              "application/json' -d '{\"prompt\": \"Tell me a story about a "
                              "fox\", \"max_tokens\": 60}'\n"),
                    HasSubstr("  export OPENAI_BASE_URL=http://127.0.0.1:9/v1 "
                              "OPENAI_API_KEY=none\n")));
  EXPECT_EQ(folder_.Read("state/http.address"), "127.0.0.1:9\n");
  const pid_t router = PidOf("router");
  kill(router, SIGKILL);
  WaitUntilBack("router", router);
  EXPECT_THAT(Run("status").output, HasSubstr("  http       127.0.0.1:9           "
                                              "OPENAI_BASE_URL=http://127.0.0.1:9/v1\n"));
  EXPECT_EQ(Run("down").output, "stopped\n");
  EXPECT_THAT(folder_.Read("state/log/router.log"), HasSubstr("again at 127.0.0.1:9\n"));
  EXPECT_FALSE(fs::exists(folder_.File("state/http.address")));
}

TEST_F(UpCommandTest, HttpHasAPortOfItsOwnWithoutAFlag) {
  const std::string model = absl::StrCat(" --model=", folder_.File("model"));
  EXPECT_THAT(Run("up --once --listen=127.0.0.1:7" + model).output,
              testing::AnyOf(HasSubstr("\n  http       127.0.0.1:8000\n"),
                             AllOf(StartsWith("127.0.0.1:8000 is taken; "),
                                   HasSubstr("\n  http       127.0.0.1:0\n"))));
  EXPECT_THAT(Run("up --once --listen=127.0.0.1:8000" + model).output,
              AllOf(StartsWith("127.0.0.1:8000 is taken; the router serves HTTP on a free port\n"),
                    HasSubstr("\n  http       127.0.0.1:0\n")));
}

TEST_F(UpCommandTest, WithoutHttpNothingSpeaksOfIt) {
  const Ended up = Up("--detach");
  ASSERT_EQ(up.exit_status, 0) << up.output;
  EXPECT_THAT(up.output, AllOf(Not(HasSubstr("http")), Not(HasSubstr("OPENAI"))));
  EXPECT_THAT(Run("status").output, Not(HasSubstr("http")));
}

TEST_F(UpCommandTest, AKeyReachesTheClientAndIsNotShown) {
  environment_ = "BATON_API_KEY=sk-secret";
  Program("client", "#!/bin/sh\n[ \"$BATON_API_KEY\" = sk-secret ] || exit 7\n");
  const Ended up = Up("--detach --http-listen=127.0.0.1:8");
  EXPECT_EQ(up.exit_status, 0);
  EXPECT_THAT(up.output,
              AllOf(HasSubstr("/completions -H 'Content-Type: application/json' -H "
                              "\"Authorization: Bearer $BATON_API_KEY\" -d '{"),
                    HasSubstr("OPENAI_API_KEY=$BATON_API_KEY\n"), Not(HasSubstr("sk-secret"))));
  EXPECT_EQ(Run("status").exit_status, 0);
}

TEST_F(UpCommandTest, AFileOfKeysNeedsAKeyForTheFirstPromptToo) {
  Program("router", absl::StrReplaceAll(kServer, {{"listen value", "api-key-file value"}}));
  const Ended up = Up("--once --api-key-file=keys");
  EXPECT_EQ(up.exit_status, 2);
  EXPECT_THAT(up.output, StartsWith("baton-up: --api-key-file without $BATON_API_KEY: "));
  environment_ = "BATON_API_KEY=sk-secret";
  EXPECT_EQ(Up("--once --api-key-file=keys").exit_status, 0);
}

TEST_F(UpCommandTest, NothingOutlivesASupervisorThatIsKilled) {
  ASSERT_EQ(Up("--detach").exit_status, 0);
  const std::vector<pid_t> pids = {PidOf("router"), PidOf("prefill-1"), PidOf("decode-1")};
  kill(PidOf("supervisor"), SIGKILL);
  for (const pid_t pid : pids) EXPECT_TRUE(Gone(pid));
  EXPECT_EQ(Run("status").output, "nothing is up\n");
  EXPECT_EQ(Up("--once").exit_status, 0) << "what it left does not hinder the next one";
}

TEST_F(UpCommandTest, ADetachedStartEndsWithTheCommandThatWaitsForIt) {
  Program("client", "#!/bin/sh\n[ $1 = wait ] && exit\necho begins\nexec sleep 1000\n");
  pid_t supervisor = 0;
  Up("--detach",
     [&, kill_at = KillAt("begins", SIGKILL)](pid_t pid, const std::string& output) mutable {
       if (supervisor == 0 && absl::StrContains(output, "begins")) supervisor = PidOf("supervisor");
       kill_at(pid, output);
     });
  ASSERT_GT(supervisor, 0);
  EXPECT_TRUE(Gone(supervisor));
  EXPECT_EQ(Run("status").output, "nothing is up\n");
}

TEST_F(UpCommandTest, WhileItStopsNothingSaysThatItIsUp) {
  Program("router",
          "#!/bin/sh\n[ $1 = --list-flags ] && exit\ntrap 'echo asked' TERM\n"
          "echo 'listening on 127.0.0.1:7'\nwhile :; do sleep 0.1; done\n");
  ASSERT_EQ(Up("--detach").exit_status, 0);
  const pid_t router = PidOf("router");
  ASSERT_GT(router, 0);
  kill(PidOf("supervisor"), SIGTERM);
  while (!absl::EndsWith(folder_.Read("state/log/router.log"), "asked\n")) Run("status");
  const Ended again = Up("");
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_EQ(
      again.output,
      "baton-up: the cluster is being stopped; wait until baton-up status says that nothing is up, "
      "then start it again\n");
  const Ended status = Run("status");
  EXPECT_EQ(status.exit_status, 1);
  EXPECT_THAT(status.output, EndsWith("the cluster is being stopped\n"));
  kill(router, SIGKILL);
  Run("down");
  Program("router", kServer);  // the other one would be killed only after its limit of 35 s
  EXPECT_EQ(Up("--once").exit_status, 0);
}

TEST_F(UpCommandTest, AThirdSignalKillsWhatDoesNotStop) {
  Program("router",
          "#!/bin/sh\n[ $1 = --list-flags ] && exit\ntrap 'echo asked' TERM\n"
          "echo 'listening on 127.0.0.1:7'\nwhile :; do sleep 0.1; done\n");
  ASSERT_EQ(Up("--detach --router-drain-grace=1h").exit_status, 2) << "it lists no such flag";
  ASSERT_EQ(Up("--detach").exit_status, 0);
  const pid_t router = PidOf("router");
  // Two signals that follow each other too fast become one, so the test waits until each signal has
  // taken effect.
  for (const char* asked : {"asked\n", "asked\nasked\n"}) {
    kill(PidOf("supervisor"), SIGTERM);
    while (!absl::EndsWith(folder_.Read("state/log/router.log"), asked)) Run("status");
  }
  EXPECT_EQ(kill(router, 0), 0);
  EXPECT_EQ(Run("down").output, "stopped\n");
  EXPECT_TRUE(Gone(router));
}

TEST_F(UpCommandTest, FlagsArePassedOn) {
  Program("decode", R"(#!/bin/sh
case $1 in --list-flags) echo "threads value"; exit;; esac
echo "$@"
echo "listening on 127.0.0.1:0"
exec sleep 1000
)");
  ASSERT_EQ(Up("--detach --threads 3 --decode-threads=4").exit_status, 0);
  EXPECT_THAT(
      folder_.Read("state/log/decode-1.log"),
      AllOf(HasSubstr("--routers=127.0.0.1:7 --model="), HasSubstr("--threads=3 --threads=4\n")));
}

TEST_F(UpCommandTest, AProgramThatIsMissingIsNamed) {
  fs::remove(folder_.File("bin/baton-decode"));
  EXPECT_THAT(Up("--once").output, ContainsRegex("^baton-up: .*/bin/baton-decode is not there; "
                                                 "baton-up needs it beside itself\n"));
}

TEST_F(UpCommandTest, AnInstalledFolderServesItsDemoModel) {
  folder_.Write("share/baton/models/demo/config.json", "{}");
  // Without a command word, baton-up runs `up`.
  const Ended up = Run("--once --listen=127.0.0.1:7");
  EXPECT_EQ(up.exit_status, 0);
  EXPECT_THAT(up.output, HasSubstr("share/baton/models/demo at\n"));
}

TEST_F(UpCommandTest, HelpIsPerCommandAndMistakesExit2) {
  EXPECT_THAT(Run("--help").output, StartsWith("baton-up up [flags]: starts a router"));
  EXPECT_THAT(Run("status --help").output, StartsWith("baton-up status: "));
  EXPECT_THAT(Run("help down").output, StartsWith("baton-up down: "));
  EXPECT_THAT(Run("--version").output, ContainsRegex("^baton-up [0-9]+\\.[0-9]+\\.[0-9]+\n$"));
  for (const auto& [arguments, said] : std::vector<std::pair<std::string, std::string>>{
           {"frob", "unknown command 'frob': the commands are up, status and down"},
           {"down now", "down takes no flags, not 'now'"},
           {"up --colour", "unknown flag --colour of up"},
           {"up", "--model DIR is needed"}}) {
    const Ended ended = Run(arguments);
    EXPECT_EQ(ended.exit_status, 2) << arguments;
    EXPECT_THAT(ended.output, StartsWith(absl::StrCat("baton-up: ", said)));
  }
}

}  // namespace
}  // namespace baton
