#include "router/http/completion_request.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Ids = std::vector<TokenId>;

CompletionRequest Parsed(absl::string_view body, const CompletionSettings& settings = {}) {
  auto request = ParseCompletionRequest(body, settings);
  EXPECT_TRUE(request.ok()) << body << ": " << request.status();
  return request.ok() ? *std::move(request) : CompletionRequest();
}

// Returns a body with the prompt "x" and other members.
std::string With(absl::string_view members) {
  return absl::StrCat(R"({"prompt": "x", )", members, "}");
}

v1::SamplingParams SamplingWith(absl::string_view members) {
  const CompletionRequest request = Parsed(With(members));
  return request.prompts.empty() ? v1::SamplingParams() : request.prompts[0].sampling;
}

absl::Status RefusalOf(absl::string_view body, const CompletionSettings& settings = {}) {
  const auto request = ParseCompletionRequest(body, settings);
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << body;
  return request.status();
}

TEST(CompletionRequestTest, APromptAloneHasTheDefaultsOfThisDoor) {
  const CompletionRequest request = Parsed(R"({"prompt": "Hello"})");
  ASSERT_EQ(request.prompts.size(), 1u);
  const ClientRequest& client = request.prompts[0];
  EXPECT_EQ(std::get<std::string>(client.prompt), "Hello");
  EXPECT_EQ(client.model, "");
  EXPECT_TRUE(client.parse_special);
  EXPECT_EQ(client.add_special, std::nullopt);
  EXPECT_TRUE(client.skip_special);
  v1::SamplingParams expected;
  expected.set_max_tokens(16);
  expected.set_temperature(1);
  EXPECT_EQ(client.sampling.SerializeAsString(), expected.SerializeAsString());
  EXPECT_FALSE(request.shape.stream || request.shape.echo || request.shape.score_only ||
               request.shape.return_token_ids || request.shape.logprobs);
  EXPECT_EQ(request.shape.n, 1);
}

TEST(CompletionRequestTest, TheModelsTemperatureCountsIfItHasOne) {
  const CompletionSettings settings = {.model_has_temperature = true};
  EXPECT_FALSE(Parsed(R"({"prompt": "x"})", settings).prompts[0].sampling.has_temperature());
  EXPECT_EQ(Parsed(With(R"("temperature": 0.5)"), settings).prompts[0].sampling.temperature(), 0.5);
}

TEST(CompletionRequestTest, PromptsAreTextsOrIds) {
  const auto prompts = [](absl::string_view prompt) {
    std::vector<decltype(ClientRequest::prompt)> found;
    for (const ClientRequest& client :
         Parsed(absl::StrCat(R"({"prompt": )", prompt, "}")).prompts) {
      found.push_back(client.prompt);
    }
    return found;
  };
  EXPECT_THAT(prompts(R"("a")"), ElementsAre("a"));
  EXPECT_THAT(prompts(R"(["a", "", "b"])"), ElementsAre("a", "", "b"));
  EXPECT_THAT(prompts("[1, 2, 3.0]"), ElementsAre(Ids{1, 2, 3}));
  EXPECT_THAT(prompts("[[1, 2], [3]]"), ElementsAre(Ids{1, 2}, Ids{3}));
}

TEST(CompletionRequestTest, OptionsForTextAreNotSetBesideIds) {
  const CompletionRequest request = Parsed(R"({"prompt": [1], "add_special_tokens": false})");
  EXPECT_FALSE(request.prompts[0].parse_special);
  EXPECT_EQ(request.prompts[0].add_special, std::nullopt);
  EXPECT_EQ(Parsed(With(R"("add_special_tokens": false)")).prompts[0].add_special, false);
}

TEST(CompletionRequestTest, AllFieldsReachTheCore) {
  const v1::SamplingParams sampling = SamplingWith(R"(
      "model": "m", "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 5, "min_p": 0.125,
      "seed": 9, "n": 3, "stop": ["a", "b"], "stop_token_ids": [1, 2], "ignore_eos": true,
      "min_tokens": 2, "logprobs": 4, "repetition_penalty": 1.5, "presence_penalty": -0.5,
      "frequency_penalty": 2, "logit_bias": {"5": -100, "6": 1.5}, "bad_words": ["no"],
      "prompt_logprobs": 0, "best_of": 3, "user": "me", "cache_salt": "s")");
  EXPECT_EQ(sampling.max_tokens(), 7u);
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.25f);
  EXPECT_EQ(sampling.top_k(), 5u);
  EXPECT_EQ(sampling.min_p(), 0.125f);
  EXPECT_EQ(sampling.seed(), 9u);
  EXPECT_EQ(sampling.n(), 3u);
  EXPECT_THAT(sampling.stop(), ElementsAre("a", "b"));
  EXPECT_THAT(sampling.stop_token_ids(), ElementsAre(1, 2));
  EXPECT_TRUE(sampling.ignore_eos());
  EXPECT_EQ(sampling.min_tokens(), 2u);
  EXPECT_EQ(sampling.logprobs(), 4u);
  EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
  EXPECT_EQ(sampling.presence_penalty(), -0.5f);
  EXPECT_EQ(sampling.frequency_penalty(), 2.0f);
  EXPECT_EQ(sampling.logit_bias().at(5), -100.0f);
  EXPECT_EQ(sampling.logit_bias().at(6), 1.5f);
  EXPECT_THAT(sampling.bad_words(), ElementsAre("no"));
  EXPECT_TRUE(sampling.has_prompt_logprobs());
  EXPECT_EQ(sampling.prompt_logprobs(), 0u);
  const CompletionRequest request = Parsed(With(
      R"("model": "m", "cache_salt": "s", "skip_special_tokens": false, "stop": "z", "n": 2)"));
  EXPECT_EQ(request.prompts[0].model, "m");
  EXPECT_EQ(request.prompts[0].cache_salt, "s");
  EXPECT_FALSE(request.prompts[0].skip_special);
  EXPECT_THAT(request.shape.stop, ElementsAre("z"));
  EXPECT_THAT(request.prompts[0].sampling.stop(), ElementsAre("z"));
}

TEST(CompletionRequestTest, EveryPromptHasTheSameOptions) {
  const CompletionRequest request = Parsed(R"({"prompt": ["a", "b"], "seed": 5, "model": "m"})");
  ASSERT_EQ(request.prompts.size(), 2u);
  for (const ClientRequest& client : request.prompts) {
    EXPECT_EQ(client.sampling.seed(), 5u);
    EXPECT_EQ(client.model, "m");
  }
}

TEST(CompletionRequestTest, SeedsMayBeNegativeOrUseAll64Bits) {
  EXPECT_EQ(SamplingWith(R"("seed": -1)").seed(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(SamplingWith(R"("seed": -9223372036854775808)").seed(), uint64_t{1} << 63);
  EXPECT_EQ(SamplingWith(R"("seed": 18446744073709551615)").seed(),
            std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(SamplingWith(R"("seed": 7.0)").seed(), 7u);
}

TEST(CompletionRequestTest, NullMeansAbsent) {
  const char* const names[] = {"model",
                               "max_tokens",
                               "temperature",
                               "top_p",
                               "top_k",
                               "min_p",
                               "seed",
                               "n",
                               "stop",
                               "stop_token_ids",
                               "ignore_eos",
                               "min_tokens",
                               "logprobs",
                               "repetition_penalty",
                               "presence_penalty",
                               "frequency_penalty",
                               "logit_bias",
                               "bad_words",
                               "prompt_logprobs",
                               "best_of",
                               "user",
                               "cache_salt",
                               "stream",
                               "stream_options",
                               "echo",
                               "return_token_ids",
                               "skip_special_tokens",
                               "add_special_tokens",
                               "priority",
                               "response_format",
                               "suffix",
                               "guided_json",
                               "something"};
  std::string members;
  for (const char* name : names) absl::StrAppend(&members, "\"", name, "\": null,");
  const CompletionRequest request =
      Parsed(absl::StrCat("{", members, R"("prompt": "x"})"), {.refuse_unknown_fields = true});
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(request.prompts[0].sampling.SerializeAsString(),
            Parsed(R"({"prompt": "x"})").prompts[0].sampling.SerializeAsString());
  EXPECT_THAT(request.ignored.names, IsEmpty());
  EXPECT_EQ(ParameterOf(RefusalOf(R"({"prompt": null})")), "prompt");
}

TEST(CompletionRequestTest, TopKOfMinusOneKeepsAllTokens) {
  const v1::SamplingParams sampling = SamplingWith(R"("top_k": -1)");
  EXPECT_TRUE(sampling.has_top_k());
  EXPECT_EQ(sampling.top_k(), 0u);
}

TEST(CompletionRequestTest, NoTokensWithEchoScoresThePrompt) {
  const CompletionRequest request = Parsed(With(R"("max_tokens": 0, "echo": true, "logprobs": 2)"));
  EXPECT_TRUE(request.shape.score_only);
  EXPECT_EQ(request.prompts[0].sampling.max_tokens(), 1u);
  EXPECT_EQ(request.prompts[0].sampling.prompt_logprobs(), 2u);
  // Scores that were not asked for are not computed.
  EXPECT_FALSE(SamplingWith(R"("max_tokens": 0, "echo": true)").has_prompt_logprobs());
  EXPECT_FALSE(SamplingWith(R"("max_tokens": 0, "echo": true)").has_logprobs());
}

TEST(CompletionRequestTest, AnEchoedPromptHasAsManyAlternativesAsBothFieldsNeed) {
  EXPECT_EQ(SamplingWith(R"("echo": true, "logprobs": 2, "prompt_logprobs": 5)").prompt_logprobs(),
            5u);
  EXPECT_EQ(SamplingWith(R"("echo": true, "logprobs": 6, "prompt_logprobs": 5)").prompt_logprobs(),
            6u);
}

TEST(CompletionRequestTest, StreamOptions) {
  const CompletionShape shape = Parsed(With(R"("stream": true,
                     "stream_options": {"include_usage": true, "continuous_usage_stats": true})"))
                                    .shape;
  EXPECT_TRUE(shape.stream && shape.include_usage && shape.continuous_usage);
  // As in vLLM, continuous usage needs include_usage.
  EXPECT_FALSE(Parsed(With(R"("stream": true, "stream_options": {"continuous_usage_stats": true})"))
                   .shape.continuous_usage);
}

TEST(CompletionRequestTest, ValuesThatAskForNothingAreNotRefused) {
  for (const char* member :
       {R"("response_format": {"type": "text"})", R"("response_format": { "type" : "text" } )",
        R"("suffix": "")", R"("use_beam_search": false)", R"("functions": [])",
        R"("kv_transfer_params": {})", R"("length_penalty": 1.0)", R"("length_penalty": 1)",
        R"("modalities": ["text"])", R"("function_call": "none")",
        R"("include_stop_str_in_output": false)", R"("best_of": 1, "n": 2)",
        R"("best_of": 2, "n": 2)", R"("priority": 0)", R"("stream_options": {})"}) {
    EXPECT_THAT(Parsed(With(member)).warnings, IsEmpty());
  }
}

TEST(CompletionRequestTest, PriorityIsTakenAndHasNoEffect) {
  EXPECT_THAT(Parsed(With(R"("priority": -3)")).warnings,
              ElementsAre("priority is -3, which has no effect yet"));
}

TEST(CompletionRequestTest, RefusedFieldsAreNamedWithTheirValueAndTheReason) {
  const char* const members[] = {R"("response_format": {"type": "json_object"})",
                                 R"("guided_json": {"a": 1})",
                                 R"("guided_regex": "a+")",
                                 R"("guided_choice": ["a"])",
                                 R"("guided_grammar": "x")",
                                 R"("structured_outputs": {"json": "{}"})",
                                 R"("grammar": "x")",
                                 R"("json_schema": {"a": 1})",
                                 R"("functions": [{}])",
                                 R"("function_call": "auto")",
                                 R"("modalities": ["audio"])",
                                 R"("truncate_prompt_tokens": 5)",
                                 R"("allowed_token_ids": [])",
                                 R"("include_stop_str_in_output": true)",
                                 R"("thinking_token_budget": 5)",
                                 R"("length_penalty": 0.5)",
                                 R"("kv_transfer_params": {"a": 1})",
                                 R"("use_beam_search": true)",
                                 R"("suffix": "end")",
                                 R"("prompt_embeds": "abc")",
                                 R"("images": ["x"])",
                                 R"("audio": {"voice": "a"})",
                                 R"("messages": [{}])"};
  for (const absl::string_view member : members) {
    const std::string name(member.substr(1, member.find('"', 1) - 1));
    const absl::Status status = RefusalOf(With(member));
    EXPECT_EQ(ParameterOf(status), name) << status;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(name + " is ")) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("; ")) << status;
  }
  EXPECT_EQ(
      RefusalOf(With(R"("suffix": "end")")).message(),
      "suffix is \"end\"; text can only be continued, not filled in before a suffix; leave it "
      "out");
}

struct Refusal {
  const char* members;
  const char* parameter;
  const char* message;
};

TEST(CompletionRequestTest, WrongValuesAreRefusedWithNameAndValue) {
  const Refusal cases[] = {
      {R"("n": "2")", "n", "n is \"2\"; it takes integers from 1 to 64"},
      {R"("n": true)", "n", "n is true; it takes integers"},
      {R"("n": 1.5)", "n", "n is 1.5; it takes integers"},
      {R"("n": 0)", "n", "n is 0; it takes integers from 1 to 64"},
      {R"("n": 65)", "n", "n is 65; it takes integers from 1 to 64"},
      {R"("max_tokens": -1)", "max_tokens", "max_tokens is -1; it takes integers from 0"},
      {R"("max_tokens": 0)", "max_tokens", "max_tokens is 0; it takes 1 or more"},
      {R"("max_tokens": 1e400)", "max_tokens", "max_tokens is 1e400"},
      {R"("max_tokens": 2147483648)", "max_tokens", "max_tokens is 2147483648"},
      {R"("temperature": "hot")", "temperature", "temperature is \"hot\"; it takes a number"},
      {R"("temperature": false)", "temperature", "temperature is false; it takes a number"},
      {R"("temperature": 1e400)", "temperature", "temperature is 1e400; it takes numbers up to"},
      {R"("top_p": 1e39)", "top_p", "top_p is 1e39; it takes numbers up to"},
      {R"("top_k": -2)", "top_k", "top_k is -2"},
      {R"("seed": 18446744073709551616)", "seed", "seed is 18446744073709551616"},
      {R"("seed": -9223372036854775809)", "seed", "seed is -9223372036854775809"},
      {R"("seed": 0.5)", "seed", "seed is 0.5"},
      {R"("seed": "7")", "seed", "seed is \"7\""},
      {R"("stream": 1)", "stream", "stream is 1; it takes true or false"},
      {R"("stream": "true")", "stream", "stream is \"true\"; it takes true or false"},
      {R"("logprobs": true)", "logprobs", "logprobs is true; it takes integers from 0 to 20"},
      {R"("logprobs": 21)", "logprobs", "logprobs is 21"},
      {R"("prompt_logprobs": -1)", "prompt_logprobs", "prompt_logprobs is -1"},
      {R"("stop": 5)", "stop", "stop is 5; it takes a string or a list of strings"},
      {R"("stop": ["a", 5])", "stop[1]", "stop[1] is 5; it takes a string"},
      {R"("stop": ["a", null])", "stop[1]", "stop[1] is null; it takes a string"},
      {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
       "stop", "stop has 17 strings; it takes up to 16"},
      {R"("stop_token_ids": [1, -5])", "stop_token_ids[1]", "stop_token_ids[1] is -5"},
      {R"("stop_token_ids": 5)", "stop_token_ids", "stop_token_ids is 5; it takes a list"},
      {R"("logit_bias": {"50256": "x"})", "logit_bias.50256", "logit_bias.50256 is \"x\""},
      {R"("logit_bias": {"50256": null})", "logit_bias.50256", "logit_bias.50256 is null"},
      {R"("logit_bias": {"a": 1})", "logit_bias", "logit_bias has the key \"a\""},
      {R"("logit_bias": {"-1": 1})", "logit_bias", "logit_bias has the key \"-1\""},
      {R"("logit_bias": {" 1": 1})", "logit_bias", "its keys are token ids"},
      {R"("logit_bias": {"": 1})", "logit_bias", "logit_bias has the key \"\""},
      {R"("logit_bias": {"99999999999": 1})", "logit_bias", "its keys are token ids"},
      {R"("logit_bias": {"5": 1, "05": 1})", "logit_bias.05", "logit_bias.05 occurs twice"},
      {R"("logit_bias": [1])", "logit_bias", "logit_bias is a list; it takes an object"},
      {R"("stream_options": {"include_usage": true})", "stream_options", "stream is not true"},
      {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage",
       "stream_options.include_usage is 1; it takes true or false"},
      {R"("stream": true, "stream_options": true)", "stream_options", "stream_options is true"},
      {R"("stream": true, "prompt_logprobs": 0)", "prompt_logprobs", "prompt_logprobs is 0 and"},
      {R"("best_of": 3)", "best_of", "best_of is 3 and n is 1"},
      {R"("best_of": 3, "n": 2)", "best_of", "best_of is 3 and n is 2"},
      {R"("model": 5)", "model", "model is 5; it takes a string"},
      {R"("user": 5)", "user", "user is 5; it takes a string"},
      {R"("cache_salt": "")", "cache_salt", "cache_salt is \"\"; it takes a string that is not"},
      {R"("bad_words": "no")", "bad_words", "bad_words is \"no\"; it takes a list of strings"},
      {R"("priority": "high")", "priority", "priority is \"high\"; it takes integers"},
      {R"("add_special_tokens": 0)", "add_special_tokens", "add_special_tokens is 0"},
      {R"("seed": 1, "seed": 1)", "seed", "seed occurs twice"},
      {R"("odd": 1, "odd": null)", "odd", "odd occurs twice"},
  };
  for (const Refusal& c : cases) {
    const absl::Status status = RefusalOf(With(c.members));
    EXPECT_EQ(ParameterOf(status), c.parameter) << c.members;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.members;
  }
}

TEST(CompletionRequestTest, WrongPromptsAreRefusedWithTheirPlace) {
  const Refusal cases[] = {
      {"5", "prompt", "prompt is 5; it takes a text, a list of texts"},
      {"{}", "prompt", "prompt is an object"},
      {"[]", "prompt", "prompt is an empty list; it takes at least one prompt"},
      {"[[]]", "prompt[0]", "prompt[0] is an empty list; it takes at least one token id"},
      {"[null]", "prompt[0]", "prompt[0] is null; it takes a text, a token id"},
      {"[true]", "prompt[0]", "prompt[0] is true"},
      {R"(["a", 5])", "prompt[1]", "prompt[1] is 5; it takes a string"},
      {R"([5, "a"])", "prompt[1]", "prompt[1] is \"a\"; it takes integers from 0 to 2147483647"},
      {"[5, 1.5]", "prompt[1]", "prompt[1] is 1.5"},
      {"[[1], 5]", "prompt[1]", "prompt[1] is 5; it takes a list of token ids"},
      {"[[1], [2, -3]]", "prompt[1][1]", "prompt[1][1] is -3; it takes integers"},
      {"[[1], [[2]]]", "prompt[1][0]", "prompt[1][0] is a list; it takes integers"},
      {"[2147483648]", "prompt[0]", "prompt[0] is 2147483648"},
  };
  for (const Refusal& c : cases) {
    const absl::Status status = RefusalOf(absl::StrCat(R"({"prompt": )", c.members, "}"));
    EXPECT_EQ(ParameterOf(status), c.parameter) << c.members;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.members;
  }
  EXPECT_THAT(std::string(RefusalOf("{}").message()), HasSubstr("prompt is missing"));
}

TEST(CompletionRequestTest, TooManyPromptsAndAnswersAreRefusedWithTheNumbers) {
  const auto body = [](int prompts, int n) {
    const nlohmann::json request = {{"prompt", std::vector<std::string>(prompts, "x")}, {"n", n}};
    return request.dump();
  };
  EXPECT_EQ(Parsed(body(64, 4)).prompts.size(), 64u);
  EXPECT_EQ(RefusalOf(body(65, 1)).message(), "prompt has 65 prompts; it takes up to 64");
  EXPECT_EQ(RefusalOf(body(64, 5)).message(),
            "64 prompts with n 5 make 320 answers; one request takes up to 256");
}

TEST(CompletionRequestTest, IdsBeyondTheContextAreRefusedWithBothNumbers) {
  const CompletionSettings settings = {.context_tokens = 4};
  EXPECT_EQ(Parsed(R"({"prompt": [1, 2, 3]})", settings).prompts.size(), 1u);
  const absl::Status status = RefusalOf(R"({"prompt": [[1], [1, 2, 3, 4]]})", settings);
  EXPECT_EQ(ParameterOf(status), "prompt[1]");
  EXPECT_EQ(ReasonOf(status), kContextLengthExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 4 tokens; the model's context of 4"));
}

TEST(CompletionRequestTest, BodiesThatAreNoJsonObjectAreRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "the body is empty"},
      {" \n", "the body is empty"},
      {"[]", "the body is a list; it has to be a JSON object"},
      {"\"x\"", "the body is \"x\"; it has to be"},
      {"null", "the body is null; it has to be"},
      {"hello", "line 1, byte 1: there is 'h' instead of a value"},
      {"{\n\"prompt\": \"x\"\n", "line 3, byte 1: the text ends, but ',' or '}' has to follow"},
      {R"({"prompt": "x"} x)", "there is 'x' instead of the end of the body"},
      {R"({"prompt": "x", "temperature": NaN})", "there is 'N' instead of a value"},
      {std::string("{\"prompt\": \"a\0b\"}", 17), "a string has no control characters"},
      {"{\"prompt\": \"\xc3\"}", "the byte 0xc3 is not UTF-8"},
      {"\xf0", "the byte 0xf0 is not UTF-8"},
      {absl::StrCat(R"({"odd": )", std::string(80, '['), "}"), "nested deeper than 64"},
  };
  for (const auto& [body, message] : cases) {
    EXPECT_THAT(std::string(RefusalOf(body).message()), HasSubstr(message)) << body;
  }
  std::string many = R"({"prompt": "x")";
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&many, ",\"f", i, "\":0");
  EXPECT_THAT(std::string(RefusalOf(many + "}").message()), HasSubstr("more than 1000 fields"));
}

TEST(CompletionRequestTest, UnknownFieldsAreIgnoredByNameOrRefused) {
  const std::string body =
      With(R"("tools": [], "stream": true, "stream_options": {"include_obfuscation": false},
              "höhe": {"a": [1]})");
  const CompletionRequest request = Parsed(body);
  EXPECT_THAT(request.ignored.names,
              ElementsAre("tools", "stream_options.include_obfuscation", "höhe"));
  EXPECT_EQ(request.ignored.count, 3u);
  EXPECT_EQ(IgnoredFieldsHeader(request.ignored),
            "tools,stream_options.include_obfuscation,h%C3%B6he");
  const absl::Status status = RefusalOf(body, {.refuse_unknown_fields = true});
  EXPECT_EQ(ParameterOf(status), "tools");
  EXPECT_THAT(std::string(status.message()), HasSubstr("tools is not a field"));
}

TEST(CompletionRequestTest, AnythingCutOffIsRefused) {
  const std::string body = With(
      R"("stream": true, "stop": ["a\u00e4"], "logit_bias": {"5": 1e1}, "odd": [null, {"a": -1}])");
  ASSERT_TRUE(ParseCompletionRequest(body, {}).ok());
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_FALSE(RefusalOf(absl::string_view(body).substr(0, size)).ok());
  }
}

}  // namespace
}  // namespace baton
