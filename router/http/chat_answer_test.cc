#include <algorithm>
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
#include "router/http/completion_answer.h"
#include "router/http/completion_answer_fixture.h"

// The JSON of answers to /v1/chat/completions. completion_answer_test.cc has the tests of what all
// answers share.
namespace baton {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;

const CompletionHead kChatHead = {
    .id = "chatcmpl-1", .created = 17, .model = "demo", .system_fingerprint = "f/n"};
constexpr char kChunkBegin[] =
    R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":17,"model":"demo",)"
    R"("system_fingerprint":"f/n","choices":[)";

TEST(ChatAnswerTest, AWholeAnswerHasAMessage) {
  CompletionAnswer answer({.chat = true}, kChatHead, &Demo(), 1);
  EXPECT_FALSE(answer.needs_prompts());
  answer.Add(0, AnswerAccepted{.prompt_tokens = 3});
  answer.Add(0, DeltaOf("Hello \"you\""));
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({.prompt_tokens = 3, .cached_tokens = 2, .completion_tokens = 4}));
  EXPECT_EQ(answer.Whole(),
            R"({"id":"chatcmpl-1","object":"chat.completion","created":17,"model":"demo",)"
            R"("system_fingerprint":"f/n","choices":[{"index":0,"message":{"role":"assistant",)"
            R"("content":"Hello \"you\"","refusal":null},"logprobs":null,"finish_reason":"stop",)"
            R"("stop_reason":null}],"usage":{"prompt_tokens":3,"total_tokens":7,)"
            R"("completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2}}})");
}

TEST(ChatAnswerTest, TheRoleComesWithTheFirstTokenAndNotBefore) {
  CompletionAnswer answer({.chat = true, .stream = true, .include_usage = true}, kChatHead, &Demo(),
                          1);
  answer.Add(0, AnswerAccepted{.prompt_tokens = 3});
  EXPECT_FALSE(answer.ready());
  answer.Add(0, AnswerDelta{.text = "Hi\n",
                            .tokens = {TokenOf(1), TokenOf(2), TokenOf(3)},
                            .text_ends = {0, 2, 3}});
  EXPECT_TRUE(answer.ready());
  answer.Add(0, Stopped());
  answer.Add(0, SummaryOf({.prompt_tokens = 3, .completion_tokens = 3}));
  const auto chunk = [](absl::string_view delta, absl::string_view reason) {
    return absl::StrCat(kChunkBegin, R"({"index":0,"delta":{)", delta,
                        R"(},"logprobs":null,"finish_reason":)", reason,
                        R"(,"stop_reason":null}],"usage":null})");
  };
  EXPECT_THAT(
      EventsOf(FillAll(&answer)),
      ElementsAre(chunk(R"("role":"assistant","content":"")", "null"),
                  chunk(R"("content":"Hi")", "null"), chunk(R"("content":"\n")", "null"),
                  chunk("", R"("stop")"),
                  absl::StrCat(kChunkBegin, R"(],"usage":{"prompt_tokens":3,"total_tokens":6,)"
                                            R"("completion_tokens":3,)"
                                            R"("prompt_tokens_details":{"cached_tokens":0}}})")));
}

TEST(ChatAnswerTest, EachAnswerHasTheRoleOnce) {
  CompletionAnswer answer({.chat = true, .stream = true, .n = 3}, kChatHead, &Demo(), 1);
  answer.Add(0, DeltaOf("a b", 1));
  answer.Add(0, DeltaOf("a b", 0));
  answer.Add(0, DeltaOf("c", 1));
  for (const uint32_t index : {2, 0, 1}) {
    answer.Add(0, Stopped(index));
    answer.Add(0, SummaryOf({}, index));
  }
  std::vector<std::string> deltas(3);
  for (const std::string& event : EventsOf(FillAll(&answer))) {
    const json choice = json::parse(event)["choices"][0];
    absl::StrAppend(&deltas[choice["index"].get<size_t>()], choice["delta"].dump());
  }
  EXPECT_EQ(deltas[0], R"({"content":"a","role":"assistant"}{"content":" b"}{})");
  EXPECT_EQ(deltas[1], R"({"content":"a","role":"assistant"}{"content":" b"}{"content":"c"}{})");
  EXPECT_EQ(deltas[2], R"({"content":"","role":"assistant"})") << "an answer without a token";
}

TEST(ChatAnswerTest, LogprobsAreAListOfTokens) {
  const TokenId half = IdsOf("☘").back();
  ASSERT_FALSE(IsUtf8(Demo().TokenBytes(half)));
  v1::Token first = TokenOf(0, -0.5f);  // "!"
  for (const TokenId id : {2, 0, 3}) {
    first.add_top()->set_token_id(id);
    first.mutable_top()->rbegin()->set_logprob(-0.25f);
  }
  v1::Token second = TokenOf(half, -std::numeric_limits<float>::infinity());
  for (const bool stream : {false, true}) {
    CompletionAnswer answer({.chat = true, .stream = stream, .logprobs = 2}, kChatHead, &Demo(), 1);
    answer.Add(0, AnswerDelta{.text = "!", .tokens = {first, second}, .text_ends = {1, 1}});
    answer.Add(0, Stopped());
    answer.Add(0, SummaryOf({}));
    json content;
    if (stream) {
      const std::vector<std::string> events = EventsOf(FillAll(&answer));
      ASSERT_EQ(events.size(), 3u);
      for (size_t i = 0; i < 2; ++i) {
        const json logprobs = json::parse(events[i])["choices"][0]["logprobs"];
        ASSERT_EQ(logprobs["content"].size(), 1u);
        content.push_back(logprobs["content"][0]);
      }
      EXPECT_TRUE(json::parse(events[2])["choices"][0]["logprobs"].is_null());
    } else {
      const json logprobs = json::parse(answer.Whole())["choices"][0]["logprobs"];
      EXPECT_EQ(logprobs.size(), 1u);
      content = logprobs["content"];
    }
    ASSERT_EQ(content.size(), 2u);
    EXPECT_EQ(content[0], json::parse(R"({"token": "!", "logprob": -0.5, "bytes": [33],
        "top_logprobs": [{"token": "#", "logprob": -0.25, "bytes": [35]},
                         {"token": "!", "logprob": -0.25, "bytes": [33]}]})"));
    EXPECT_EQ(content[1]["logprob"], -9999.0);
    EXPECT_EQ(content[1]["top_logprobs"], json::array());
    EXPECT_TRUE(absl::StartsWith(content[1]["token"].get<std::string>(), "bytes:\\x"));
    std::string bytes;
    for (const json& byte : content[1]["bytes"])
      bytes.push_back(static_cast<char>(byte.get<int>()));
    EXPECT_EQ(bytes, Demo().TokenBytes(half));
  }
}

TEST(ChatAnswerTest, IdsOfThePromptStandBesideTheChoices) {
  std::vector<TokenId> ids(20000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i % 4000);
  for (const bool stream : {false, true}) {
    CompletionAnswer answer({.chat = true, .stream = stream, .return_token_ids = true}, kChatHead,
                            &Demo(), 1);
    ASSERT_TRUE(answer.needs_prompts());
    answer.SetPrompt(0, "", ids);
    answer.Add(0, AnswerDelta{.text = "!", .tokens = {TokenOf(0)}, .text_ends = {1}});
    std::string out;
    if (stream) {
      EXPECT_TRUE(answer.Fill(1000, &out));
      EXPECT_LT(out.size(), 6000u);
    }
    answer.Add(0, Stopped());
    answer.Add(0, SummaryOf({}));
    std::vector<std::string> events = {stream ? "" : answer.Whole()};
    if (stream) events = EventsOf(out + FillAll(&answer));
    ASSERT_EQ(events.size(), stream ? 2u : 1u);
    const json event = json::parse(events[0]);
    EXPECT_EQ(event["prompt_token_ids"], json(ids));
    EXPECT_EQ(event["choices"][0]["token_ids"], json::parse("[0]"));
    EXPECT_EQ(event["choices"][0].count("prompt_token_ids"), 0u);
    if (!stream) continue;
    const json finish = json::parse(events[1]);
    EXPECT_EQ(finish.count("prompt_token_ids"), 0u);
    EXPECT_EQ(finish["choices"][0]["token_ids"], json::array());
  }
}

TEST(ChatAnswerTest, PromptLogprobsStandBesideTheChoices) {
  CompletionAnswer answer({.chat = true, .prompt_logprobs = 0, .n = 2}, kChatHead, &Demo(), 1);
  answer.Add(0, PromptLogprobs{.tokens = {TokenOf(0), TokenOf(1, -0.5f)}});
  for (const uint32_t index : {0, 1}) {
    answer.Add(0, Stopped(index));
    answer.Add(0, SummaryOf({}, index));
  }
  const json whole = json::parse(answer.Whole());
  EXPECT_EQ(whole["prompt_logprobs"], json::parse(R"([null,
      {"1": {"logprob": -0.5, "rank": null, "decoded_token": "\""}}])"));
  EXPECT_EQ(whole["choices"][0].count("prompt_logprobs"), 0u);
}

TEST(ChatAnswerTest, AnErrorIsTheLastEventBeforeDone) {
  CompletionAnswer answer({.chat = true, .stream = true}, kChatHead, &Demo(), 1);
  answer.Add(0, AnswerDelta{.text = "a", .tokens = {TokenOf(1)}, .text_ends = {1}});
  answer.Fail(absl::UnavailableError("workers are gone"));
  const std::vector<std::string> events = EventsOf(FillAll(&answer));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(json::parse(events[1])["error"]["message"], "workers are gone");
}

// Puts the chunks of a stream together to the whole answer, as a client does.
json ChatJoinedOf(const std::vector<std::string>& events, size_t answers) {
  json whole = {{"object", "chat.completion"}};
  std::vector<json> choices(answers);
  for (const std::string& text : events) {
    json event = json::parse(text);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    for (json& part : event["choices"]) {
      json& choice = choices.at(part["index"].get<size_t>());
      const bool first = choice.is_null();
      if (first) {
        choice = {{"index", part["index"]},
                  {"message", {{"content", ""}, {"refusal", nullptr}}},
                  {"logprobs", nullptr}};
      } else {
        EXPECT_TRUE(choice["finish_reason"].is_null()) << text;
      }
      json& message = choice["message"];
      EXPECT_EQ(part["delta"].count("role"), first ? 1u : 0u) << text;
      if (first) message["role"] = part["delta"]["role"];
      if (part["delta"].count("content") > 0) {
        message["content"] =
            message["content"].get<std::string>() + part["delta"]["content"].get<std::string>();
      } else {
        EXPECT_FALSE(part["finish_reason"].is_null()) << text;
      }
      for (const char* name : {"finish_reason", "stop_reason"}) choice[name] = part[name];
      if (part.count("token_ids") > 0) {
        json& ids = choice["token_ids"];
        if (ids.is_null()) ids = json::array();
        ids.insert(ids.end(), part["token_ids"].begin(), part["token_ids"].end());
      }
      if (part["logprobs"].is_null()) continue;
      for (json& token : part["logprobs"]["content"]) {
        choice["logprobs"]["content"].push_back(std::move(token));
      }
    }
    for (const auto& [name, value] : event.items()) {
      if (name != "choices" && name != "object") whole[name] = value;
    }
  }
  whole["choices"] = choices;
  return whole;
}

TEST(ChatAnswerTest, AStreamPutTogetherIsTheWholeAnswerHoweverItIsCut) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    CompletionShape shape = {.chat = true};
    if (random() % 2 == 0) shape.logprobs = static_cast<int>(random() % 4);
    shape.return_token_ids = random() % 2 == 0;
    shape.timing = random() % 2 == 0;
    shape.n = static_cast<int>(random() % 4 + 1);
    shape.stop_token_ids = {4081};
    CompletionShape stream_shape = shape;
    stream_shape.stream = true;
    stream_shape.include_usage = true;
    stream_shape.continuous_usage = random() % 2 == 0;

    CompletionAnswer whole(shape, kChatHead, &Demo(), 1);
    CompletionAnswer stream(stream_shape, kChatHead, &Demo(), 1);
    std::vector<TokenId> ids(random() % 2000 + 1);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % 4096);
    if (shape.return_token_ids) {
      whole.SetPrompt(0, "", ids);
      stream.SetPrompt(0, "", ids);
    }
    std::string out;
    for (const ClientEvent& event :
         RandomCore(static_cast<uint32_t>(random()), shape, ids).Events()) {
      whole.Add(0, event);
      stream.Add(0, event);
      while (random() % 2 == 0) stream.Fill(random() % 2000, &out);
    }
    while (stream.Fill(random() % 3000 + 1, &out)) {
    }
    EXPECT_FALSE(stream.ready());
    ASSERT_TRUE(whole.complete() && stream.complete());
    EXPECT_EQ(ChatJoinedOf(EventsOf(out), static_cast<size_t>(shape.n)),
              json::parse(whole.Whole()));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace baton
