#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "common/rpc/retry_after.h"
#include "router/client/generate_request.h"
#include "router/client/printing.h"
#include "router/client/received_answer.h"
#include "router/client/router_calls.h"
#include "router/testing/fake_router.h"

namespace baton {
namespace {

// Objects are equal only if their keys come in the same order.
using json = nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(GenerateRequestTest, WhatIsNotSetStaysUnset) {
  const auto request = MakeGenerateRequest({.text = ""}).value();
  EXPECT_EQ(request.prompt_case(), v1::GenerateRequest::kText);
  EXPECT_EQ(request.sampling().ByteSizeLong(), 0u);
  EXPECT_FALSE(request.sampling().has_temperature());
  EXPECT_FALSE(request.sampling().has_logprobs());
}

TEST(GenerateRequestTest, WhatIsSetTravelsEvenWhenItIsZero) {
  const auto request = MakeGenerateRequest({.token_ids = "1, 2,3",
                                            .request_id = "r",
                                            .model = "m",
                                            .slo_ttft_ms = 100.5,
                                            .temperature = 0.f,
                                            .top_p = 0.5f,
                                            .top_k = 0u,
                                            .min_p = 0.f,
                                            .seed = 0u,
                                            .max_tokens = 0u,
                                            .min_tokens = 0u,
                                            .stop = {"a,b", ""},
                                            .stop_token_ids = "4",
                                            .ignore_eos = false,
                                            .logprobs = 0u,
                                            .prompt_logprobs = 0u,
                                            .n = 0u,
                                            .repetition_penalty = 0.f,
                                            .presence_penalty = 0.f,
                                            .frequency_penalty = 0.f,
                                            .logit_bias = "7=-100, 9=2.5",
                                            .bad_words = {"x", ""},
                                            .bad_word_ids = "1,2;3"})
                           .value();
  EXPECT_THAT(request.token_ids().ids(), ElementsAre(1, 2, 3));
  EXPECT_EQ(request.slo().ttft_ms(), 100.5);
  EXPECT_FALSE(request.slo().has_tpot_ms());
  const v1::SamplingParams& sampling = request.sampling();
  EXPECT_TRUE(sampling.has_temperature() && sampling.has_top_k() && sampling.has_min_p());
  EXPECT_TRUE(sampling.has_seed() && sampling.has_max_tokens() && sampling.has_min_tokens());
  EXPECT_TRUE(sampling.has_ignore_eos() && sampling.has_logprobs());
  EXPECT_EQ(sampling.top_p(), 0.5f);
  EXPECT_THAT(sampling.stop(), ElementsAre("a,b", ""));
  EXPECT_THAT(sampling.stop_token_ids(), ElementsAre(4));
  EXPECT_TRUE(sampling.has_prompt_logprobs() && sampling.has_n());
  EXPECT_TRUE(sampling.has_repetition_penalty() && sampling.has_presence_penalty());
  EXPECT_TRUE(sampling.has_frequency_penalty());
  EXPECT_EQ(sampling.logit_bias_size(), 2);
  EXPECT_EQ(sampling.logit_bias().at(7), -100);
  EXPECT_EQ(sampling.logit_bias().at(9), 2.5f);
  EXPECT_THAT(sampling.bad_words(), ElementsAre("x", ""));
  ASSERT_EQ(sampling.bad_word_ids_size(), 2);
  EXPECT_THAT(sampling.bad_word_ids(0).ids(), ElementsAre(1, 2));
  EXPECT_THAT(sampling.bad_word_ids(1).ids(), ElementsAre(3));
}

TEST(GenerateRequestTest, WhatCannotBeSentIsNamed) {
  const auto why = [](GenerateOptions options) {
    return std::string(MakeGenerateRequest(options).status().message());
  };
  EXPECT_THAT(why({}), HasSubstr("a prompt is needed"));
  EXPECT_THAT(why({.text = "a", .token_ids = "1"}), HasSubstr("both"));
  EXPECT_THAT(why({.token_ids = "1,x,3"}),
              HasSubstr("--token-ids: 'x' in '1,x,3' is not a token id"));
  EXPECT_THAT(why({.token_ids = "1,,3"}), HasSubstr("'' in '1,,3'"));
  EXPECT_THAT(why({.token_ids = "99999999999"}), HasSubstr("'99999999999'"));
  EXPECT_THAT(why({.text = "a", .stop_token_ids = "1.5"}), HasSubstr("--stop-token-ids: '1.5'"));
  EXPECT_THAT(why({.text = "a\xff"}), HasSubstr("the prompt: its 2 bytes are not UTF-8"));
  EXPECT_THAT(why({.text = "a", .stop = {"\xc3"}}), HasSubstr("--stop: its 1 bytes are not UTF-8"));
  EXPECT_THAT(why({.text = "a", .model = "\xc3"}), HasSubstr("--model"));
  EXPECT_THAT(why({.text = "a", .mode = "split"}),
              HasSubstr("--mode is 'split'; it takes disaggregated, colocated or auto"));
  EXPECT_THAT(why({.text = "a", .bad_words = {"\xc3"}}), HasSubstr("--bad-word"));
  EXPECT_THAT(why({.text = "a", .logit_bias = "7"}), HasSubstr("'7' in '7' is not TOKEN=BIAS"));
  EXPECT_THAT(why({.text = "a", .logit_bias = "1=2,x=3"}), HasSubstr("'x=3' in '1=2,x=3'"));
  EXPECT_THAT(why({.text = "a", .logit_bias = "1=2=3"}), HasSubstr("-100 to 100"));
  EXPECT_THAT(why({.text = "a", .logit_bias = "1=2,1=3"}), HasSubstr("token 1 occurs twice"));
  EXPECT_THAT(why({.text = "a", .bad_word_ids = "1,x"}), HasSubstr("--bad-word-ids: 'x'"));
  EXPECT_THAT(why({.text = "a", .bad_word_ids = "1;;2"}),
              HasSubstr("there is an empty sequence between"));
}

json ExpectedJson() {
  return json::parse(R"({
    "request_id": "r1", "model": "demo", "text": "one two", "token_ids": [7, 8],
    "finish_reason": "length",
    "logprobs": [{"token_id": 7, "logprob": -0.5, "top": [{"token_id": 9, "logprob": -0.25}]},
                 {"token_id": 8, "logprob": -0.5, "top": [{"token_id": 9, "logprob": -0.25}]}],
    "usage": {"prompt_tokens": 3, "cached_tokens": 1, "completion_tokens": 2},
    "seed": 18446744073709551615,
    "timing_us": {"queue": 10, "prefill": 20, "handover_hidden": 30, "handover_exposed": 40,
                  "decode_wait": 50, "decode": 60, "ttft": 70, "total": 180},
    "mode": "disaggregated",
    "workers": {"prefill": "127.0.0.1:1001", "decode": "127.0.0.1:1002"},
    "link": "shm", "migrations": 1, "decode_cached_tokens": 2})");
}

v1::GenerateRequest WithLogprobs() {
  v1::GenerateRequest request;
  request.mutable_sampling()->set_logprobs(1);
  return request;
}

TEST(ReceivedAnswerTest, JsonHasEveryFieldOfTheAnswer) {
  const absl::Time sent = absl::FromUnixSeconds(1000);
  ReceivedAnswer answer(sent);
  int ms = 0;
  for (const v1::GenerateEvent& event : FakeRouter::Events(WithLogprobs())) {
    EXPECT_FALSE(answer.complete());
    EXPECT_TRUE(answer.Add(event, sent + absl::Milliseconds(++ms)).ok());
  }
  EXPECT_TRUE(answer.complete());
  EXPECT_EQ(answer.ToJson(), ExpectedJson());
}

TEST(ReceivedAnswerTest, TheVerdictOnTargetsIsShownWhereThereWereSome) {
  const auto with = [](const v1::SloVerdict& verdict) {
    ReceivedAnswer answer(absl::UnixEpoch());
    for (v1::GenerateEvent event : FakeRouter::Events({})) {
      if (event.has_summary()) *event.mutable_summary()->mutable_slo() = verdict;
      EXPECT_TRUE(answer.Add(event, absl::UnixEpoch()).ok());
    }
    return answer;
  };
  v1::SloVerdict verdict;
  verdict.set_met(true);
  verdict.set_tpot_met(true);
  EXPECT_EQ(with(verdict).ToJson()["slo"], json::parse(R"({"met": true, "tpot_met": true})"));
  EXPECT_THAT(with(verdict).TimingTable(), testing::EndsWith("\n  targets met\n"));
  verdict.set_met(false);
  verdict.set_ttft_met(false);
  verdict.set_lost_to(v1::SLO_PHASE_DECODE_WAIT);
  EXPECT_EQ(
      with(verdict).ToJson()["slo"],
      json::parse(
          R"({"met": false, "ttft_met": false, "tpot_met": true, "lost_to": "decode_wait"})"));
  EXPECT_THAT(with(verdict).TimingTable(),
              testing::EndsWith("\n  targets missed, lost to decode_wait\n"));
}

TEST(ReceivedAnswerTest, TimingTableShowsWhatWasSeenAndWhatTheRouterTells) {
  const absl::Time sent = absl::FromUnixSeconds(1000);
  ReceivedAnswer answer(sent);
  int ms = 0;
  for (const v1::GenerateEvent& event : FakeRouter::Events({})) {
    ASSERT_TRUE(answer.Add(event, sent + absl::Milliseconds(ms += 10)).ok());
  }
  EXPECT_EQ(
      answer.TimingTable(),
      "  time to first token (TTFT)      20.00 ms   0.07 ms of it after the request reached the "
      "router\n"
      "  time per later token (TPOT)     10.00 ms   100 tokens/s\n"
      "  - queue                          0.01 ms\n"
      "  - prefill                        0.02 ms\n"
      "  - hand-over hidden               0.03 ms\n"
      "  - hand-over exposed              0.04 ms\n"
      "  - wait for decode                0.05 ms\n"
      "  - decode                         0.06 ms\n"
      "  total                            0.18 ms\n"
      "  3 prompt tokens (1 cached, 2 at decode), 2 generated, finished by length, seed "
      "18446744073709551615\n"
      "  prefill 127.0.0.1:1001 -> shm -> decode 127.0.0.1:1002, started again 1 times\n");
}

// Returns the events of answer `index` that follow Accepted.
std::vector<v1::GenerateEvent> EventsOf(uint32_t index) {
  auto events = FakeRouter::Events({});
  events.erase(events.begin());
  for (v1::GenerateEvent& event : events) {
    if (event.has_delta()) event.mutable_delta()->set_index(index);
    if (event.has_finished()) event.mutable_finished()->set_index(index);
    if (event.has_summary()) event.mutable_summary()->set_index(index);
  }
  return events;
}

TEST(ReceivedAnswerTest, SeveralAnswersArePrintedOneAfterTheOther) {
  ReceivedAnswer answer(absl::UnixEpoch(), 3);
  const auto add = [&](const v1::GenerateEvent& event) {
    EXPECT_TRUE(answer.Add(event, absl::UnixEpoch()).ok());
    return answer.TakePrintable();
  };
  std::vector<v1::GenerateEvent> zero = EventsOf(0), one = EventsOf(1), two = EventsOf(2);
  two[3].mutable_summary()->mutable_total()->set_prompt_tokens(3);
  two[3].mutable_summary()->mutable_total()->set_completion_tokens(6);
  EXPECT_EQ(add(FakeRouter::Events({})[0]), "");
  for (const v1::GenerateEvent& event : one) EXPECT_EQ(add(event), "");
  EXPECT_EQ(add(zero[0]), "[0]\none");
  EXPECT_EQ(add(two[0]), "");
  EXPECT_EQ(add(zero[1]), " two");
  EXPECT_EQ(add(zero[2]), "");
  EXPECT_EQ(add(zero[3]), "\n[1]\none two\n[2]\none");
  for (int i = 1; i < 4; ++i) {
    EXPECT_FALSE(answer.complete());
    EXPECT_EQ(add(two[i]), i == 1 ? " two" : "");
  }
  EXPECT_TRUE(answer.complete());
  const json all = answer.ToJson();
  EXPECT_EQ(all["request_id"], "r1");
  EXPECT_EQ(all["usage"]["completion_tokens"], 6);
  ASSERT_EQ(all["answers"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(all["answers"][i]["index"], i);
    EXPECT_EQ(all["answers"][i]["text"], "one two");
    EXPECT_EQ(all["answers"][i]["migrations"], 1);
  }
  EXPECT_THAT(answer.TimingTable(), AllOf(StartsWith("answer 0\n"), HasSubstr("answer 2\n")));
}

v1::GenerateEvent PromptEvent(uint32_t first, uint32_t count) {
  v1::GenerateEvent event;
  event.mutable_prompt_logprobs();
  for (uint32_t position = first; position < first + count; ++position) {
    v1::Token& token = *event.mutable_prompt_logprobs()->add_tokens();
    token.set_token_id(static_cast<int32_t>(40 + position));
    token.set_position(position);
    if (position > 0) token.set_logprob(-1.5f);
  }
  return event;
}

// A terminal shows nothing of an answer without text, so a line says what became of it.
TEST(ReceivedAnswerTest, AnAnswerWithoutTextIsTold) {
  for (const bool has_text : {true, false}) {
    ReceivedAnswer answer(absl::UnixEpoch(), 1);
    for (v1::GenerateEvent& event : FakeRouter::Events({})) {
      if (event.has_delta() && !has_text) event.mutable_delta()->clear_text();
      ASSERT_TRUE(answer.Add(event, absl::UnixEpoch()).ok());
    }
    EXPECT_EQ(answer.NoteLines("> "),
              has_text ? "" : "> the answer has no text: 2 tokens, finished by length\n");
  }
  ReceivedAnswer limited(absl::UnixEpoch(), 1);
  for (v1::GenerateEvent& event : FakeRouter::Events({})) {
    if (event.has_finished()) event.mutable_finished()->set_limit("max_new_tokens 2 of a file");
    ASSERT_TRUE(limited.Add(event, absl::UnixEpoch()).ok());
  }
  EXPECT_EQ(
      limited.NoteLines("> "),
      "> the answer was ended by max_new_tokens 2 of a file; --max-tokens sets another limit\n");
  EXPECT_EQ(limited.ToJson()["limit"], "max_new_tokens 2 of a file");
  ReceivedAnswer two(absl::UnixEpoch(), 2);
  for (const v1::GenerateEvent& event : FakeRouter::Events({})) {
    ASSERT_TRUE(two.Add(event, absl::UnixEpoch()).ok());
  }
  v1::GenerateEvent event;
  event.mutable_delta()->set_index(1);
  event.mutable_delta()->add_tokens()->set_position(3);
  ASSERT_TRUE(two.Add(event, absl::UnixEpoch()).ok());
  event.mutable_finished()->set_index(1);
  event.mutable_finished()->set_reason(v1::FINISH_REASON_STOP);
  ASSERT_TRUE(two.Add(event, absl::UnixEpoch()).ok());
  event.mutable_summary()->set_index(1);
  ASSERT_TRUE(two.Add(event, absl::UnixEpoch()).ok());
  EXPECT_EQ(two.NoteLines(""), "answer 1 has no text: 1 token, finished by stop\n");
}

TEST(ReceivedAnswerTest, LogprobsOfThePromptStandInTheJson) {
  ReceivedAnswer answer(absl::UnixEpoch());
  auto events = FakeRouter::Events({});
  events.insert(events.begin() + 1, {PromptEvent(0, 2), PromptEvent(2, 1)});
  for (const auto& event : events) ASSERT_TRUE(answer.Add(event, absl::UnixEpoch()).ok());
  EXPECT_EQ(answer.ToJson()["prompt_logprobs"],
            json::parse(R"([{"token_id": 40, "logprob": null, "top": []},
                            {"token_id": 41, "logprob": -1.5, "top": []},
                            {"token_id": 42, "logprob": -1.5, "top": []}])"));
  const auto code = [](const std::vector<v1::GenerateEvent>& events) {
    ReceivedAnswer answer(absl::UnixEpoch());
    absl::Status status;
    for (const auto& event : events) status.Update(answer.Add(event, absl::UnixEpoch()));
    return status.code();
  };
  EXPECT_EQ(code({events[0], PromptEvent(1, 1)}), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code({events[0], PromptEvent(0, 4)}), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code({PromptEvent(0, 1)}), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code({events[0], EventsOf(0)[0], PromptEvent(0, 1)}), absl::StatusCode::kDataLoss);
  // The request has only answer 0, so an event of answer 1 is refused.
  EXPECT_EQ(code({events[0], EventsOf(1)[0]}), absl::StatusCode::kDataLoss);
}

TEST(ReceivedAnswerTest, EventsOutOfOrderAreNotTrusted) {
  const auto events = FakeRouter::Events({});
  const auto code_after = [&](std::vector<int> order) {
    ReceivedAnswer answer(absl::UnixEpoch());
    absl::Status status;
    for (const int i : order) {
      EXPECT_TRUE(status.ok());
      status = answer.Add(events[i], absl::UnixEpoch());
    }
    EXPECT_FALSE(answer.complete());
    return status.code();
  };
  EXPECT_EQ(code_after({1}), absl::StatusCode::kDataLoss);        // A token comes before Accepted.
  EXPECT_EQ(code_after({0, 0}), absl::StatusCode::kDataLoss);     // Accepted comes twice.
  EXPECT_EQ(code_after({0, 2}), absl::StatusCode::kDataLoss);     // A token is missing.
  EXPECT_EQ(code_after({0, 1, 1}), absl::StatusCode::kDataLoss);  // A token comes twice.
  EXPECT_EQ(code_after({0, 1, 2, 4}), absl::StatusCode::kDataLoss);  // Finished is missing.
  // A token comes after Finished.
  EXPECT_EQ(code_after({0, 1, 3, 2}), absl::StatusCode::kDataLoss);
  // The events are correct, but Summary has not come.
  EXPECT_EQ(code_after({0, 1, 2, 3}), absl::StatusCode::kOk);
}

TEST(PrintingTest, BytesThatAreNoCharacterAreShownAsBytes) {
  v1::TokenizeResponse response;
  response.add_token_ids(5);
  response.add_pieces("a\n");
  response.add_token_ids(6);
  response.add_pieces("\xe2\x82");
  EXPECT_EQ(PieceLines(response), "5\t\"a\\n\"\n6\t\"\\342\\202\"\n");
  EXPECT_EQ(JsonLine(TokensJson(response)),
            "{\"token_ids\":[5,6],\"pieces\":[{\"text\":\"a\\n\",\"bytes\":[97,10]},"
            "{\"text\":\"\xef\xbf\xbd\",\"bytes\":[226,130]}]}\n");
}

TEST(PrintingTest, BytesWithoutATokenAreCounted) {
  v1::TokenizeResponse response;
  EXPECT_EQ(DroppedNote(response), "");
  EXPECT_FALSE(TokensJson(response).contains("dropped_bytes"));
  response.set_dropped_bytes(3);
  EXPECT_EQ(
      DroppedNote(response),
      "baton-client: the model has no token for 3 bytes of the text, and does not see them\n");
  EXPECT_EQ(TokensJson(response)["dropped_bytes"], 3);
}

TEST(PrintingTest, AFailureIsOneLine) {
  EXPECT_EQ(FailureLine(absl::NotFoundError("no\nmodel"), "h:1"),
            "NOT_FOUND: no model (router h:1)\n");
  EXPECT_EQ(FailureLine(absl::CancelledError(), "h:1"), "CANCELLED (router h:1)\n");
  EXPECT_EQ(
      FailureLine(WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(2100)),
                  "h:1"),
      "RESOURCE_EXHAUSTED: full; try again in 3s (router h:1)\n");
}

TEST(PrintingTest, AKeyThatIsMissingOrWrongIsNamedByItsVariable) {
  EXPECT_EQ(FailureLine(absl::UnauthenticatedError("no such key"), "h:1"),
            "UNAUTHENTICATED: no such key; set $BATON_API_KEY to a key that the router takes "
            "(router h:1)\n");
}

// The error message says how to start a router: with "./baton up" if ./baton has started the
// client, otherwise with baton-router. ./baton sets the variable BATON_CALLED_AS.
TEST(PrintingTest, ARouterThatIsNotThereIsStartedByWhatThisMachineHas) {
  const auto line = [](const std::string& command) {
    return absl::StrCat("UNAVAILABLE: no router answers at h:1: start one (", command,
                        "), or name another with --router; failed to connect to all addresses "
                        "(router h:1)\n");
  };
  const absl::Status unreached = absl::UnavailableError("failed to connect to all addresses");
  setenv("BATON_CALLED_AS", "./baton", 1);
  EXPECT_EQ(FailureLine(unreached, "h:1"), line("./baton up"));
  unsetenv("BATON_CALLED_AS");
  EXPECT_EQ(FailureLine(unreached, "h:1"), line("baton-router"));
}

TEST(RouterCallsTest, StreamsEventsAndTellsTheStatus) {
  FakeRouter router;
  RouterCalls calls(router.address(), absl::InfiniteDuration());
  int events = 0;
  EXPECT_TRUE(
      calls.Generate({}, [&](const v1::GenerateEvent&) { return ++events, absl::OkStatus(); })
          .ok());
  EXPECT_EQ(events, 5);
  router.on_generate = [](grpc::ServerContext*, const v1::GenerateRequest&, FakeRouter::Writer*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "model 'x'");
  };
  EXPECT_EQ(calls.Generate({}, [](const v1::GenerateEvent&) { return absl::OkStatus(); }),
            absl::NotFoundError("model 'x'"));
  EXPECT_EQ(calls.Health().value(), "SERVING");
  EXPECT_EQ(calls.ListModels()->models(0).name(), "demo");
  EXPECT_EQ(calls
                .Detokenize([] {
                  v1::DetokenizeRequest request;
                  request.add_token_ids(72);
                  return request;
                }())
                ->text(),
            "H");
}

// Returns a handler that sends Accepted and then waits until the client has gone. The handler sets
// `accepted` and `gone` when these things happen.
auto UntilCancelled(std::promise<void>* accepted, std::promise<void>* gone) {
  return [=](grpc::ServerContext* context, const v1::GenerateRequest& request,
             FakeRouter::Writer* writer) {
    writer->Write(FakeRouter::Events(request)[0]);
    accepted->set_value();
    while (writer->Write(v1::GenerateEvent())) std::this_thread::yield();
    EXPECT_TRUE(context->IsCancelled());
    gone->set_value();
    return grpc::Status::CANCELLED;
  };
}

TEST(RouterCallsTest, StopCancelsTheRunningCallAndLaterOnes) {
  FakeRouter router;
  std::promise<void> accepted, gone;
  router.on_generate = UntilCancelled(&accepted, &gone);
  RouterCalls calls(router.address(), absl::InfiniteDuration());
  std::thread stopper([&] {
    accepted.get_future().wait();
    calls.Stop();
  });
  EXPECT_EQ(calls.Generate({}, [](const v1::GenerateEvent&) { return absl::OkStatus(); }).code(),
            absl::StatusCode::kCancelled);
  gone.get_future().wait();
  stopper.join();
  EXPECT_EQ(calls.ListModels().status().code(), absl::StatusCode::kCancelled);
}

TEST(RouterCallsTest, RefusingAnEventCancelsTheCall) {
  FakeRouter router;
  std::promise<void> accepted, gone;
  router.on_generate = UntilCancelled(&accepted, &gone);
  RouterCalls calls(router.address(), absl::InfiniteDuration());
  EXPECT_EQ(calls.Generate({}, [](const v1::GenerateEvent&) { return absl::DataLossError("no"); }),
            absl::DataLossError("no"));
  gone.get_future().wait();
}

TEST(RouterCallsTest, WaitsUntilTheServiceServes) {
  FakeRouter router;
  router.SetServing(false);
  RouterCalls calls(router.address(), absl::Seconds(60));
  EXPECT_EQ(calls.Health().value(), "NOT_SERVING");
  std::atomic<bool> served = false;
  std::thread waiter([&] {
    EXPECT_TRUE(calls.WaitUntilServing().ok());
    EXPECT_TRUE(served);
  });
  served = true;
  router.SetServing(true);
  waiter.join();
}

// The router's state changes between the answers of Health and ListModels, so the client asks both
// again.
TEST(RouterCallsTest, HealthAndModelsAreOfTheSameTime) {
  FakeRouter router;
  router.not_serving_because = "no worker is attached";
  int asked = 0;
  router.after_list_models = [&] {
    ++asked;
    router.SetServing(false);
  };
  RouterCalls calls(router.address(), absl::Seconds(60));
  const auto both = calls.HealthWithModels();
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->health, "NOT_SERVING");
  EXPECT_FALSE(both->models.models(0).serving());
  EXPECT_EQ(asked, 2);
}

TEST(RouterCallsTest, WaitingEndsWithTheTimeout) {
  FakeRouter router;
  router.SetServing(false);
  RouterCalls calls(router.address(), absl::Milliseconds(1));
  EXPECT_EQ(calls.WaitUntilServing().code(), absl::StatusCode::kDeadlineExceeded);
}

struct Ended {
  int exit_status;     // If a signal ended the program, 128 plus the signal's number.
  std::string output;  // Standard output and standard error together.
};

// Runs a shell command line. Calls `on_start` with the process id of the command.
Ended RunCommand(const std::string& command, const std::function<void(pid_t)>& on_start = nullptr) {
  FILE* pipe = popen(absl::StrCat("echo $$; exec ", command, " 2>&1").c_str(), "r");
  Ended ended;
  char buffer[4096];
  if (std::fgets(buffer, sizeof buffer, pipe) != nullptr && on_start) on_start(std::atoi(buffer));
  size_t size = 0;
  while ((size = std::fread(buffer, 1, sizeof buffer, pipe)) > 0) ended.output.append(buffer, size);
  const int status = pclose(pipe);
  ended.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

class BinaryTest : public testing::Test {
 protected:
  Ended Client(const std::string& arguments) {
    return RunCommand(absl::StrCat(BATON_BINARY_DIR "/baton-client --router=", router_.address(),
                                   " ", arguments));
  }
  FakeRouter router_;
};

TEST_F(BinaryTest, GenerateStreamsTextAndTimes) {
  const Ended ended = Client("generate 'Hello there' --timing");
  EXPECT_EQ(ended.exit_status, 0);
  EXPECT_THAT(ended.output, AllOf(StartsWith("one two\n"), HasSubstr("(TTFT)"),
                                  HasSubstr("decode 127.0.0.1:1002")));
}

TEST_F(BinaryTest, TheKeyOfTheEnvironmentIsSentAndNeverShown) {
  router_.key = "sk-secret";
  unsetenv("BATON_API_KEY");
  const std::string refused = absl::StrCat(
      "baton-client: UNAUTHENTICATED: no such key; set $BATON_API_KEY to a key that "
      "the router takes (router ",
      router_.address(), ")\n");
  for (const char* command : {"generate x", "tokenize x", "detokenize 72", "models"}) {
    const Ended ended = Client(command);
    EXPECT_EQ(ended.exit_status, 1) << command;
    EXPECT_EQ(ended.output, refused);
  }
  EXPECT_EQ(Client("health").output, "SERVING\n") << "health needs no key";
  EXPECT_EQ(Client("wait").exit_status, 0);
  setenv("BATON_API_KEY", "sk-secret", 1);
  for (const char* command : {"generate x", "tokenize x", "detokenize 72", "models", "health"}) {
    EXPECT_EQ(Client(command).exit_status, 0) << command;
  }
  EXPECT_EQ(Client("generate x --logprobs 1").exit_status, 0)
      << "it asks for the tokens' text, too";
  setenv("BATON_API_KEY", "sk-other", 1);
  EXPECT_EQ(Client("models").output, refused);
  setenv("BATON_API_KEY", "", 1);
  EXPECT_EQ(Client("models").output, refused);
  setenv("BATON_API_KEY", "sk-secret\n", 1);
  const Ended ended = Client("models");
  EXPECT_EQ(ended.exit_status, 2);
  EXPECT_THAT(ended.output, AllOf(StartsWith("baton-client: $BATON_API_KEY holds a space, a line "),
                                  testing::Not(HasSubstr("sk-"))));
  unsetenv("BATON_API_KEY");
}

TEST_F(BinaryTest, GenerateJsonIsOneObject) {
  const Ended ended = Client("generate --json --logprobs 1 --token-ids 1,2,3");
  EXPECT_EQ(ended.exit_status, 0);
  EXPECT_EQ(json::parse(ended.output), ExpectedJson());
}

TEST_F(BinaryTest, EveryFlagReachesTheRequest) {
  v1::GenerateRequest seen;
  router_.on_generate = [&](grpc::ServerContext*, const v1::GenerateRequest& request,
                            FakeRouter::Writer*) {
    seen = request;
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full\nright now");
  };
  const Ended ended = RunCommand(absl::StrCat(
      "sh -c 'printf \"two\\nlines\" | " BATON_BINARY_DIR "/baton-client generate - --router=",
      router_.address(),
      " --request-id r7 --model demo --mode colocated --max-tokens 5 --min-tokens 2 --temperature "
      "0.5 --top-p 0.25 "
      "--top-k 3 "
      "--min-p 0.125 --seed 42 --stop a,b --stop=c --stop-token-ids 8,9 --ignore-eos --logprobs "
      "4 --prompt-logprobs 2 --n 3 --repetition-penalty 1.5 --presence-penalty -0.5 "
      "--frequency-penalty 0.25 --logit-bias 5=-1 --bad-word d,e --bad-word f --bad-word-ids 6'"));
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_EQ(ended.output, absl::StrCat("baton-client: RESOURCE_EXHAUSTED: full right now (router ",
                                       router_.address(), ")\n"));
  v1::GenerateRequest expected = MakeGenerateRequest({.text = "two\nlines",
                                                      .request_id = "r7",
                                                      .model = "demo",
                                                      .mode = "colocated",
                                                      .temperature = 0.5f,
                                                      .top_p = 0.25f,
                                                      .top_k = 3u,
                                                      .min_p = 0.125f,
                                                      .seed = 42u,
                                                      .max_tokens = 5u,
                                                      .min_tokens = 2u,
                                                      .stop = {"a,b", "c"},
                                                      .stop_token_ids = "8,9",
                                                      .ignore_eos = true,
                                                      .logprobs = 4u,
                                                      .prompt_logprobs = 2u,
                                                      .n = 3u,
                                                      .repetition_penalty = 1.5f,
                                                      .presence_penalty = -0.5f,
                                                      .frequency_penalty = 0.25f,
                                                      .logit_bias = "5=-1",
                                                      .bad_words = {"d,e", "f"},
                                                      .bad_word_ids = "6"})
                                     .value();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(seen, expected))
      << seen.DebugString();
}

TEST_F(BinaryTest, SeveralAnswersArePrintedAndHugeNumbersOfThemAreTheRoutersToRefuse) {
  router_.on_generate = [](grpc::ServerContext*, const v1::GenerateRequest& request,
                           FakeRouter::Writer* writer) {
    if (request.sampling().n() != 2) return grpc::Status(grpc::INVALID_ARGUMENT, "n is huge");
    writer->Write(FakeRouter::Events({})[0]);
    for (uint32_t index : {1u, 0u}) {
      for (const v1::GenerateEvent& event : EventsOf(index)) writer->Write(event);
    }
    return grpc::Status::OK;
  };
  EXPECT_EQ(Client("generate x --n 2").output, "[0]\none two\n[1]\none two\n");
  const Ended ended = Client("generate x --n 4294967295");
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(ended.output, HasSubstr("n is huge"));
}

// The commands `models`, `health` and `wait` (after its timeout) all show why the router does not
// serve.
TEST_F(BinaryTest, ARouterThatDoesNotServeSaysWhyWhateverItIsAsked) {
  EXPECT_FALSE(json::parse(Client("models --json").output)["models"][0].contains("serving"));
  router_.SetServing(false);
  router_.not_serving_because = "no two workers\nfit";
  EXPECT_EQ(Client("models").output,
            "demo: LlamaForCausalLM, context 2048 tokens, vocabulary 4096, 1 prefill and 2 decode "
            "workers ready\n"
            "  identity f/cpu/kv\n"
            "  does not serve: no two workers fit\n");
  const json model = json::parse(Client("models --json").output)["models"][0];
  EXPECT_EQ(model["serving"], false);
  EXPECT_EQ(model["numerics_id"], "cpu/kv");
  EXPECT_EQ(model["not_serving_because"], "no two workers\nfit");
  const Ended health = Client("health");
  EXPECT_EQ(health.exit_status, 1);
  EXPECT_THAT(health.output, StartsWith("NOT_SERVING\nbaton-client: UNAVAILABLE: no two workers "
                                        "fit (router "));
  const Ended wait = Client("wait --timeout=10ms");
  EXPECT_EQ(wait.exit_status, 1);
  EXPECT_THAT(wait.output, AllOf(StartsWith("baton-client: DEADLINE_EXCEEDED"),
                                 HasSubstr("; the router does not serve: no two workers fit")));
}

TEST_F(BinaryTest, WorkersThatAreNotUsedAreNamedWhileOthersServe) {
  router_.unused_workers = {"decode worker d:1 is not used: it has identity g/n"};
  EXPECT_THAT(Client("models").output,
              testing::EndsWith("\n  decode worker d:1 is not used: it has identity g/n\n"));
  EXPECT_EQ(json::parse(Client("models --json").output)["models"][0]["unused_workers"],
            json({"decode worker d:1 is not used: it has identity g/n"}));
  router_.failing_workers = {"prefill worker p:1 failed 3 of 40 requests in the last minute"};
  EXPECT_THAT(
      Client("models").output,
      testing::EndsWith("\n  prefill worker p:1 failed 3 of 40 requests in the last minute\n"));
  EXPECT_EQ(json::parse(Client("models --json").output)["models"][0]["failing_workers"],
            json({"prefill worker p:1 failed 3 of 40 requests in the last minute"}));
  const Ended health = Client("health");
  EXPECT_EQ(health.exit_status, 0);
  EXPECT_THAT(health.output, HasSubstr("SERVING\n"));
  EXPECT_THAT(health.output, HasSubstr("baton-client: decode worker d:1 is not used: it has "
                                       "identity g/n\n"));
}

TEST_F(BinaryTest, TokensThereAndBack) {
  EXPECT_EQ(Client("tokenize Hi").output, "1,72,105\n");
  EXPECT_EQ(Client("tokenize Hi --no-add-special --pieces").output, "72\t\"H\"\n105\t\"i\"\n");
  EXPECT_EQ(json::parse(Client("tokenize Hi --json").output)["token_ids"], json({1, 72, 105}));
  EXPECT_EQ(Client("detokenize 72,105").output, "Hi\n");
  EXPECT_EQ(Client("detokenize 72,105 --json").output,
            "{\"text\":\"Hi\",\"token_ids\":[72,105]}\n");
  const Ended ended = Client("detokenize 72,400");
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(ended.output,
              StartsWith("baton-client: INVALID_ARGUMENT: token id 400 is not below 128 (router"));
}

TEST_F(BinaryTest, GenerateSaysHowItsTextIsRead) {
  v1::GenerateRequest seen;
  const auto answer = router_.on_generate;
  router_.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                            FakeRouter::Writer* writer) {
    seen = request;
    return answer(context, request, writer);
  };
  Client("generate x");
  EXPECT_FALSE(seen.parse_special());
  EXPECT_FALSE(seen.has_add_special());
  Client("generate '<|user|>x' --parse-special --no-add-special");
  EXPECT_TRUE(seen.parse_special());
  EXPECT_TRUE(seen.has_add_special() && !seen.add_special());
}

TEST_F(BinaryTest, LogprobsFollowTheAnswerAsATable) {
  router_.on_generate = [](grpc::ServerContext*, const v1::GenerateRequest& request,
                           FakeRouter::Writer* writer) {
    std::vector<v1::GenerateEvent> events = FakeRouter::Events({});
    for (v1::GenerateEvent& event : events) {
      if (event.has_delta() && request.sampling().has_logprobs()) {
        for (v1::Token& token : *event.mutable_delta()->mutable_tokens()) {
          token.set_token_id('a');
          token.set_logprob(-0.25f);
          v1::TopLogprob* const other = token.add_top();
          other->set_token_id('\n');
          other->set_logprob(-1.5f);
        }
      }
      writer->Write(event);
    }
    return grpc::Status::OK;
  };
  const std::string line = "  -0.2500      97  \"a\"   of \"\\n\" -1.5000\n";
  EXPECT_EQ(Client("generate x --logprobs 1").output, absl::StrCat("one two\n", line, line));
  EXPECT_EQ(Client("generate x").output, "one two\n");
  EXPECT_EQ(json::parse(Client("generate x --logprobs 1 --json").output)["text"], "one two");
}

TEST_F(BinaryTest, ModelsHealthAndWait) {
  EXPECT_THAT(Client("models").output, StartsWith("demo: LlamaForCausalLM, context 2048 tokens"));
  EXPECT_EQ(json::parse(Client("models --json").output)["models"][0]["decode_workers"], 2);
  EXPECT_EQ(Client("wait --timeout=60s").exit_status, 0);
  EXPECT_EQ(Client("health").output, "SERVING\n");
  router_.SetServing(false);
  EXPECT_EQ(Client("health").exit_status, 1);
  const Ended ended = Client("wait --timeout=1ms");
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(ended.output, StartsWith("baton-client: DEADLINE_EXCEEDED"));
}

TEST_F(BinaryTest, ACommandLineThatCannotBeUsedExits2AndNamesIt) {
  const auto expect = [&](const std::string& arguments, const std::string& message) {
    const Ended ended = Client(arguments);
    EXPECT_EQ(ended.exit_status, 2) << arguments;
    EXPECT_THAT(ended.output, AllOf(StartsWith("baton-client: "), HasSubstr(message))) << arguments;
  };
  expect("", "a command is needed");
  expect("generat x", "unknown command 'generat'");
  expect("generate", "a prompt is needed");
  expect("generate two words", "'words' is one word too many");
  expect("chat hello", "chat takes no text: type it there");
  expect("generate x --token-ids=1", "both");
  expect("generate --token-ids=1,b", "'b' in '1,b'");
  expect("generate x --max-tokens=-1",
         "'-1' is not a valid value of --max-tokens: generate, chat: max tokens");
  expect("generate x --temperature=hot", "'hot' is not a valid value of --temperature");
  expect("generate x --temperature=hot", "0 (greedy) to 100");
  expect("generate x --top-k=-1", "1 to 2147483647; 0: among all");
  expect("generate x --n=many", "1 to 64");
  expect("generate x --logprobs=1e9", "0 to 20");
  expect("generate x --presence-penalty=x", "-2 to 2");
  expect("generate x --seed=18446744073709551616", "0 to 18446744073709551615");
  expect("generate x --logit-bias=5", "'5' in '5' is not TOKEN=BIAS");
  expect("generate --token-ids=1 --parse-special", "--parse-special works only with a text");
  expect("generate --token-ids=1 --no-add-special", "--add-special works only with a text");
  expect("tokenize x --top-k 5", "--top-k is not a flag of tokenize");
  expect("tokenize", "tokenize needs a text");
  expect("detokenize", "detokenize needs ids");
  expect("detokenize 1,,2", "'' in '1,,2' is not a token id");
  expect("health --timeout=0s", "--timeout=0 is too short");
  expect("health --router=nowhere", "--router=nowhere is not HOST:PORT");
  expect("health --colour", "unknown flag --colour");
}

TEST_F(BinaryTest, ARouterThatIsNotThereIsOneLine) {
  // Nothing listens on port 1. If --router is given twice, the second value is used.
  const Ended ended = Client("generate x --router=127.0.0.1:1");
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(ended.output,
              AllOf(StartsWith("baton-client: UNAVAILABLE: "), HasSubstr("127.0.0.1:1")));
  EXPECT_EQ(ended.output.find('\n'), ended.output.size() - 1);
}

TEST_F(BinaryTest, AnInterruptCancelsTheCallAndExits130) {
  std::promise<void> accepted, gone;
  router_.on_generate = UntilCancelled(&accepted, &gone);
  std::thread interrupter;
  const Ended ended = RunCommand(
      absl::StrCat(BATON_BINARY_DIR "/baton-client generate x --router=", router_.address()),
      [&](pid_t pid) {
        interrupter = std::thread([&accepted, pid] {
          accepted.get_future().wait();
          kill(pid, SIGINT);
        });
      });
  interrupter.join();
  gone.get_future().wait();
  EXPECT_EQ(ended.exit_status, 130);
  EXPECT_EQ(ended.output, "");
}

// Runs the Python example: clients in other languages need only the protos.
TEST(PythonExampleTest, StreamsAnAnswer) {
  std::string python;
  for (const char* candidate : {"python3", "/usr/bin/python3"}) {
    const std::string probe = absl::StrCat(candidate, " -c 'import grpc, google.protobuf'");
    if (python.empty() && RunCommand(probe).exit_status == 0) python = candidate;
  }
  if (python.empty()) GTEST_SKIP() << "no python3 here can import grpc (Debian: python3-grpcio)";
  FakeRouter router;
  v1::GenerateRequest seen;
  const auto answer = router.on_generate;
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           FakeRouter::Writer* writer) {
    seen = request;
    return answer(context, request, writer);
  };
  const Ended ended =
      RunCommand(absl::StrCat("env PYTHONPATH=" BATON_PYTHON_STUBS " ", python,
                              " " BATON_SOURCE_DIR "/docs/examples/python_stream.py --router ",
                              router.address(), " --max-tokens 2 'Hello there'"));
  EXPECT_EQ(ended.exit_status, 0) << ended.output;
  EXPECT_THAT(ended.output, StartsWith("one two\n"));
  EXPECT_THAT(ended.output, HasSubstr("2 tokens"));
  EXPECT_EQ(seen.text(), "Hello there");
  EXPECT_EQ(seen.sampling().max_tokens(), 2u);
}

}  // namespace
}  // namespace baton
