#include "router/http/text_messages.h"

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"

namespace baton {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::StartsWith;

TEST(TokenizeBodyTest, HasVllmsFieldsAndDefaults) {
  const auto request = ParseTokenizeBody(R"({"prompt": "a\nb", "user": "me"})", {});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(std::get<std::string>(request->prompt), "a\nb");
  EXPECT_EQ(request->model, "");
  EXPECT_TRUE(request->add_special);
  EXPECT_FALSE(request->return_token_strs);
  EXPECT_THAT(request->ignored.names, ElementsAre("user"));
  const auto other = ParseTokenizeBody(
      R"({"model": "m", "prompt": "", "add_special_tokens": false, "return_token_strs": true})",
      {});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->model, "m");
  EXPECT_FALSE(other->add_special);
  EXPECT_TRUE(other->return_token_strs);
}

TEST(TokenizeBodyTest, TakesAConversationInPlaceOfAText) {
  const auto request = ParseTokenizeBody(
      R"({"messages": [{"role": "user", "content": ["a"]}], "model": "m",
          "tools": [{"type": "function", "function": {"name": "f"}}],
          "chat_template_kwargs": {"b": 1}, "documents": [], "reasoning_effort": "low",
          "add_generation_prompt": false, "continue_final_message": true,
          "add_special_tokens": false, "return_token_strs": true})",
      {.refuse_unknown_fields = true});
  ASSERT_TRUE(request.ok()) << request.status();
  const Chat expected = {.messages = {{.role = "user", .content = std::vector<std::string>{"a"}}},
                         .tools = R"([{"type": "function", "function": {"name": "f"}}])",
                         .documents = "[]",
                         .template_kwargs = R"({"b":1,"reasoning_effort":"low"})",
                         .add_generation_prompt = false,
                         .continue_final_message = true};
  EXPECT_EQ(std::get<Chat>(request->prompt), expected);
  EXPECT_FALSE(request->add_special);
  EXPECT_TRUE(request->return_token_strs);
}

TEST(TokenizeBodyTest, WrongFieldsAreRefusedByName) {
  const auto refusal = [](absl::string_view body) {
    const absl::Status status = ParseTokenizeBody(body, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << body;
    return absl::StrCat(ParameterOf(status), ": ", status.message());
  };
  EXPECT_THAT(refusal("{}"), StartsWith("prompt: prompt is missing; send"));
  EXPECT_THAT(refusal(R"({"prompt": ["a"]})"), StartsWith("prompt: prompt is a list"));
  EXPECT_THAT(refusal(R"({"prompt": "a", "messages": [{"role": "user"}]})"),
              StartsWith("messages: messages and prompt are set; send"));
  EXPECT_THAT(refusal(R"({"add_generation_prompt": true, "prompt": "a"})"),
              StartsWith("add_generation_prompt: add_generation_prompt and prompt are set"));
  EXPECT_THAT(refusal(R"({"tools": []})"), StartsWith("messages: messages is missing"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user"}], "add_special_tokens": true})"),
              StartsWith("add_special_tokens: add_special_tokens is true; the chat template"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user"}], "chat_template": "x"})"),
              StartsWith("chat_template: chat_template is \"x\"; the model's own chat template"));
  EXPECT_EQ(
      ParameterOf(ParseTokenizeBody(R"({"prompt": "a", "x": 1})", {.refuse_unknown_fields = true})
                      .status()),
      "x");
}

TEST(DetokenizeBodyTest, TakesIds) {
  const auto request = ParseDetokenizeBody(R"({"tokens": [3, 1.0, 2]})", {});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->tokens, ElementsAre(3, 1, 2));
  EXPECT_EQ(ParameterOf(ParseDetokenizeBody(R"({"tokens": [3, -1]})", {}).status()), "tokens[1]");
  EXPECT_EQ(ParameterOf(ParseDetokenizeBody("{}", {}).status()), "tokens");
}

TEST(TokenizeAnswerTest, HasVllmsShape) {
  const auto tokenizer =
      Tokenizer::FromFile(BATON_SOURCE_DIR "/common/model/demo/tokenizer.json").value();
  EXPECT_EQ(TokenizeAnswer({0, 4081}, 512, false, *tokenizer),
            R"({"count":2,"max_model_len":512,"tokens":[0,4081],"token_strs":null})");
  EXPECT_EQ(
      TokenizeAnswer({0, 4081}, 512, true, *tokenizer),
      R"({"count":2,"max_model_len":512,"tokens":[0,4081],"token_strs":["!","<|end_of_text|>"]})");
  EXPECT_EQ(TokenizeAnswer({}, 512, true, *tokenizer),
            R"({"count":0,"max_model_len":512,"tokens":[],"token_strs":[]})");
  EXPECT_EQ(DetokenizeAnswer("a\"b"), R"({"prompt":"a\"b"})");
}

TEST(ModelListAnswerTest, HasVllmsShape) {
  const ModelCard card = {.name = "demo", .created = 17, .context_tokens = 512, .vocab_size = 300};
  EXPECT_EQ(ModelCardAnswer(card),
            R"({"id":"demo","object":"model","created":17,"owned_by":"baton","root":"demo",)"
            R"("parent":null,"max_model_len":512,"vocab_size":300,"permission":[]})");
  EXPECT_EQ(ModelListAnswer({card}), R"({"object":"list","data":[)" + ModelCardAnswer(card) + "]}");
  EXPECT_EQ(ModelListAnswer({}), R"({"object":"list","data":[]})");
}

}  // namespace
}  // namespace baton
