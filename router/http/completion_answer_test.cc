#include "router/http/completion_answer.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json_value.h"
#include "router/http/completion_answer_fixture.h"

namespace baton {
namespace {

using nlohmann::json;
using testing::ElementsAre;

const CompletionHead kHead = {
    .id = "cmpl-1", .created = 17, .model = "demo", .system_fingerprint = "f/n"};
constexpr char kBegin[] =
    R"({"id":"cmpl-1","object":"text_completion","created":17,"model":"demo",)"
    R"("system_fingerprint":"f/n","choices":[)";

TEST(CompletionAnswerTest, AStreamHasOneEventForEachTokenAndOneForTheEnd) {
  CompletionAnswer answer({.stream = true}, kHead, &Demo(), 1);
  answer.Add(0, AnswerAccepted{.prompt_tokens = 3});
  EXPECT_FALSE(answer.ready());
  AnswerDelta delta = {
      .text = "Hi \"you\"", .tokens = {TokenOf(1), TokenOf(2), TokenOf(3)}, .text_ends = {2, 2, 3}};
  answer.Add(0, delta);
  EXPECT_TRUE(answer.ready());
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({.prompt_tokens = 3, .completion_tokens = 3}));
  EXPECT_THAT(
      EventsOf(FillAll(&answer)),
      ElementsAre(
          absl::StrCat(kBegin, R"({"index":0,"text":"Hi","logprobs":null,"finish_reason":null,)"
                               R"("stop_reason":null}]})"),
          absl::StrCat(kBegin, R"({"index":0,"text":"","logprobs":null,"finish_reason":null,)"
                               R"("stop_reason":null}]})"),
          absl::StrCat(kBegin,
                       R"({"index":0,"text":" \"you\"","logprobs":null,"finish_reason":null,)"
                       R"("stop_reason":null}]})"),
          absl::StrCat(kBegin, R"({"index":0,"text":"","logprobs":null,"finish_reason":"stop",)"
                               R"("stop_reason":null}]})")));
  EXPECT_FALSE(answer.ready());
}

TEST(CompletionAnswerTest, AWholeAnswerHasVllmsShape) {
  CompletionAnswer answer({}, kHead, &Demo(), 1);
  answer.Add(0, AnswerAccepted{.prompt_tokens = 3});
  answer.Add(0, DeltaOf("Hello you"));
  answer.Add(0, AnswerDelta{.text = "!"});
  EXPECT_FALSE(answer.complete());
  answer.Add(0, AnswerFinished{.reason = v1::FINISH_REASON_LENGTH});
  answer.Add(0, SummaryOf({.prompt_tokens = 3, .cached_tokens = 2, .completion_tokens = 4}));
  ASSERT_TRUE(answer.complete());
  EXPECT_EQ(
      answer.Whole(),
      absl::StrCat(kBegin, R"({"index":0,"text":"Hello you!","logprobs":null,)"
                           R"("finish_reason":"length","stop_reason":null}],)"
                           R"("usage":{"prompt_tokens":3,"total_tokens":7,"completion_tokens":4,)"
                           R"("prompt_tokens_details":{"cached_tokens":2}}})"));
}

TEST(CompletionAnswerTest, TheUsageHasAnEventOfItsOwnOnlyWhereAskedFor) {
  CompletionAnswer answer({.stream = true, .include_usage = true}, kHead, &Demo(), 1);
  answer.Add(0, AnswerDelta{.text = "a", .tokens = {TokenOf(1)}, .text_ends = {1}});
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({.prompt_tokens = 3, .cached_tokens = 1, .completion_tokens = 2}));
  const std::vector<std::string> events = EventsOf(FillAll(&answer));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0], absl::StrCat(kBegin, R"({"index":0,"text":"a","logprobs":null,)"
                                            R"("finish_reason":null,"stop_reason":null}],)"
                                            R"("usage":null})"));
  EXPECT_EQ(events[2], absl::StrCat(kBegin, R"(],"usage":{"prompt_tokens":3,"total_tokens":5,)"
                                            R"("completion_tokens":2,)"
                                            R"("prompt_tokens_details":{"cached_tokens":1}}})"));
}

TEST(CompletionAnswerTest, ContinuousUsageCountsTheTokensOfEachAnswer) {
  CompletionAnswer answer({.stream = true, .include_usage = true, .continuous_usage = true, .n = 2},
                          kHead, &Demo(), 1);
  answer.Add(0, AnswerAccepted{.prompt_tokens = 3});
  answer.Add(0, DeltaOf("Hello you", 1));
  answer.Add(0, DeltaOf("Hi", 0));
  std::string out;
  EXPECT_TRUE(answer.Fill(100000, &out));
  std::vector<json> usages;
  for (const std::string& event : EventsOf(out + "data: [DONE]\n\n")) {
    usages.push_back(json::parse(event)["usage"]);
  }
  ASSERT_GE(usages.size(), 3u);
  EXPECT_EQ(usages[0],
            json::parse(R"({"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4})"));
  EXPECT_EQ(usages[1]["completion_tokens"], 2);
  EXPECT_EQ(usages.back()["completion_tokens"], IdsOf("Hi").size());
}

TEST(CompletionAnswerTest, AnswersOfAllPromptsHaveTheirIndexAndTheUsageIsSummed) {
  CompletionAnswer answer({.n = 2}, kHead, &Demo(), 2);
  for (const size_t prompt : {1, 0}) {
    answer.Add(prompt, AnswerAccepted{.prompt_tokens = 10});
    for (const uint32_t index : {1, 0}) {
      answer.Add(prompt, AnswerDelta{.index = index, .text = absl::StrCat(prompt, " ", index)});
      answer.Add(prompt, Stopped(index));
      // Only the last summary has the total, with the prompt counted once.
      AnswerSummary summary = {.index = index,
                               .usage = {.prompt_tokens = 10, .completion_tokens = 2}};
      if (index == 0) {
        summary.total = {.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 4};
      }
      answer.Add(prompt, summary);
    }
  }
  const json whole = json::parse(answer.Whole());
  ASSERT_EQ(whole["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["text"], absl::StrCat(i / 2, " ", i % 2));
  }
  EXPECT_EQ(whole["usage"], json::parse(R"({"prompt_tokens": 20, "completion_tokens": 8,
      "total_tokens": 28, "prompt_tokens_details": {"cached_tokens": 8}})"));
}

TEST(CompletionAnswerTest, StopReasonNamesWhatTheRequestAskedFor) {
  CompletionShape shape = {.stop = {"END", "<|user|>"}, .stop_token_ids = {7, 4081}};
  const auto reasons = [&](const AnswerFinished& finished) {
    CompletionAnswer answer(shape, kHead, &Demo(), 1);
    answer.Add(0, finished);
    answer.Add(0, SummaryOf({}));
    const json choice = json::parse(answer.Whole())["choices"][0];
    return absl::StrCat(choice["finish_reason"].get<std::string>(), " ",
                        choice["stop_reason"].dump());
  };
  EXPECT_EQ(reasons({.reason = v1::FINISH_REASON_STOP, .matched_stop = "END"}), "stop \"END\"");
  EXPECT_EQ(reasons({.reason = v1::FINISH_REASON_STOP, .stop_token = 7}), "stop 7");
  // 4082 is the token <|user|>.
  EXPECT_EQ(reasons({.reason = v1::FINISH_REASON_STOP, .stop_token = 4082}), "stop \"<|user|>\"");
  EXPECT_EQ(reasons({.reason = v1::FINISH_REASON_STOP, .stop_token = 4084}), "stop null");
  EXPECT_EQ(reasons({.reason = v1::FINISH_REASON_LENGTH}), "length null");
}

TEST(CompletionAnswerTest, LogprobsHaveTheFieldsOfOpenAi) {
  const std::vector<TokenId> ids = IdsOf("ab☘");
  ASSERT_GE(ids.size(), 3u);
  const TokenId half = ids[ids.size() - 1];
  ASSERT_FALSE(IsUtf8(Demo().TokenBytes(half)));
  CompletionAnswer answer({.logprobs = 1}, kHead, &Demo(), 1);
  v1::Token first = TokenOf(0, -0.5f);  // "!"
  for (const TokenId id : {2, 0, 3}) {
    first.add_top()->set_token_id(id);
    first.mutable_top()->rbegin()->set_logprob(-0.25f);
  }
  answer.Add(0, AnswerDelta{.text = "ä!", .tokens = {first}, .text_ends = {3}});
  answer.Add(0, AnswerDelta{.text = "",
                            .tokens = {TokenOf(half, -std::numeric_limits<float>::infinity())},
                            .text_ends = {0}});
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({}));
  const json logprobs = json::parse(answer.Whole())["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["token_logprobs"], json({-0.5, -9999.0}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 2}));
  EXPECT_EQ(logprobs["tokens"][0], "!");
  EXPECT_EQ(logprobs["tokens"][1].get<std::string>().substr(0, 8), "bytes:\\x");
  // The token itself comes first, beside one alternative.
  EXPECT_EQ(logprobs["top_logprobs"][0], json::parse(R"({"!": -0.5, "#": -0.25})"));
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 1u);
  EXPECT_EQ(logprobs["bytes"][0], json::parse("[33]"));
  EXPECT_EQ(logprobs["bytes"][1].size(), Demo().TokenBytes(half).size());
  EXPECT_EQ(logprobs.size(), 5u);
}

TEST(CompletionAnswerTest, BytesOfPartsOfCharactersAreWrittenAsOpenAiDoes) {
  std::string bytes;
  for (const TokenId id : IdsOf("☘")) {
    const std::string label = TokenLabel(Demo(), id);
    EXPECT_TRUE(absl::StartsWith(label, "bytes:")) << label;
    absl::StrAppend(&bytes, label.substr(6));
  }
  EXPECT_EQ(bytes, R"(\xe2\x98\x98)");
}

TEST(CompletionAnswerTest, AnEchoedPromptComesFirstWithItsLogprobs) {
  const std::string prompt = "<|user|>Hi ü";
  const std::vector<TokenId> ids = IdsOf(prompt);
  CompletionAnswer answer({.echo = true, .logprobs = 0}, kHead, &Demo(), 1);
  ASSERT_TRUE(answer.needs_prompts());
  answer.SetPrompt(0, prompt, ids);
  PromptLogprobs scores;
  for (size_t i = 0; i < ids.size(); ++i) {
    scores.tokens.push_back(i == 0 ? TokenOf(ids[i]) : TokenOf(ids[i], -1));
  }
  answer.Add(0, scores);
  answer.Add(0, AnswerDelta{.text = "!", .tokens = {TokenOf(0, -2)}, .text_ends = {1}});
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({}));
  const json choice = json::parse(answer.Whole())["choices"][0];
  EXPECT_EQ(choice["text"], prompt + "!");
  const json& logprobs = choice["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), ids.size() + 1);
  EXPECT_EQ(logprobs["token_logprobs"][0], json());
  EXPECT_EQ(logprobs["top_logprobs"][0], json());
  EXPECT_EQ(logprobs["tokens"][0], "<|user|>");
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  EXPECT_EQ(logprobs["text_offset"][1], 8);
  EXPECT_EQ(logprobs["token_logprobs"][1], -1.0);
  EXPECT_EQ(logprobs["text_offset"][ids.size()], 12);  // "<|user|>Hi ü" has 12 characters.
  EXPECT_EQ(logprobs["token_logprobs"][ids.size()], -2.0);
}

TEST(CompletionAnswerTest, ATokenThatThePromptsTextDoesNotHaveTakesNoneOfIt) {
  PromptWalk walk("Hi you");
  EXPECT_EQ(walk.Next(Demo(), 4080), "");  // <|begin_of_text|>
  std::string text;
  for (const TokenId id : IdsOf("Hi you")) absl::StrAppend(&text, walk.Next(Demo(), id));
  EXPECT_EQ(text, "Hi you");
  EXPECT_EQ(walk.Next(Demo(), 0), "");
}

TEST(CompletionAnswerTest, APromptOfIdsIsEchoedAsItsText) {
  CompletionAnswer answer({.echo = true}, kHead, &Demo(), 1);
  answer.SetPrompt(0, "", IdsOf("<|user|>Hi"));
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({}));
  EXPECT_EQ(json::parse(answer.Whole())["choices"][0]["text"], "<|user|>Hi");
}

TEST(CompletionAnswerTest, AScoredPromptHasNoTokenOfItsOwn) {
  for (const bool stream : {false, true}) {
    CompletionAnswer answer({.stream = stream,
                             .include_usage = stream,
                             .echo = true,
                             .score_only = true,
                             .logprobs = 0},
                            kHead, &Demo(), 1);
    answer.SetPrompt(0, "!\"", {0, 1});
    answer.Add(0, PromptLogprobs{.tokens = {TokenOf(0), TokenOf(1, -1)}});
    EXPECT_FALSE(answer.ready());
    answer.Add(0, AnswerDelta{.text = "#", .tokens = {TokenOf(2, -3)}, .text_ends = {1}});
    answer.Add(0, Stopped());
    answer.Add(0, SummaryOf({.prompt_tokens = 2, .completion_tokens = 1}));
    if (!stream) {
      const json whole = json::parse(answer.Whole());
      EXPECT_EQ(whole["choices"][0]["text"], "!\"");
      EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
      EXPECT_EQ(whole["choices"][0]["logprobs"]["token_logprobs"], json::parse("[null, -1.0]"));
      EXPECT_EQ(whole["usage"]["completion_tokens"], 0);
      continue;
    }
    const std::vector<std::string> events = EventsOf(FillAll(&answer));
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(json::parse(events[0])["choices"][0]["text"], "!\"");
    EXPECT_EQ(json::parse(events[1])["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(json::parse(events[2])["usage"]["total_tokens"], 2);
  }
}

TEST(CompletionAnswerTest, PromptLogprobsHaveVllmsShape) {
  CompletionAnswer answer({.prompt_logprobs = 1}, kHead, &Demo(), 1);
  v1::Token second = TokenOf(1, -std::numeric_limits<float>::infinity());
  v1::Token third = TokenOf(2, -0.5f);
  for (v1::Token* token : {&second, &third}) {
    token->add_top()->set_token_id(2);
    token->mutable_top(0)->set_logprob(-0.5f);
  }
  answer.Add(0, PromptLogprobs{.tokens = {TokenOf(0), second}});
  answer.Add(0, PromptLogprobs{.tokens = {third}});
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({}));
  EXPECT_EQ(json::parse(answer.Whole())["choices"][0]["prompt_logprobs"], json::parse(R"([
      null,
      {"1": {"logprob": -9999.0, "rank": null, "decoded_token": "\""},
       "2": {"logprob": -0.5, "rank": 1, "decoded_token": "#"}},
      {"2": {"logprob": -0.5, "rank": 1, "decoded_token": "#"}}])"));
}

TEST(CompletionAnswerTest, IdsOfALongPromptComeInPieces) {
  CompletionAnswer answer({.stream = true, .return_token_ids = true}, kHead, &Demo(), 1);
  std::vector<TokenId> ids(20000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i % 4000);
  answer.SetPrompt(0, "", ids);
  answer.Add(0, AnswerDelta{.text = "!", .tokens = {TokenOf(0)}, .text_ends = {1}});
  std::string out;
  EXPECT_TRUE(answer.Fill(1000, &out));
  EXPECT_LT(out.size(), 6000u);
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({}));
  const std::vector<std::string> events = EventsOf(out + FillAll(&answer));
  ASSERT_EQ(events.size(), 2u);
  const json choice = json::parse(events[0])["choices"][0];
  EXPECT_EQ(choice["prompt_token_ids"], json(ids));
  EXPECT_EQ(choice["token_ids"], json::parse("[0]"));
  EXPECT_EQ(json::parse(events[1])["choices"][0].count("prompt_token_ids"), 0u);
}

TEST(CompletionAnswerTest, ALongEchoComesInSeveralEvents) {
  CompletionAnswer answer({.stream = true, .echo = true}, kHead, &Demo(), 1);
  std::string prompt;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&prompt, "ä€");
  answer.SetPrompt(0, prompt, {1});
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({}));
  std::string text;
  const std::vector<std::string> events = EventsOf(FillAll(&answer));
  EXPECT_EQ(events.size(), 8u);  // 25,000 bytes in pieces of up to 4,096, and the end.
  for (const std::string& event : events) {
    EXPECT_LT(event.size(), 5000u);
    text += json::parse(event)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, prompt);
}

TEST(CompletionAnswerTest, AnErrorIsTheLastEventBeforeDone) {
  CompletionAnswer answer({.stream = true, .include_usage = true}, kHead, &Demo(), 1);
  answer.Add(0, AnswerDelta{.text = "a", .tokens = {TokenOf(1)}, .text_ends = {1}});
  answer.Fail(absl::UnavailableError("workers are gone"));
  answer.Fail(absl::InternalError("another"));
  answer.Add(0, AnswerDelta{.text = "b", .tokens = {TokenOf(1)}, .text_ends = {1}});
  EXPECT_TRUE(answer.ready());
  const std::vector<std::string> events = EventsOf(FillAll(&answer));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1], R"({"error":{"message":"workers are gone","type":"server_error",)"
                       R"("param":null,"code":"unavailable"}})");
}

TEST(CompletionAnswerTest, AFailureAfterTheEndChangesNothing) {
  CompletionAnswer answer({.stream = true}, kHead, &Demo(), 1);
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({}));
  answer.Fail(absl::CancelledError("late"));
  EXPECT_EQ(EventsOf(FillAll(&answer)).size(), 1u);
}

TEST(CompletionAnswerTest, TimingComesWithTheUsageWhereAskedFor) {
  AnswerSummary summary = SummaryOf({});
  summary.timing = {.queue_us = 1500,
                    .prefill_us = 2000,
                    .handover_hidden_us = 7,
                    .handover_exposed_us = 250,
                    .decode_wait_us = 1,
                    .decode_us = 3000,
                    .ttft_us = 4000,
                    .total_us = 9000};
  CompletionAnswer one({.timing = true}, kHead, &Demo(), 1);
  one.Add(0, Stopped());
  one.Add(0, summary);
  const json expected = json::parse(
      R"({"queue_ms": 1.5, "prefill_ms": 2.0, "handover_ms": 0.25, "handover_hidden_ms": 0.007,
          "decode_wait_ms": 0.001, "decode_ms": 3.0, "ttft_ms": 4.0, "total_ms": 9.0})");
  EXPECT_EQ(json::parse(one.Whole())["timing"], expected);
  // Several answers have a list.
  CompletionAnswer two({.stream = true, .include_usage = true, .timing = true}, kHead, &Demo(), 2);
  for (const size_t prompt : {0, 1}) {
    two.Add(prompt, Stopped());
    two.Add(prompt, summary);
  }
  const json timing = json::parse(EventsOf(FillAll(&two)).back())["timing"];
  ASSERT_EQ(timing.size(), 2u);
  json second = expected;
  second["index"] = 1;
  EXPECT_EQ(timing[1], second);
}

TEST(CompletionAnswerTest, BytesGrowWithEventsAndFallAsTheyAreFormatted) {
  CompletionAnswer answer({.stream = true}, kHead, &Demo(), 1);
  const size_t before = answer.bytes();
  for (int i = 0; i < 100; ++i) answer.Add(0, DeltaOf("Hello you"));
  EXPECT_GT(answer.bytes(), before + 100 * sizeof(v1::Token));
  std::string out;
  answer.Fill(16384, &out);
  EXPECT_GE(out.size(), 16384u);
  EXPECT_LT(out.size(), 17000u);
  EXPECT_TRUE(answer.ready());
  while (answer.ready()) answer.Fill(16384, &out);
  EXPECT_EQ(answer.bytes(), before);
}

// Puts the events of a stream together to the whole answer.
json JoinedOf(const std::vector<std::string>& events) {
  json whole;
  std::vector<json> choices;
  for (const std::string& text : events) {
    json event = json::parse(text);
    for (json& part : event["choices"]) {
      const auto index = part["index"].get<size_t>();
      if (choices.size() <= index) choices.resize(index + 1);
      json& choice = choices[index];
      if (choice.is_null()) {
        choice = std::move(part);
        continue;
      }
      EXPECT_TRUE(choice["finish_reason"].is_null()) << text;
      choice["text"] = choice["text"].get<std::string>() + part["text"].get<std::string>();
      for (const char* name : {"finish_reason", "stop_reason"}) choice[name] = part[name];
      if (part.count("token_ids") > 0) {
        choice["token_ids"].insert(choice["token_ids"].end(), part["token_ids"].begin(),
                                   part["token_ids"].end());
      }
      if (part["logprobs"].is_null()) continue;
      for (auto& [name, list] : part["logprobs"].items()) {
        json& to = choice["logprobs"][name];
        for (json& value : list) to.push_back(std::move(value));
      }
    }
    for (const auto& [name, value] : event.items()) {
      if (name != "choices") whole[name] = value;
    }
  }
  whole["choices"] = choices;
  return whole;
}

TEST(CompletionAnswerTest, AStreamPutTogetherIsTheWholeAnswerHoweverItIsCut) {
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    CompletionShape shape;
    shape.echo = random() % 2 == 0;
    if (random() % 2 == 0) shape.logprobs = static_cast<int>(random() % 4);
    shape.return_token_ids = random() % 2 == 0;
    shape.score_only = shape.echo && random() % 4 == 0;
    shape.timing = random() % 2 == 0;
    shape.n = static_cast<int>(random() % 3 + 1);
    shape.stop_token_ids = {4081};
    CompletionShape stream_shape = shape;
    stream_shape.stream = true;
    stream_shape.include_usage = true;
    stream_shape.continuous_usage = random() % 2 == 0;

    const size_t prompts = random() % 3 + 1;
    CompletionAnswer whole(shape, kHead, &Demo(), prompts);
    CompletionAnswer stream(stream_shape, kHead, &Demo(), prompts);
    std::vector<std::vector<ClientEvent>> events;
    for (size_t i = 0; i < prompts; ++i) {
      std::string text;
      for (size_t words = random() % 60 + 1; words > 0; --words) {
        text +=
            std::vector<std::string>{"the ", "ü€", "☘", "<|user|>", "\n\"", "fox"}[random() % 6];
      }
      const std::vector<TokenId> ids = IdsOf(text);
      if (random() % 3 == 0) text.clear();
      whole.SetPrompt(i, text, ids);
      stream.SetPrompt(i, text, ids);
      events.push_back(RandomCore(static_cast<uint32_t>(random()), shape, ids).Events());
    }
    std::vector<size_t> next(prompts);
    std::string out;
    for (size_t left = prompts; left > 0;) {
      const size_t i = random() % prompts;
      if (next[i] < events[i].size()) {
        whole.Add(i, events[i][next[i]]);
        stream.Add(i, events[i][next[i]]);
        if (++next[i] == events[i].size()) --left;
      }
      if (random() % 2 == 0) {
        const size_t bytes = random() % 5000;
        const size_t before = out.size();
        const bool more = stream.Fill(bytes, &out);
        EXPECT_LT(out.size() - before, bytes + 40000);
        // The stream may be complete once the last event was added.
        EXPECT_TRUE(more || left == 0);
      }
    }
    while (stream.Fill(random() % 3000 + 1, &out)) {
    }
    EXPECT_FALSE(stream.ready());
    ASSERT_TRUE(whole.complete() && stream.complete());
    json expected = json::parse(whole.Whole());
    // The finish event of a stream has no logprobs of its own.
    for (json& choice : expected["choices"]) {
      if (choice["logprobs"].is_null()) continue;
      if (choice["logprobs"]["tokens"].empty()) choice["logprobs"] = nullptr;
    }
    EXPECT_EQ(JoinedOf(EventsOf(out)), expected);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace baton
