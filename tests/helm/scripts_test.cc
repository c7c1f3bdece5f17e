// Tests of the shell scripts that the chart runs in a cluster, and of the script
// tests/helm/cluster. In these tests the scripts run with fake programs.

#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/scratch_folder.h"
#include "tests/goodput/testing/openai_server.h"
#include "tests/helm/helm_harness.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using HelmScriptTest = HelmTest;

// Returns the script that follows the text `begin` in `manifests`. The script's indentation is that
// of the last line of `begin`.
std::string ScriptBehind(const std::string& manifests, const std::string& begin) {
  const size_t at = manifests.find(begin);
  EXPECT_NE(at, manifests.npos) << "there is no script in " << manifests;
  if (at == manifests.npos) return "exit 99\n";
  const std::string indent(begin.rfind('-') - begin.rfind('\n', begin.size() - 2) + 1, ' ');
  std::string script;
  for (absl::string_view line :
       absl::StrSplit(absl::string_view(manifests).substr(at + begin.size()), '\n')) {
    if (!absl::ConsumePrefix(&line, indent)) break;
    absl::StrAppend(&script, line, "\n");
  }
  return script;
}

// Surroundings of the pod of `helm test`.
struct TestPod {
  std::string values = "defaults";  // Golden file that has the script.
  std::string http;                 // HOST:PORT of the HTTP server; empty: a fake one that answers.
  std::string api_keys;
};

// Runs the script of `helm test`, as the chart renders it. The fake client prints one line of
// `answers` per call. Its output begins with the API key that it got, if there is one.
Ended RunTestPod(const std::string& answers, int max_tokens, const std::string& want_ids,
                 const TestPod& pod = {}) {
  const ScratchFolder folder;
  folder.Write("script", ScriptBehind(Read(kGolden / (pod.values + ".yaml")),
                                      "      command: [sh, -euc]\n      args:\n        - |\n"));
  std::unique_ptr<OpenAiServer> server;
  if (pod.http.empty()) server = std::make_unique<OpenAiServer>();
  folder.Write("answers", answers);
  folder.WriteScript("baton-client",
                     "#!/bin/sh\n"
                     "[ \"$1\" = generate ] || exit 0\n"
                     "echo \"${BATON_API_KEY:-}\" >> \"$FOLDER/asked\"\n"
                     "sed -n \"$(wc -l < $FOLDER/asked)p\" $FOLDER/answers\n");
  Ended ended = RunShell(absl::StrCat(
      "FOLDER=", folder.path(), " PATH=", folder.path(),
      ":$PATH ROUTER=r PROMPT=p HTTP_ROUTER=", server == nullptr ? pod.http : server->address(),
      " COMPLETION='{\"prompt\":\"p\"}' API_KEYS='", pod.api_keys, "' MAX_TOKENS=", max_tokens,
      " WANT_IDS=", want_ids, " WANT_LINK=tcp WANT_LABELS=yes ", "sh -euc \"$(cat ",
      folder.File("script"), ")\""));
  if (!pod.api_keys.empty()) ended.output = Read(folder.File("asked")) + ended.output;
  return ended;
}

std::string AnswerOf(const std::string& ids, const std::string& link = "tcp") {
  return absl::StrCat(R"({"text":"t","token_ids":[)", ids, R"(],"timing_us":{"prefill":7},)",
                      R"("workers":{"prefill":"p:1","decode":"d:2"},"link":")", link,
                      "\",\"migrations\":0}\n");
}

TEST(TestPodScriptTest, TheTestPodTakesTheWholeAnswerAndNothingElse) {
  const std::string four = "11,22,33,44";
  Ended ended = RunTestPod(AnswerOf("11,22,33"), 3, four);
  EXPECT_EQ(ended.exit_status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("3 tokens as expected, p:1 -> tcp -> d:2"));
  EXPECT_EQ(RunTestPod(AnswerOf(four), 4, four).exit_status, 0);
  EXPECT_EQ(RunTestPod(AnswerOf(four), 9, four).exit_status, 0) << "it ends before its limit";
  EXPECT_EQ(RunTestPod(AnswerOf("11"), 1, four).exit_status, 0);
  for (const std::string wrong : {"11", "11,22", "11,22,34", "11,22,33,44", "1,22,33", ""}) {
    ended = RunTestPod(AnswerOf(wrong), 3, four);
    EXPECT_EQ(ended.exit_status, 1) << wrong << ": " << ended.output;
    EXPECT_THAT(ended.output,
                HasSubstr(wrong.empty() ? "FAILED: the answer has no tokens"
                                        : "FAILED: token ids " + wrong + "; expected 11,22,33\n"));
  }
  ended = RunTestPod(AnswerOf(four, "shm"), 4, four);
  EXPECT_THAT(ended.output, HasSubstr("labelled 'shm', expected 'tcp'"));
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(RunTestPod(AnswerOf(four, ""), 4, four).output, HasSubstr("the link has no label"));
  // If the expected tokens are not known, the script asks twice and compares the answers.
  ended = RunTestPod(AnswerOf("5,6") + AnswerOf("5,6"), 2, "");
  EXPECT_EQ(ended.exit_status, 0);
  EXPECT_THAT(ended.output, HasSubstr("2 tokens twice the same, p:1 -> tcp -> d:2"));
  EXPECT_THAT(RunTestPod(AnswerOf("5,6") + AnswerOf("5"), 2, "").output,
              HasSubstr("token ids 5; the first time they were 5,6"));
}

TEST(TestPodScriptTest, TheTestPodAsksOverHttp) {
  OpenAiServer server;
  Ended ended = RunTestPod(AnswerOf("11"), 1, "11", {.http = server.address()});
  EXPECT_EQ(ended.exit_status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr(server.address() + " answers over HTTP, too\n"));
  EXPECT_EQ(server.connections(), 2);
  server.lists_models = false;
  ended = RunTestPod(AnswerOf("11"), 1, "11", {.http = server.address()});
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("FAILED: over HTTP, 'GET /v1/models' is answered with "
                                            "the status '404', expected 200\n"),
                                  HasSubstr("no such path: /v1/models")));
  // Nobody listens at port 1.
  ended = RunTestPod(AnswerOf("11"), 1, "11", {.http = "127.0.0.1:1"});
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(ended.output, HasSubstr("FAILED: no answer over HTTP from 127.0.0.1:1\n"));
}

TEST(TestPodScriptTest, TheTestPodHasTheFirstKey) {
  OpenAiServer server;
  server.key = "sk-1%s$!";
  const TestPod pod = {.values = "multi-tenant",
                       .http = server.address(),
                       .api_keys = "\n# of the chat\n  sk-1%s$!\r\nsk-2\n"};
  Ended ended = RunTestPod(AnswerOf("11"), 1, "11", pod);
  EXPECT_EQ(ended.exit_status, 0) << ended.output;
  EXPECT_THAT(ended.output, testing::StartsWith("sk-1%s$!\n"));
  server.key = "sk-2";
  ended = RunTestPod(AnswerOf("11"), 1, "11", pod);
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(ended.output, HasSubstr("with the status '401', expected 200\n"));
  EXPECT_EQ(Count(ended.output, "sk-1"), 1) << "the log of the pod has the key";
}

// Pods wait until the Job has recorded that the model is complete. A waiting pod ends on SIGTERM,
// which the fake `sleep` sends to it. So no case depends on the machine's speed: the script ends
// with 0, or with 143 at the first time that it waits. The limit of 10 s is for broken scripts.
TEST_F(HelmScriptTest, PodsWaitForTheModelThatIsFetched) {
  const std::string pools = Template(
                                "--show-only templates/pools.yaml --set model.source=pvc "
                                "--set model.pvc.claimName=c --set model.fetch.name=org/model")
                                .output;
  const ScratchFolder folder;
  folder.Write("script", ScriptBehind(pools,
                                      "          command: [sh, -c]\n          args:\n"
                                      "            - |\n"));
  folder.WriteScript("sleep", "#!/bin/sh\nkill -TERM $PPID\n");
  constexpr int kWaits = 143;
  const std::string run =
      absl::StrCat("PATH=", folder.path(),
                   ":$PATH MODEL=org/model REVISION=main COMPLETE=", folder.File("complete.json"),
                   " timeout 10 sh -c \"$(cat ", folder.File("script"), ")\"");
  EXPECT_THAT(RunShell(run).output,
              HasSubstr("waiting until the Job has fetched org/model at main"));
  folder.Write("complete.json", R"({"commit": "12", "name": "org/model", "revision": "v2"})");
  EXPECT_EQ(RunShell(run).exit_status, kWaits) << "another revision";
  folder.Write("complete.json", R"({"commit": "12", "name": "org/model", "revision": "main"})");
  const Ended there = RunShell(run);
  EXPECT_EQ(there.exit_status, 0);
  EXPECT_EQ(there.output, "");
  // If one GGUF file was asked for, the folder may be complete with another one.
  const std::string file = "FILE=m-Q4_K_M.gguf ";
  EXPECT_THAT(RunShell(file + run).output,
              HasSubstr("has fetched org/model at main: m-Q4_K_M.gguf\n"));
  for (const auto& [name, status] :
       {std::pair("f16/m-Q4_K_M.gguf", kWaits), {"m-Q4_K_M.gguf", 0}}) {
    folder.Write("complete.json", absl::StrCat(R"({"name": "org/model", "files": {")", name,
                                               R"(": 5}, "revision": "main"})"));
    EXPECT_EQ(RunShell(file + run).exit_status, status) << name;
  }
}

constexpr int kOnceStopped = -1;

// Runs the script of the goodput Job with a fake tool. The tool's command `run` writes the text
// `run_file` to the run file, or nothing if the text is empty, and exits with `run_status`. If
// `run_status` is kOnceStopped, the script gets a SIGTERM during `run`, and `run` then exits with
// 130. The tool's command `report` exits with `report_status`. A run file of an earlier revision
// already exists.
Ended RunGoodputJob(const std::string& rendered, const std::string& run_file, int run_status,
                    int report_status) {
  const ScratchFolder folder;
  const std::string script =
      ScriptBehind(rendered, "          command: [sh, -uc]\n          args:\n            - |\n");
  folder.Write("script", absl::StrReplaceAll(script, {{"/report/", folder.File("")}}));
  folder.Write("run.json", "earlier");
  folder.WriteScript("baton-client", "#!/bin/sh\n");
  const std::string run_file_made =
      run_file.empty() ? ""
                       : absl::StrCat("printf ", run_file, " > ", folder.File("run.json"), "\n");
  const std::string end = run_status != kOnceStopped
                              ? absl::StrCat("exit ", run_status, "\n")
                              : absl::StrCat("trap 'exit 130' TERM\n: > ", folder.File("begun"),
                                             "\nwhile :; do sleep 0.02; done\n");
  folder.WriteScript("baton-goodput", absl::StrCat("#!/bin/sh\n"
                                                   "echo \"asked $*\"\n"
                                                   "if [ \"$1\" = report ]; then cp \"$2\" ",
                                                   folder.File("report.html"), "; exit ",
                                                   report_status, "; fi\n", run_file_made, end));
  const std::string run = absl::StrCat("PATH=", folder.path(), ":$PATH ROUTER=r sh -uc \"$(cat ",
                                       folder.File("script"), ")\" goodput --rate=7");
  Ended ended =
      RunShell(run_status != kOnceStopped
                   ? run
                   : absl::StrCat(run, " & job=$!; until [ -e ", folder.File("begun"),
                                  " ]; do sleep 0.02; done; sleep 0.1; kill $job; wait $job"));
  absl::StrReplaceAll({{folder.path(), "/report"}}, &ended.output);
  absl::StrAppend(&ended.output, "page: ", Read(folder.File("report.html")), "\n");
  return ended;
}

TEST_F(HelmScriptTest, TheLoadLeavesAPageAndItsOwnStatus) {
  const std::string job = Template(
                              "--show-only templates/goodput-job.yaml "
                              "--set goodput.enabled=true --set goodput.report.claimName=c")
                              .output;
  Ended ended = RunGoodputJob(job, "measured", 0, 0);
  EXPECT_EQ(ended.exit_status, 0);
  EXPECT_EQ(ended.output,
            "asked run --endpoint=r --out=/report/run.json --rate=7\n"
            "asked report /report/run.json --out=/report/report.html\n"
            "page: measured\n");
  // Status 143 means that SIGTERM ended the tool before it handled signals.
  for (const int status : {1, 3, 130, 143}) {
    ended = RunGoodputJob(job, "measured", status, 0);
    EXPECT_EQ(ended.exit_status, status);
    EXPECT_THAT(ended.output, HasSubstr("page: measured\n"));
  }
  EXPECT_EQ(RunGoodputJob(job, "measured", 0, 1).exit_status, 1) << "no page is no success";
  EXPECT_EQ(RunGoodputJob(job, "measured", 3, 1).exit_status, 3);
  ended = RunGoodputJob(job, "begun", kOnceStopped, 0);
  EXPECT_EQ(ended.exit_status, 130) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("page: begun\n"));
  ended = RunGoodputJob(job, "", 2, 0);
  EXPECT_EQ(ended.exit_status, 2);
  EXPECT_THAT(ended.output, AllOf(Not(HasSubstr("earlier")), Not(HasSubstr("asked report"))));
  const std::string into_log =
      Template("--show-only templates/goodput-job.yaml --set goodput.enabled=true").output;
  EXPECT_THAT(RunGoodputJob(into_log, "measured", 0, 0).output, HasSubstr("\nrun file:\nmeasured"));
}

// The fake cluster already has a namespace chat-load. The script did not make it and must not
// remove it.
TEST(DrillScriptTest, RemovesTheNamespacesThatItMadeAndNoOther) {
  const ScratchFolder folder;
  folder.WriteScript("kubectl", absl::StrCat("#!/bin/sh\n"
                                             "echo \"$*\" >> ",
                                             folder.File("asked"),
                                             "\n[ \"$*\" != \"create namespace chat-load\" ]\n"));
  const Ended ended = RunShell(absl::StrCat(
      "TMPDIR=", folder.path(), " KUBECTL=", folder.File("kubectl"), " HELM=true ",
      BATON_SOURCE_DIR, "/tests/helm/cluster --from none --no-build --namespace chat"));
  const std::string asked = Read(folder.File("asked"));
  EXPECT_EQ(ended.exit_status, 1) << ended.output;
  EXPECT_THAT(asked,
              AllOf(HasSubstr("create namespace chat\n"), HasSubstr("create namespace chat-load\n"),
                    HasSubstr("\ndelete namespace chat --ignore-not-found")));
  EXPECT_EQ(Count(asked, "delete namespace"), 1) << asked;
}

// Runs the script in a new git repository with four commits. The fake cluster refuses to create
// namespaces. So the script ends after it has printed the release that it would upgrade from.
TEST(DrillScriptTest, UpgradesFromTheLastReleaseUnlessToldOtherwise) {
  if (RunShell("git --version && tar --version").exit_status != 0)
    GTEST_SKIP() << "no git or no tar here";
  const ScratchFolder folder;
  folder.WriteScript("kubectl", "#!/bin/sh\n[ \"$1\" != create ]\n");
  folder.Write("helm/Chart.yaml", "");
  folder.Write("helm/examples/one-node-cpu.yaml", "");
  folder.Write("tests/helm/cluster", Read(BATON_SOURCE_DIR "/tests/helm/cluster"));
  const auto commit = [&](const std::string& version, const std::string& subject) {
    folder.Write("CMakeLists.txt",
                 absl::StrCat("project(baton VERSION ", version, ")\n# ", subject));
    const Ended ended =
        RunShell(absl::StrCat("cd ", folder.path(),
                              " && git init --quiet . && git add . && git -c user.name=a "
                              "-c user.email=a@example.com commit --quiet --no-gpg-sign -m '",
                              subject, "'"));
    ASSERT_EQ(ended.exit_status, 0) << ended.output;
  };
  const auto drill = [&](const std::string& flags) {
    return RunShell(absl::StrCat("TMPDIR=", folder.path(), " KUBECTL=", folder.File("kubectl"),
                                 " HELM=true bash ", folder.File("tests/helm/cluster"),
                                 " --no-build ", flags))
        .output;
  };
  commit("0.1.0", "the first");
  commit("0.1.0", "the second");
  EXPECT_THAT(drill(""), HasSubstr("--from: there is no commit '0dcf13c' here (a shallow clone"));
  commit("0.2.0", "the version after");
  commit("0.2.0", "the fourth");
  EXPECT_THAT(drill(""), AllOf(HasSubstr(" the second\n"), HasSubstr("enforce the restricted")));
  EXPECT_THAT(drill("--from HEAD"), HasSubstr(" the fourth\n"));
  EXPECT_THAT(drill("--from none"), Not(HasSubstr("to upgrade from")));
  EXPECT_THAT(drill("--from nonsense"), HasSubstr("there is no commit 'nonsense' here"));
}

}  // namespace
}  // namespace baton
