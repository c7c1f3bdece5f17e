#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/mutex.h"
#include "common/base/scratch_folder.h"
#include "tests/goodput/load/load.h"
#include "tests/goodput/load/openai_connection.h"
#include "tests/goodput/load/openai_status.h"
#include "tests/goodput/load/unloaded.h"
#include "tests/goodput/results/expect_file.h"
#include "tests/goodput/results/run_file.h"
#include "tests/goodput/results/verdict.h"
#include "tests/goodput/testing/openai_server.h"
#include "tests/goodput/testing/timed_router.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::Lt;
using testing::Not;

LoadSpec LoadAt(const std::string& endpoint) {
  LoadSpec spec;
  spec.endpoint = endpoint;
  spec.workload = {.arrivals = {.kind = ArrivalKind::kUniform, .rate = 100},
                   .prompt_tokens = "uniform:4,40",
                   .output_tokens = "11"};
  spec.warmup = absl::ZeroDuration();
  spec.duration = absl::Milliseconds(325);
  spec.tail = false;
  spec.request_timeout = absl::Seconds(60);
  spec.connect_timeout = absl::Seconds(30);
  return spec;
}

RunResult ResultOf(const LoadSpec& spec) {
  StopFlag stop;
  absl::StatusOr<RunResult> run = RunLoad(spec, &stop, nullptr);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : RunResult();
}

absl::Status WhyNot(const LoadSpec& spec) {
  StopFlag stop;
  return RunLoad(spec, &stop, nullptr).status();
}

std::vector<std::string> OutcomesOf(const RunResult& run) {
  std::map<std::string, int> counts;
  for (const RequestRecord& record : run.records)
    ++counts[absl::StrCat(OutcomeName(record.outcome), " ", record.status, ": ", record.message)];
  std::vector<std::string> lines;
  for (const auto& [what, count] : counts) lines.push_back(absl::StrCat(count, " ", what));
  return lines;
}

TEST(OpenAiLoadTest, RecordsHaveWhatTheServerSays) {
  OpenAiServer server;
  server.ttft = absl::Milliseconds(20);
  server.gap = absl::Milliseconds(2);
  Mutex mutex;
  std::vector<OpenAiServer::Request> requests;
  server.on_stream = [&](const OpenAiServer::Request& request, OpenAiServer::Writer* writer) {
    {
      MutexLock lock(&mutex);
      requests.push_back(request);
    }
    server.Answer(request, writer, request.body["max_tokens"]);
  };
  LoadSpec spec = LoadAt(server.url());
  spec.targets = {.ttft_s = 30, .tpot_s = 0.25};
  spec.temperature = 0.5;
  const RunResult run = ResultOf(spec);
  EXPECT_EQ(run.server.model, "served");
  EXPECT_EQ(run.server.endpoint, server.url());
  EXPECT_EQ(run.server.context_tokens, 2048u);
  EXPECT_EQ(run.server.vocab_size, 5000u);
  EXPECT_THAT(run.remarks, Not(Contains(HasSubstr("events"))));
  ASSERT_EQ(run.records.size(), 32u);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.message;
    EXPECT_EQ(record.status, "OK");
    EXPECT_EQ(record.finish_reason, "length");
    EXPECT_EQ(record.cached_tokens, 3u);
    EXPECT_THAT(record.prompt_tokens, AllOf(Ge(4u), Le(40u)));
    ASSERT_EQ(record.token_s.size(), 11u);
    EXPECT_TRUE(std::is_sorted(record.token_s.begin(), record.token_s.end()));
    EXPECT_GE(record.sent_s, record.scheduled_s);
    EXPECT_GE(record.token_s[0], record.sent_s + 0.02);
    // The tenth wait begins before the last event, and lasts 2 ms.
    EXPECT_GE(record.token_s[10], record.sent_s + 0.04);
    EXPECT_GE(record.ended_s, record.token_s[10]);
    EXPECT_TRUE(record.has_phases);
    EXPECT_DOUBLE_EQ(record.phases.queue_s, 0.0005);
    EXPECT_DOUBLE_EQ(record.phases.prefill_s, 0.001234);
    EXPECT_DOUBLE_EQ(record.phases.handover_exposed_s, 0.002);
    EXPECT_DOUBLE_EQ(record.phases.decode_s, 0.00425);
    EXPECT_THAT(record.token_ids, IsEmpty());
  }
  ASSERT_EQ(requests.size(), 32u);
  for (const OpenAiServer::Request& request : requests) {
    EXPECT_EQ(request.fields.at("x-slo-ttft-ms"), "30000");
    EXPECT_EQ(request.fields.at("x-slo-tpot-ms"), "250");
    EXPECT_EQ(request.fields.at("x-baton-timing"), "1");
    EXPECT_EQ(request.fields.count("authorization"), 0u);
    const nlohmann::json& body = request.body;
    EXPECT_EQ(body["model"], "served");
    EXPECT_EQ(body["temperature"], 0.5);
    EXPECT_EQ(body["max_tokens"], 11);
    EXPECT_EQ(body["min_tokens"], 11);
    EXPECT_EQ(body["ignore_eos"], true);
    EXPECT_EQ(body["stream_options"]["include_usage"], true);
    EXPECT_EQ(body.count("return_token_ids"), 0u);
    for (const int32_t id : body["prompt"]) EXPECT_THAT(id, AllOf(Ge(625), Lt(4375)));
  }
}

TEST(OpenAiLoadTest, WhateverBecomesOfRequestsIsCounted) {
  OpenAiServer server;
  std::atomic<int> count = 0;
  server.on_stream = [&](const OpenAiServer::Request& request, OpenAiServer::Writer* writer) {
    switch (count++ % 16) {
      case 0:
        writer->Reply(429, OpenAiServer::Error("the queue is full"), "Retry-After: 1\r\n");
        return;
      case 1:
        writer->Reply(503, OpenAiServer::Error("no workers"));
        return;
      case 2:
        writer->ReplyText(502, "bad gateway\n");
        return;
      case 3:
        writer->Reply(400, {{"detail", "no such field"}});
        return;
      case 4:  // An event says that the answer failed.
        writer->Begin();
        server.WriteTokens(request, writer, 0, 1);
        writer->Event(R"({"error": {"message": "a worker died", "code": 503}})");
        writer->Finish();
        return;
      case 5:  // The answer is shorter than it was asked for.
        server.Answer(request, writer, 10);
        return;
      case 6:  // The server dies in the middle.
        writer->Begin();
        server.WriteTokens(request, writer, 0, 4);
        writer->Close();
        return;
      case 7:  // The server dies before it answers.
        writer->Close();
        return;
      case 8:  // The stream ends without [DONE].
        writer->Begin();
        server.WriteTokens(request, writer, 0, 11);
        writer->EndMessage();
        return;
      case 9:
        writer->Begin();
        writer->Event("{not json");
        writer->Wait(absl::InfiniteDuration());
        return;
      case 10:  // There was no end of the answer.
        writer->Begin();
        server.WriteTokens(request, writer, 0, 11);
        writer->Finish();
        return;
      case 11:
        writer->Begin();
        writer->Event(R"({"choices": [{"index": 1, "text": "x"}]})");
        writer->Wait(absl::InfiniteDuration());
        return;
      case 12:
        writer->Wait(absl::InfiniteDuration());
        return;
      case 13:  // The server refuses too late for a rejection.
        writer->Begin();
        server.WriteTokens(request, writer, 0, 1);
        writer->Event(R"({"error": {"message": "the client is too slow", "code": 429}})");
        writer->Finish();
        return;
      case 14:
        writer->Begin();
        writer->Event(R"({"error": {"message": "full after all", "code": 429}})");
        writer->Finish();
        return;
      default:
        server.Answer(request, writer, 11);
    }
  };
  LoadSpec spec = LoadAt(server.url());
  spec.request_timeout = absl::Seconds(4);
  const RunResult run = ResultOf(spec);
  EXPECT_THAT(
      OutcomesOf(run),
      testing::UnorderedElementsAre(
          "2 rejected RESOURCE_EXHAUSTED: HTTP 429: the queue is full",
          "2 failed UNAVAILABLE: HTTP 503: no workers",
          "2 failed UNAVAILABLE: HTTP 502: bad gateway",
          "2 failed INVALID_ARGUMENT: HTTP 400: no such field",
          "2 failed UNAVAILABLE: a worker died",
          "2 wrong_length OK: 10 tokens came of 11 asked for",
          "2 failed UNAVAILABLE: the connection broke before the answer was complete: the server "
          "closed it",
          HasSubstr("failed UNAVAILABLE: the connection broke before an answer came: "),
          "2 failed DATA_LOSS: the server ended its stream before data: [DONE]",
          "2 failed DATA_LOSS: an event is not a JSON object: '{not json'",
          "2 failed DATA_LOSS: the answer ended without a finish_reason",
          "2 failed DATA_LOSS: a choice came with index 1, and one answer was asked for",
          "2 timed_out DEADLINE_EXCEEDED: no complete answer in time",
          "2 failed RESOURCE_EXHAUSTED: the client is too slow",
          "2 rejected RESOURCE_EXHAUSTED: full after all", "2 completed OK: "));
  for (const RequestRecord& record : run.records) {
    EXPECT_GE(record.sent_s, 0);
    EXPECT_GE(record.ended_s, record.sent_s);
  }
}

TEST(OpenAiLoadTest, BothDoorsGiveTheSameTokensToTheSameRequests) {
  TimedRouter router;
  OpenAiServer server;
  server.comments = true;
  server.line_end = "\r\n";
  LoadSpec spec = LoadAt(router.address());
  spec.keep_token_ids = true;
  const RunResult by_grpc = ResultOf(spec);
  spec.endpoint = server.url();
  spec.vocabulary_router = router.address();
  const RunResult by_http = ResultOf(spec);
  EXPECT_EQ(by_http.server.endpoint, server.url());
  EXPECT_EQ(by_http.server.decode_workers, 2u);
  const ExpectFile expected = ExpectFile::Of(by_grpc.records, by_grpc.fingerprints);
  const ExpectResult result = expected.Compare(by_http.records, by_http.fingerprints);
  EXPECT_EQ(result.equal, 32u);
  EXPECT_EQ(result.different + result.failed + result.unknown, 0u);
  for (size_t i = 0; i < by_http.records.size(); ++i) {
    EXPECT_EQ(by_http.records[i].prompt_tokens, by_grpc.records[i].prompt_tokens);
    EXPECT_EQ(by_http.records[i].token_s.size(), 11u);
  }
}

TEST(OpenAiLoadTest, TokensAreCountedByUsageIfEventsAreNot) {
  OpenAiServer server;
  server.tokens_per_event = 4;  // An answer of 11 tokens has events of 4, 4 and 3 tokens.
  server.gap = absl::Milliseconds(5);
  RunResult run = ResultOf(LoadAt(server.url()));
  EXPECT_THAT(run.remarks,
              Contains(HasSubstr("events are not tokens: 32 of 32 answers had 96 events for 352 "
                                 "tokens")));
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.message;
    ASSERT_EQ(record.token_s.size(), 11u);
    EXPECT_EQ(record.token_s[0], record.token_s[3]);
    EXPECT_GE(record.token_s[10], record.sent_s + 0.01);
  }
  server.gives_usage = false;
  run = ResultOf(LoadAt(server.url()));
  EXPECT_THAT(run.remarks, Contains(HasSubstr("32 of 32 answers had no usage")));
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kWrongLength);
    EXPECT_EQ(record.token_s.size(), 3u);
  }
  // The ids of the tokens tell their number without usage.
  LoadSpec spec = LoadAt(server.url());
  spec.keep_token_ids = true;
  run = ResultOf(spec);
  EXPECT_THAT(run.remarks, Contains(HasSubstr("32 of 32 answers had 96 events for 352 tokens")));
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.message;
    EXPECT_EQ(record.token_ids.size(), 11u);
  }
}

// Servers differ in the events that have no text: a part of a character, and the end.
TEST(OpenAiLoadTest, EventsWithoutTextAreTokensIfTheUsageCountsThem) {
  OpenAiServer server;
  const auto run_of = [&](const std::vector<std::string>& texts, uint32_t tokens) {
    server.on_stream = [&](const OpenAiServer::Request& request, OpenAiServer::Writer* writer) {
      writer->Begin();
      for (size_t i = 0; i < texts.size(); ++i) {
        writer->Wait(absl::Milliseconds(2));
        nlohmann::json choice = {{"index", 0}, {"text", texts[i]}, {"finish_reason", nullptr}};
        if (i + 1 == texts.size()) choice["finish_reason"] = "stop";
        writer->Event(nlohmann::json({{"choices", {choice}}}).dump());
      }
      writer->Event(OpenAiServer::UsageEvent(request, tokens).dump());
      writer->Finish();
    };
    LoadSpec spec = LoadAt(server.url());
    spec.duration = absl::Milliseconds(25);
    spec.workload.output_tokens = absl::StrCat(tokens);
    RunResult run = ResultOf(spec);
    EXPECT_EQ(run.records.size(), 2u);
    return run;
  };
  struct Case {
    std::vector<std::string> texts;
    uint32_t tokens;
    double last_s;  // Time of the last token's event after the request, at least.
  };
  for (const Case& one : std::vector<Case>{{{"a", "", "b", ""}, 3, 0.006},
                                           {{"a", "", "b", ""}, 4, 0.008},
                                           {{"a", "", "b", ""}, 2, 0.006},
                                           {{"a", "b", "c"}, 3, 0.006},
                                           {{"", ""}, 1, 0.002},
                                           {{""}, 1, 0.002}}) {
    for (const RequestRecord& record : run_of(one.texts, one.tokens).records) {
      const std::string what = absl::StrCat(absl::StrJoin(one.texts, "|"), " ", one.tokens);
      EXPECT_EQ(record.outcome, Outcome::kCompleted) << what << ": " << record.message;
      EXPECT_EQ(record.finish_reason, "stop");
      EXPECT_TRUE(std::is_sorted(record.token_s.begin(), record.token_s.end())) << what;
      EXPECT_GE(record.token_s.back(), record.sent_s + one.last_s) << what;
    }
  }
  // One event may have all tokens.
  EXPECT_THAT(OutcomesOf(run_of({"a"}, 3)), ElementsAre("2 completed OK: "));
}

TEST(OpenAiLoadTest, AServerThatTakesNoTokenIdsGetsTexts) {
  OpenAiServer server;
  server.takes_ids = false;
  server.gives_ids = false;
  server.refuses_unknown = true;
  Mutex mutex;
  std::vector<std::string> prompts;
  server.on_stream = [&](const OpenAiServer::Request& request, OpenAiServer::Writer* writer) {
    MutexLock lock(&mutex);
    prompts.push_back(request.body["prompt"]);
    server.Answer(request, writer, 11);
  };
  LoadSpec spec = LoadAt(server.url());
  spec.workload.prompt_tokens = "5";
  const RunResult run = ResultOf(spec);
  EXPECT_THAT(run.remarks, Contains(HasSubstr("the server takes no prompts of token ids")));
  EXPECT_THAT(OutcomesOf(run), ElementsAre("32 completed OK: "));
  ASSERT_EQ(prompts.size(), 32u);
  for (const std::string& prompt : prompts) {
    EXPECT_EQ(std::count(prompt.begin(), prompt.end(), ' '), 4) << prompt;
  }
  EXPECT_EQ(std::set<std::string>(prompts.begin(), prompts.end()).size(), 32u);
  spec.keep_token_ids = true;
  const absl::Status status = WhyNot(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it takes no return_token_ids"));
}

TEST(OpenAiLoadTest, TextsOfAFileAreSentAndCountedByTheServer) {
  OpenAiServer server;
  server.gives_ids = false;
  const ScratchFolder folder;
  LoadSpec spec = LoadAt(server.url());
  spec.workload.prompt_tokens.clear();
  spec.workload.output_tokens.clear();
  spec.workload.prompts = folder.Write("sharegpt.json", R"([
    {"id": "a", "conversations": [{"from": "human", "value": "What is rain?"},
                                  {"from": "gpt", "value": "Water."}]},
    {"id": "b", "conversations": []}])");
  RunResult run = ResultOf(spec);
  ASSERT_EQ(run.records.size(), 32u);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.message;
    EXPECT_EQ(record.prompt_tokens, 13u);
    EXPECT_EQ(record.wanted_tokens, 6u);  // The server's tokens are bytes.
  }
  server.tokenizes = false;
  run = ResultOf(spec);
  EXPECT_THAT(run.remarks, Contains(HasSubstr("the server does not count tokens")));
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.message;
    EXPECT_EQ(record.prompt_tokens, 13u);
    EXPECT_EQ(record.wanted_tokens, 1u);  // A quarter of the bytes.
  }
  TimedRouter router;
  spec.endpoint = router.address();
  for (const RequestRecord& record : ResultOf(spec).records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.message;
    EXPECT_EQ(record.wanted_tokens, 6u);
  }
}

TEST(OpenAiLoadTest, PromptsCanBeMessagesOfAChat) {
  OpenAiServer server;
  server.gives_ids = false;
  Mutex mutex;
  std::vector<OpenAiServer::Request> requests;
  server.on_stream = [&](const OpenAiServer::Request& request, OpenAiServer::Writer* writer) {
    {
      MutexLock lock(&mutex);
      requests.push_back(request);
    }
    server.Answer(request, writer, request.body["max_tokens"]);
  };
  LoadSpec spec = LoadAt(server.url());
  spec.openai_chat = true;
  const RunResult run = ResultOf(spec);
  ASSERT_FALSE(run.records.empty());
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.message;
    EXPECT_EQ(record.token_s.size(), 11u);
  }
  MutexLock lock(&mutex);
  for (const OpenAiServer::Request& request : requests) {
    EXPECT_EQ(request.target, "/v1/chat/completions");
    EXPECT_EQ(request.body["messages"][0]["role"], "user");
  }
}

TEST(OpenAiLoadTest, ServersThatCanNotBeUsedAreNamed) {
  OpenAiServer server;
  LoadSpec spec = LoadAt(server.url());
  spec.openai_model = "third";
  EXPECT_THAT(std::string(WhyNot(spec).message()),
              HasSubstr("has no model 'third'; it has served, second"));
  spec.openai_model = "second";
  EXPECT_EQ(ResultOf(spec).server.model, "second");
  server.lists_models = false;
  EXPECT_EQ(ResultOf(spec).server.model, "second");
  spec.openai_model.clear();
  EXPECT_THAT(std::string(WhyNot(spec).message()), HasSubstr("name one with --openai-model"));
  server.lists_models = true;
  server.vocabulary = 0;
  EXPECT_THAT(std::string(WhyNot(spec).message()),
              HasSubstr("does not tell the size of its vocabulary"));
  spec.connect_timeout = absl::Milliseconds(100);
  spec.endpoint = "http://127.0.0.1:1/v1";
  EXPECT_THAT(std::string(WhyNot(spec).message()),
              HasSubstr("can't reach the server at http://127.0.0.1:1/v1 within 100ms: can't "
                        "connect: Connection refused"));
}

TEST(OpenAiLoadTest, TheKeyOfTheEnvironmentIsSentAndNeverShown) {
  OpenAiServer server;
  server.key = "sk-secret";
  const LoadSpec spec = LoadAt(server.url());
  unsetenv("OPENAI_API_KEY");
  EXPECT_THAT(std::string(WhyNot(spec).message()), HasSubstr("without a key; set $OPENAI_API_KEY"));
  setenv("OPENAI_API_KEY", "sk-other", 1);
  const std::string wrong(WhyNot(spec).message());
  EXPECT_THAT(wrong, AllOf(HasSubstr("with the key in $OPENAI_API_KEY: HTTP 401: no such key"),
                           Not(HasSubstr("sk-"))));
  setenv("OPENAI_API_KEY", "sk-\nsecret", 1);
  EXPECT_THAT(std::string(WhyNot(spec).message()),
              AllOf(HasSubstr("$OPENAI_API_KEY holds"), Not(HasSubstr("sk-"))));
  setenv("OPENAI_API_KEY", "sk-secret", 1);
  EXPECT_THAT(OutcomesOf(ResultOf(spec)), ElementsAre("32 completed OK: "));
  unsetenv("OPENAI_API_KEY");
}

TEST(OpenAiLoadTest, StoppedItCancelsOpenRequests) {
  OpenAiServer server;
  StopFlag stop;
  std::atomic<int> count = 0;
  server.on_stream = [&](const OpenAiServer::Request&, OpenAiServer::Writer* writer) {
    if (++count == 10) stop.Stop();
    writer->Wait(absl::InfiniteDuration());
  };
  const RunResult run = RunLoad(LoadAt(server.url()), &stop, nullptr).value();
  EXPECT_TRUE(run.partial);
  EXPECT_GE(run.records.size(), 10u);
  for (const RequestRecord& record : run.records) {
    if (record.sent_s < 0) continue;
    EXPECT_EQ(record.outcome, Outcome::kStopped);
    EXPECT_EQ(record.status, "CANCELLED");
  }
}

TEST(OpenAiLoadTest, TheUnloadedLatencyIsMeasured) {
  OpenAiServer server;
  server.ttft = absl::Milliseconds(10);
  StopFlag stop;
  const UnloadedLatency unloaded = MeasureUnloaded(LoadAt(server.url()), &stop).value();
  EXPECT_GE(unloaded.ttft_s, 0.01);
  EXPECT_THAT(unloaded.prompt_tokens, AllOf(Ge(4u), Le(40u)));
}

TEST(OpenAiUrlTest, APathIsKeptAndHttpsRefused) {
  EXPECT_EQ(ParseOpenAiUrl("http://h:1").value().path, "/v1");
  EXPECT_EQ(ParseOpenAiUrl("http://h:1/").value().path, "/v1");
  EXPECT_EQ(ParseOpenAiUrl("http://h:1/v1/").value().path, "/v1");
  EXPECT_EQ(ParseOpenAiUrl("http://[::1]:1/a/v1").value().path, "/a/v1");
  const auto why = [](const char* url) {
    return std::string(ParseOpenAiUrl(url).status().message());
  };
  EXPECT_THAT(why("https://h/v1"), HasSubstr("'https://h/v1' is an https URL; only http"));
  EXPECT_THAT(why("h:1"), HasSubstr("'h:1' is not http://HOST[:PORT][/PATH]"));
  EXPECT_THAT(why("http://h:1/v1?key=x"), HasSubstr("is not http://"));
}

TEST(OpenAiStatusTest, CodesAndMessages) {
  EXPECT_EQ(CodeOfHttpStatus(200), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOfHttpStatus(429), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOfHttpStatus(503), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOfHttpStatus(504), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(CodeOfHttpStatus(422), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOfHttpStatus(500), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOfHttpStatus(302), absl::StatusCode::kUnknown);
  EXPECT_EQ(MessageOfErrorBody(R"({"error": {"message": "a"}})"), "a");
  EXPECT_EQ(MessageOfErrorBody(R"({"error": "b"})"), "b");
  EXPECT_EQ(MessageOfErrorBody(R"({"message": "c"})"), "c");
  EXPECT_EQ(MessageOfErrorBody(R"({"detail": [1]})"), R"({"detail": [1]})");
  EXPECT_EQ(MessageOfErrorBody(" <html> \n"), "<html>");
}

}  // namespace
}  // namespace baton
