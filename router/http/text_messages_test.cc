#include "router/http/text_messages.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/error_details.h"

namespace baton {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TokenizeBodyTest, HasVllmsFieldsAndDefaults) {
  const auto request = ParseTokenizeBody(R"({"prompt": "a\nb", "user": "me"})", {});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->prompt, "a\nb");
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

TEST(TokenizeBodyTest, TheFormForChatsIsRefusedByName) {
  const auto request = ParseTokenizeBody(R"({"messages": [{"role": "user"}]})", {});
  EXPECT_EQ(ParameterOf(request.status()), "messages");
  EXPECT_THAT(std::string(request.status().message()), HasSubstr("chat is not supported"));
  EXPECT_EQ(ParameterOf(ParseTokenizeBody("{}", {}).status()), "prompt");
  EXPECT_EQ(ParameterOf(ParseTokenizeBody(R"({"prompt": ["a"]})", {}).status()), "prompt");
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
