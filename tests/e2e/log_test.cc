// Tests of the logs that the programs write.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/host_port.h"
#include "common/base/json.h"
#include "common/base/scratch_folder.h"
#include "common/rpc/dial.h"
#include "common/rpc/rpc_server.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/process.h"
#include "tests/e2e/e2e_test.h"
#include "tests/e2e/served_folder.h"

namespace baton {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::Pair;
using testing::StartsWith;
using testing::UnorderedElementsAre;

// A request id that would start a new line in the text format and in the JSON format of the log, if
// it were not escaped.
constexpr char kEvilId[] =
    "r1\n2026-01-01T00:00:00Z E baton-router stopped\r\n{\"level\":\"error\"}\x1b[2J";

// Events that belong to one request. Other events belong to no request.
const std::set<std::string> kEventsOfARequest = {"request_accepted", "request_finished",
                                                 "back_to_prefill",  "outgrown",
                                                 "prompt_ended",     "sequence_ended"};

v1::GenerateRequest RequestNamed(const std::string& id) {
  v1::GenerateRequest request = TokenRequest({5, 6, 7}, 4);
  request.set_request_id(id);
  return request;
}

// Returns all lines that contain `text` in the log of a process that has ended.
std::vector<std::string> Lines(const Process& process, const std::string& text = "") {
  std::vector<std::string> found;
  for (size_t i = 0; i < process.log().size(); ++i) {
    const auto line = process.log().Line(i, absl::ZeroDuration());
    if (line.ok() && absl::StrContains(*line, text)) found.push_back(*line);
  }
  return found;
}

// Returns the lines of standard output of a process that has ended.
std::vector<std::string> OutputLines(Process& process) {
  std::vector<std::string> lines;
  for (auto line = process.WaitForLine("", kSoon); line.ok(); line = process.WaitForLine("", kSoon))
    lines.push_back(*line);
  return lines;
}

// Waits for the first event named `event` in a JSON log. Returns null if none comes in time.
json WaitForEvent(const Process& process, const std::string& event) {
  const auto line = process.log().WaitFor(absl::StrCat("\"event\":\"", event, "\""), kSoon);
  EXPECT_TRUE(line.ok()) << line.status();
  return line.ok() ? json::parse(*line, nullptr, false) : json();
}

void StopNow(Process& process) {
  process.Signal(SIGTERM);
  const absl::StatusOr<int> status = process.Wait(kSoon);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 0);
  EXPECT_TRUE(process.log().WaitFor("stopped", kSoon).ok()) << absl::StrJoin(Lines(process), "\n");
}

TEST(LogTest, TextIsOneLineARequestWhateverItsId) {
  auto cluster = Cluster::Start({.decode_flags = {"--log-level=debug"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_TRUE(Generate((*cluster)->stub(), RequestNamed(kEvilId)).status.ok());
  EXPECT_FALSE(Generate((*cluster)->stub(), TokenRequest({1 << 30}, 4)).status.ok());
  StopNow((*cluster)->decode(0));
  StopNow((*cluster)->router());
  const std::string id =
      R"(request_id="r1\n2026-01-01T00:00:00Z E baton-router stopped\r\n{\"level\":\"error\"}\033[2J" )";
  const std::vector<std::string> finished = Lines((*cluster)->router(), " request_finished ");
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_THAT(finished[0],
              MatchesRegex("[0-9-]{10}T[0-9:]{8}\\.[0-9]{6}Z I baton-router request_finished .*"));
  EXPECT_THAT(finished[0], HasSubstr(" request_finished " + id));
  EXPECT_THAT(finished[0], HasSubstr(" code=OK "));
  EXPECT_THAT(finished[0], HasSubstr(" mode=disaggregated prompt_tokens=3 generated_tokens=4 "));
  EXPECT_THAT(finished[1], HasSubstr(" code=INVALID_ARGUMENT "));
  EXPECT_THAT(finished[1], HasSubstr("1073741824"));
  EXPECT_EQ(Lines((*cluster)->router(), "E baton-router stopped").size(), 1u) << "within the id";
  // Only the decode worker's flags ask for debug lines, so only its log has them.
  const std::vector<std::string> ended = Lines((*cluster)->decode(0), " sequence_ended ");
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0], HasSubstr(" D baton-decode sequence_ended " + id));
  StopNow((*cluster)->prefill(0));
  EXPECT_TRUE(Lines((*cluster)->prefill(0), "prompt_ended").empty());
}

// Standard error is a pipe that nobody reads, as with a log collector that has stopped. The lines
// of the requests fill it many times.
TEST(LogTest, ARouterWhoseLogNobodyReadsGoesOn) {
  const ScratchFolder folder;
  const auto router =
      Process::Start({"/bin/sh", "-c", R"(mkfifo "$0" && exec 3<>"$0" && exec "$@" 2>"$0")",
                      folder.File("pipe"), BATON_BINARY_DIR "/baton-router", "--listen=127.0.0.1:0",
                      absl::StrCat("--model=", kDemoModel)},
                     folder.File("log"));
  ASSERT_TRUE(router.ok()) << router.status();
  const auto address = (*router)->WaitForLine("listening on ", kSoon);
  ASSERT_TRUE(address.ok()) << address.status();
  const auto stub = v1::Inference::NewStub(Dial(*address));
  v1::GenerateRequest request = RequestNamed(std::string(1000, 'x'));
  request.mutable_token_ids()->set_ids(0, 1 << 30);  // refused, with a line in the log
  for (int i = 0; i < 1000; ++i) {
    const absl::Status status = Generate(*stub, request, kSoon).status;
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << i << ": " << status;
  }
  (*router)->Signal(SIGTERM);
  EXPECT_EQ((*router)->Wait(kSoon).value_or(-1), 0);
}

TEST(LogTest, JsonIsOneObjectALine) {
  const ScratchFolder folder;
  const auto start = [&](const std::string& name, std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {absl::StrCat(BATON_BINARY_DIR, "/baton-", name), "--listen=127.0.0.1:0",
                  absl::StrCat("--model=", kDemoModel), "--log-format=json", "--log-level=debug"});
    auto process = Process::Start(flags, folder.File(name + ".log"));
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  };
  const std::string metrics = "--metrics-listen=127.0.0.1:0";
  const std::unique_ptr<Process> router = start("router", {metrics});
  const std::string address = WaitForEvent(*router, "listening").value("address", "");
  ASSERT_THAT(address, StartsWith("127.0.0.1:"));
  const std::vector<std::string> worker = {absl::StrCat("--routers=", address), "--threads=1",
                                           metrics};
  const auto prefill = start("prefill", worker), decode = start("decode", worker);
  const auto stub = v1::Inference::NewStub(Dial(address));
  // This request waits until the workers are paired.
  const Answer answer = Generate(*stub, RequestNamed(kEvilId));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  for (Process* process : {decode.get(), prefill.get(), router.get()}) StopNow(*process);
  std::map<std::string, int> told;  // Number of log lines about the request, for each event.
  for (const auto& [name, process] :
       {std::pair{"baton-router", router.get()}, std::pair{"baton-prefill", prefill.get()},
        std::pair{"baton-decode", decode.get()}}) {
    for (const char* event : {"listening", "metrics"}) {
      EXPECT_THAT(WaitForEvent(*process, event).value("address", ""), StartsWith("127.0.0.1:"));
    }
    EXPECT_THAT(OutputLines(*process), IsEmpty()) << name;
    const std::vector<std::string> lines = Lines(*process);
    EXPECT_GE(lines.size(), 3u);
    for (const std::string& line : lines) {
      const json object = json::parse(line, nullptr, false);
      ASSERT_TRUE(object.is_object()) << line;
      EXPECT_THAT(object.value("time", ""), MatchesRegex("[0-9-]{10}T[0-9:]{8}\\.[0-9]{6}Z"))
          << line;
      EXPECT_THAT(object.value("level", ""), MatchesRegex("debug|info|warn|error")) << line;
      EXPECT_EQ(object.value("component", ""), name);
      const std::string event = object.value("event", "");
      EXPECT_THAT(event, MatchesRegex("[a-z_]+")) << line;
      ASSERT_EQ(object.contains("request_id"), kEventsOfARequest.contains(event)) << line;
      if (!kEventsOfARequest.contains(event)) continue;
      EXPECT_EQ(object["request_id"], kEvilId) << line;
      ++told[event];
      if (event != "request_finished") continue;
      EXPECT_EQ(object["code"], "OK");
      EXPECT_EQ(object["generated_tokens"], 4);
      EXPECT_EQ(object["total_us"], answer.summary.timing().total_us());
      EXPECT_EQ(object["prefill_us"], answer.summary.timing().prefill_us());
      EXPECT_EQ(object["link"], answer.summary.link());
    }
  }
  EXPECT_THAT(told, UnorderedElementsAre(Pair("request_accepted", 1), Pair("request_finished", 1),
                                         Pair("prompt_ended", 1), Pair("sequence_ended", 1)));
}

TEST(LogTest, AMemoryPlanIsATableOrAnEvent) {
  for (const bool as_json : {false, true}) {
    auto worker = Process::Start(
        {TestWorkerProgram("decode", BATON_BINARY_DIR), "--listen=127.0.0.1:0",
         absl::StrCat("--model=", kDemoModel), "--routers=127.0.0.1:1", "--backend=cuda-emulated",
         "--kv-bytes=16777216", absl::StrCat("--log-format=", as_json ? "json" : "text")},
        "/dev/null");
    ASSERT_TRUE(worker.ok()) << worker.status();
    ASSERT_TRUE((*worker)->log().WaitFor("listening", kSoon).ok());
    StopNow(**worker);
    const std::vector<std::string> output = OutputLines(**worker);
    if (!as_json) {
      EXPECT_THAT(output, Contains(StartsWith("memory of ")));
      EXPECT_THAT(output, Contains(StartsWith("  together ")));
      EXPECT_THAT(output, Contains(StartsWith("listening on 127.0.0.1:")));
      continue;
    }
    EXPECT_THAT(output, IsEmpty());
    for (const std::string& line : Lines(**worker))
      EXPECT_TRUE(json::parse(line, nullptr, false).is_object()) << line;
    const json plan = WaitForEvent(**worker, "memory_plan");
    EXPECT_LE(plan.value("kv_pool_bytes", 0), 16777216 + (1 << 20));
    EXPECT_GT(plan.value("kv_pool_bytes", 0), 0);
    EXPECT_GT(plan.value("together_bytes", 0),
              plan.value("kv_pool_bytes", 0) + plan.value("weights_bytes", 0));
    EXPECT_GT(plan.value("usable_bytes", 0), plan.value("together_bytes", 0));
  }
}

TEST(LogTest, ARefusalToStartIsAnEventToo) {
  for (const char* flag : {"--mode=best", "--drain-grace=long", "--no-such-flag"}) {
    auto router =
        Process::Start({absl::StrCat(BATON_BINARY_DIR, "/baton-router"),
                        absl::StrCat("--model=", kDemoModel), flag, "--log-format", "json"},
                       "/dev/null");
    ASSERT_TRUE(router.ok()) << router.status();
    const auto status = (*router)->Wait(kSoon);
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(*status, 2) << flag;
    const json refused = WaitForEvent(**router, "refused_to_start");
    EXPECT_THAT(refused.value("because", ""), HasSubstr(absl::StrCat(flag).substr(2, 4))) << flag;
    EXPECT_EQ((*router)->log().size(), 1u) << flag;
    EXPECT_THAT(OutputLines(**router), IsEmpty()) << flag;
  }
}

// The gRPC library itself writes messages about some errors. They must become events in the log.
TEST(LogTest, WhatGrpcSaysIsAnEventToo) {
  setenv("GRPC_TRACE", "no_such_tracer", 1);  // Makes gRPC log an error: the tracer is unknown.
  auto router = Process::Start(
      {absl::StrCat(BATON_BINARY_DIR, "/baton-router"), absl::StrCat("--model=", kDemoModel),
       "--listen=127.0.0.1:0", "--log-format=json"},
      "/dev/null");
  unsetenv("GRPC_TRACE");
  ASSERT_TRUE(router.ok()) << router.status();
  EXPECT_THAT(WaitForEvent(**router, "grpc").value("says", ""), HasSubstr("no_such_tracer"));
  for (const std::string& line : Lines(**router)) EXPECT_TRUE(json::accept(line)) << line;
}

// A program finds out that its port is taken before it loads anything, so its log has only this
// message.
TEST(LogTest, AnAddressThatCannotBeUsedIsTheFirstThingSaid) {
  const auto taken = RpcServer::Start({.listen = "127.0.0.1:0"});
  ASSERT_TRUE(taken.ok()) << taken.status();
  for (const char* program : {"baton-router", "baton-prefill", "baton-decode"}) {
    auto process = Process::Start(
        {absl::StrCat(BATON_BINARY_DIR, "/", program), absl::StrCat("--model=", kDemoModel),
         absl::StrCat("--listen=", (*taken)->address())},
        "/dev/null");
    ASSERT_TRUE(process.ok()) << process.status();
    const auto status = (*process)->Wait(kSoon);
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(*status, 2);
    ASSERT_TRUE((*process)->log().WaitFor("can't listen on", kSoon).ok());
    EXPECT_THAT(Lines(**process),
                ElementsAre(StartsWith(absl::StrCat(
                    program, ": --listen: can't listen on ", (*taken)->address(), ": port ",
                    PortOf((*taken)->address()), " is taken by another program"))));
  }
}

// The log names a request that loses its worker and goes back to prefill.
TEST(LogTest, ARequestThatGoesBackToPrefillIsNamed) {
  auto cluster = Cluster::Start({});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  v1::GenerateRequest request = RequestNamed("moves");
  request.mutable_sampling()->set_max_tokens(1000);
  bool killed = false;
  const Answer moved =
      Generate((*cluster)->stub(), request, absl::Seconds(60), [&](const v1::Token&) {
        if (std::exchange(killed, true)) return;
        (*cluster)->decode(0).Signal(SIGKILL);
        EXPECT_TRUE((*cluster)->RestartDecode(0).ok());
      });
  EXPECT_TRUE(moved.status.ok()) << moved.status;
  StopNow((*cluster)->router());
  const std::vector<std::string> lines = Lines((*cluster)->router(), " back_to_prefill ");
  EXPECT_THAT(lines, Not(IsEmpty()));
  EXPECT_THAT(lines, Each(HasSubstr(" I baton-router back_to_prefill request_id=moves phase=")));
}

TEST(LogTest, ARequestThatOutgrowsItsRotaryTableIsNamed) {
  // The model's rotary table changes at 32 tokens.
  const ServedFolder folder("phi3_five_crossing_f32");
  const std::vector<std::string> worker = {"--kv-bytes=1048576"};
  auto cluster = Cluster::Start({.model = folder.path(),
                                 .router_flags = {"--log-level=debug"},
                                 .prefill_flags = worker,
                                 .decode_flags = worker});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  v1::GenerateRequest request = RequestNamed("grows");
  request.mutable_sampling()->set_max_tokens(40);
  EXPECT_TRUE(Generate((*cluster)->stub(), request).status.ok());
  StopNow((*cluster)->router());
  const std::vector<std::string> lines = Lines((*cluster)->router(), " outgrown ");
  EXPECT_THAT(lines, ElementsAre(HasSubstr(" D baton-router outgrown request_id=grows tokens=")));
}

TEST(LogTest, WhatIsBelowTheLevelIsNotWritten) {
  auto router =
      Process::Start({absl::StrCat(BATON_BINARY_DIR, "/baton-router"), "--listen=127.0.0.1:0",
                      absl::StrCat("--model=", kDemoModel), "--log-level=error"},
                     "/dev/null");
  ASSERT_TRUE(router.ok()) << router.status();
  const auto address = (*router)->WaitForLine("listening on ", kSoon);
  ASSERT_TRUE(address.ok()) << address.status();
  const auto stub = v1::Inference::NewStub(Dial(*address));
  EXPECT_FALSE(Generate(*stub, TokenRequest({1 << 30}, 4)).status.ok());
  (*router)->Signal(SIGTERM);
  EXPECT_TRUE((*router)->Wait(kSoon).ok());
  EXPECT_EQ((*router)->log().size(), 0u);
}

}  // namespace
}  // namespace baton
