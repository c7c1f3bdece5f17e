#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "common/base/scratch_folder.h"
#include "tests/goodput/results/run_file.h"
#include "tests/goodput/results/verdict.h"
#include "tests/goodput/testing/goodput_program.h"
#include "tests/goodput/testing/openai_server.h"
#include "tests/goodput/testing/timed_router.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string LoadArguments(const TimedRouter& router) {
  return absl::StrCat("run --endpoint=", router.address(),
                      " --connect-timeout=30s --arrivals=uniform --rate=50 --prompt-tokens=8 "
                      "--output-tokens=5 --warmup=100ms --duration=400ms ");
}

TEST(RunCommandTest, WritesTheRunAndPrintsTheVerdict) {
  TimedRouter router;
  router.ttft = absl::Milliseconds(20);
  const ScratchFolder folder;
  const std::string slo = folder.Write("slo.json", R"({"name": "easy", "ttft": "999x"})");
  const Ended ended =
      Goodput(LoadArguments(router) + "--mode= --slo=" + slo + " --out=" + folder.File("run.json") +
              " --expect-write=" + folder.File("tokens"));
  // On a very busy machine the tool may send requests late. It must then exit with 3.
  EXPECT_THAT(ended.exit_status, testing::AnyOf(0, 3)) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("20 of 20 were good, attainment 100.00 %"));
  const RunResult run = ReadRunFile(folder.File("run.json")).value();
  EXPECT_EQ(ComputeVerdict(run).good, 20u);
  EXPECT_EQ(run.spec.at("rate"), "50");
  ASSERT_TRUE(run.unloaded.has_value());
  EXPECT_NEAR(*run.targets.ttft_s, 999 * run.unloaded->ttft_s, 1e-6);
  EXPECT_GE(run.unloaded->ttft_s, 0.02);
  EXPECT_THAT(Goodput("verdict " + folder.File("run.json")).output,
              HasSubstr("20 of 20 were good"));

  EXPECT_THAT(Goodput("verdict " + folder.File("run.json") +
                      " --slo=" + folder.Write("tight", R"({"ttft": "19ms"})"))
                  .output,
              HasSubstr("0 of 20 were good"));
  // A Python program that shares no code with the tool computes the same figures from the records.
  EXPECT_EQ(std::system(absl::StrCat("python3 " BATON_SOURCE_DIR
                                     "/tests/goodput/independent_client.py recompute ",
                                     folder.File("run.json"))
                            .c_str()),
            0);

  const std::string expect = LoadArguments(router) + "--expect=" + folder.File("tokens");
  const Ended same = Goodput(expect);
  EXPECT_THAT(same.exit_status, testing::AnyOf(0, 3)) << same.output;
  EXPECT_THAT(same.output, HasSubstr("24 of 24 equal, 0 different, 0 failed"));
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) -> grpc::Status {
    if (TimedRouter::IndexOf(request) == 3) return {grpc::StatusCode::UNAVAILABLE, "no"};
    v1::GenerateRequest other = request;
    if (TimedRouter::IndexOf(request) == 9) other.mutable_sampling()->set_seed(1);
    return router.Answer(context, other, writer, request.sampling().max_tokens());
  };
  const Ended differs = Goodput(expect);
  EXPECT_EQ(differs.exit_status, 1);
  EXPECT_THAT(differs.output, AllOf(HasSubstr("22 of 24 equal, 1 different, 1 failed"),
                                    HasSubstr("request 9, token 0: expected ")));
  // A run of another load does not have the expected tokens.
  EXPECT_EQ(Goodput(expect + " --seed=2").exit_status, 1);
}

TEST(RunCommandTest, AServerWithOpenAisApiIsDrivenByHttp) {
  OpenAiServer server;
  const ScratchFolder folder;
  const std::string run = absl::StrCat(
      "run --openai=", server.url(),
      "/v1 --connect-timeout=30s --arrivals=uniform --rate=50 --prompt-tokens=8 --output-tokens=5 "
      "--warmup=100ms --duration=400ms --out=",
      folder.File("run.json"));
  const Ended written = Goodput(run + " --expect-write=" + folder.File("tokens"));
  EXPECT_THAT(written.exit_status, testing::AnyOf(0, 3)) << written.output;
  EXPECT_THAT(written.output, HasSubstr("20 of 20 were good, attainment 100.00 %"));
  const Ended same = Goodput(run + " --expect=" + folder.File("tokens"));
  EXPECT_THAT(same.exit_status, testing::AnyOf(0, 3)) << same.output;
  EXPECT_THAT(same.output, HasSubstr("24 of 24 equal, 0 different, 0 failed"));
  const RunResult result = ReadRunFile(folder.File("run.json")).value();
  EXPECT_EQ(result.spec.at("openai"), server.url() + "/v1");
  EXPECT_EQ(result.server.model, "served");
}

TEST(RunCommandTest, InterruptedItWritesWhatThereIsAndSaysSo) {
  TimedRouter router;
  const ScratchFolder folder;
  Mutex mutex;
  CondVar changed;
  int requests = 0;
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) {
    {
      MutexLock lock(&mutex);
      ++requests;
      changed.SignalAll();
    }
    if (TimedRouter::IndexOf(request) % 3 == 0) return router.Hang(context);
    return router.Answer(context, request, writer, 5);
  };
  std::thread interrupter;
  const Ended ended = Goodput(
      LoadArguments(router) + "--duration=1h --out=" + folder.File("run.json"), [&](pid_t pid) {
        interrupter = std::thread([&, pid] {
          MutexLock lock(&mutex);
          while (requests < 30) changed.Wait(&mutex);
          kill(pid, SIGINT);
        });
      });
  interrupter.join();
  EXPECT_EQ(ended.exit_status, 130) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("PARTIAL: the load was stopped before its end"));
  const RunResult run = ReadRunFile(folder.File("run.json")).value();
  EXPECT_TRUE(run.partial);
  EXPECT_GE(run.records.size(), 30u);
  EXPECT_LT(run.window_end_s, 3600);
  uint32_t stopped = 0;
  for (const RequestRecord& record : run.records) {
    stopped += record.outcome == Outcome::kStopped;
    EXPECT_FALSE(record.measured && record.outcome == Outcome::kStopped);
  }
  EXPECT_GE(stopped, 5u);
}

TEST(RunCommandTest, AVerdictByOtherTargetsIsCheckedAnewAndExitsAsTheRunWould) {
  const ScratchFolder folder;
  RunResult run{
      .targets = {.name = "slow", .ttft_s = 15}, .window_begin_s = 1, .window_end_s = 101};
  for (uint32_t i = 0; i < 100; ++i) {
    run.records.push_back({.index = i,
                           .measured = true,
                           .scheduled_s = 1.0 + i,
                           .sent_s = 1.3 + i,
                           .ended_s = 1.4 + i,
                           .token_s = {1.4 + i},
                           .prompt_tokens = 8,
                           .wanted_tokens = 1,
                           .outcome = Outcome::kCompleted,
                           .status = "OK"});
  }
  const auto verdict = [&](const std::string& flags) {
    EXPECT_TRUE(WriteRunFile(folder.File("run.json"), run).ok());
    return Goodput("verdict " + folder.File("run.json") + flags);
  };
  EXPECT_EQ(verdict("").exit_status, 0);
  const Ended tight = verdict(" --slo=" + folder.Write("tight", R"({"ttft": "450ms"})"));
  EXPECT_EQ(tight.exit_status, 3);
  EXPECT_THAT(tight.output, AllOf(HasSubstr("INVALID: the tool itself was late"),
                                  HasSubstr("100 of 100 were good")));
  run.expect = ExpectResult{.file = "tokens", .compared = 100, .equal = 99, .different = 1};
  EXPECT_EQ(verdict("").exit_status, 1);
  run.partial = true;
  EXPECT_EQ(verdict("").exit_status, 130);
}

TEST(RunCommandTest, WhatCanNotBeUsedIsNamed) {
  const ScratchFolder folder;
  const std::string some = "run --endpoint=127.0.0.1:1 --prompt-tokens=8 --output-tokens=5 ";
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Ended ended = Goodput(arguments);
    EXPECT_EQ(ended.exit_status, 2) << arguments << "\n" << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(why)) << arguments;
    EXPECT_THAT(ended.output, testing::StartsWith("baton-goodput: ")) << arguments;
  };
  refused("", "a command is needed: run");
  refused("walk", "unknown command 'walk'");
  refused(some + "word", "'word' is one word too many");
  refused("verdict x --rate=1", "--rate is not a flag of verdict");
  refused(some, "--rate is needed");
  for (const char* rate : {"0", "-1", "nan", "inf", "1e6"})
    refused(some + "--rate=" + rate, "requests per second");
  refused(some + "--rate=fast", "'fast' is not a valid value of --rate");
  refused(some + "--rate=9000 --duration=10m", "more than 1000000 requests");
  refused(some + "--rate=1 --prompt-tokens=many", "'many' is not a length");
  refused(some + "--rate=1 --arrivals=bursty", "it takes poisson, gamma");
  refused(some + "--rate=1 --cv=3", "--cv has no meaning without --arrivals=gamma");
  refused(some + "--rate=1 --mode=best", "the modes are disaggregated, colocated and auto");
  refused(some + "--rate=1 --slo=" + folder.Write("slo", "{\n\"tfft\": \"1s\"\n}"),
          "slo:2: tfft: no such key");
  refused(some + "--rate=1 --slo=/none", "/none");
  refused(some + "--trace=" + folder.Write("trace", "TIMESTAMP,ContextTokens,GeneratedTokens\nx\n"),
          "trace:2: ");
  const std::string trace = folder.Write("azure",
                                         "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                         "2023-11-16 18:15:46.6805900,374,44\n"
                                         "2023-11-16 18:15:50.9951690,396,109\n");
  refused(some + "--rate=0 --trace=" + trace, "--rate=0 is not 0.0001 to 10000");
  refused(some + "--rate=-1 --trace=" + trace, "the rate is -1; it takes 0.0001 to 10000");
  refused(some + "--rate=1 --out=/none/run.json", "/none/run.json: No such file");
  refused(some + "--rate=1 --expect=/none", "--expect-write");
  refused(some + "--rate=1 --expect=a --expect-write=b", "give one of them");
  refused(some + "--rate=1 --metrics-url=host:1", "'host:1' is not http://");
  refused(some + "--rate=1 --channels=0", "0 connections");
  refused(some + "--rate=1 --openai-model=a", "--openai-model has no meaning without --openai");
  const std::string openai = "run --prompt-tokens=8 --output-tokens=5 --rate=1 --openai=";
  refused(openai + "https://h/v1", "--openai: 'https://h/v1' is an https URL; only http");
  refused(openai + "h:1", "--openai: 'h:1' is not http://HOST[:PORT][/PATH]");
  refused(openai + "http://h:1 --endpoint=h", "--endpoint is 'h'; it takes HOST:PORT");
  refused(openai + "http://h:1 --mode=auto", "--mode has no meaning with --openai: only a router");
  refused(openai + "http://h:1 --model=a", "name the model with --openai-model");
  refused(openai + "http://h:1 --channels=2", "each open request has a connection of its own");
  refused("run --prompt-tokens=8 --output-tokens=5 --rate=1 --endpoint=http://h:1",
          "for a URL use --openai");
  const std::string conversations = folder.Write("c.json", R"([{"conversations": []}, {"id": 1}])");
  refused("run --rate=1 --prompts=" + conversations,
          "c.json: conversation 1: it has no list `conversations`");
  const Ended broken = Goodput("verdict " + folder.Write("broken.json", "{"));
  EXPECT_EQ(broken.exit_status, 1);
  EXPECT_THAT(broken.output, HasSubstr("broken.json: not JSON"));
}

TEST(RunCommandTest, AnEndpointThatIsNotThereIsNamed) {
  std::string address;
  {
    TimedRouter router;
    address = router.address();
  }
  const Ended ended = Goodput(absl::StrCat("run --rate=1 --prompt-tokens=8 --output-tokens=5 ",
                                           "--connect-timeout=200ms --endpoint=", address));
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(ended.output, HasSubstr("can't reach the router at " + address + " within 200ms"));
}

}  // namespace
}  // namespace baton
