#include "router/http/chat_request.h"

#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "router/http/chat_messages.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Parts = std::vector<std::string>;

constexpr char kHello[] = R"("messages": [{"role": "user", "content": "Hello"}])";

CompletionRequest ParsedChat(absl::string_view body, const CompletionSettings& settings = {}) {
  auto request = ParseChatRequest(body, settings);
  EXPECT_TRUE(request.ok()) << body << ": " << request.status();
  return request.ok() ? *std::move(request) : CompletionRequest{.prompts = {ClientRequest()}};
}

// Returns a body with one message and other members.
std::string ChatWith(absl::string_view members) {
  return absl::StrCat("{", kHello, ", ", members, "}");
}
std::string ChatOf(absl::string_view messages) {
  return absl::StrCat(R"({"messages": [)", messages, "]}");
}

Chat ConversationOf(absl::string_view body) {
  const CompletionRequest request = ParsedChat(body);
  const auto* const chat = std::get_if<Chat>(&request.prompts[0].prompt);
  EXPECT_NE(chat, nullptr);
  return chat == nullptr ? Chat() : *chat;
}
ChatMessage MessageOf(absl::string_view message) {
  const Chat chat = ConversationOf(ChatOf(message));
  EXPECT_EQ(chat.messages.size(), 1u);
  return chat.messages.empty() ? ChatMessage() : chat.messages[0];
}

absl::Status ChatRefusal(absl::string_view body, const CompletionSettings& settings = {}) {
  const auto request = ParseChatRequest(body, settings);
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << body;
  return request.status();
}

struct RefusedChat {
  const char* members;
  const char* parameter;
  const char* message;
};

TEST(ChatRequestTest, MessagesAloneHaveTheDefaultsOfThisDoor) {
  const CompletionRequest request = ParsedChat(absl::StrCat("{", kHello, "}"));
  ASSERT_EQ(request.prompts.size(), 1u);
  const ClientRequest& client = request.prompts[0];
  const Chat expected = {.messages = {{.role = "user", .content = "Hello"}}};
  EXPECT_EQ(std::get<Chat>(client.prompt), expected);
  EXPECT_EQ(client.model, "");
  // These options are for texts.
  EXPECT_FALSE(client.parse_special);
  EXPECT_EQ(client.add_special, std::nullopt);
  EXPECT_TRUE(client.skip_special);
  v1::SamplingParams sampling;
  sampling.set_temperature(1);
  EXPECT_EQ(client.sampling.SerializeAsString(), sampling.SerializeAsString())
      << "no max_tokens: the answer may fill the context";
  EXPECT_TRUE(request.shape.chat);
  EXPECT_FALSE(request.shape.stream || request.shape.logprobs || request.shape.prompt_logprobs);
  EXPECT_EQ(request.shape.n, 1);
}

TEST(ChatRequestTest, AllFieldsReachTheCore) {
  const CompletionRequest request = ParsedChat(ChatWith(R"(
      "model": "m", "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 5,
      "min_p": 0.125, "seed": -1, "n": 3, "stop": ["a", "b"], "stop_token_ids": [1, 2],
      "ignore_eos": true, "min_tokens": 2, "logprobs": true, "top_logprobs": 4,
      "repetition_penalty": 1.5, "presence_penalty": -0.5, "frequency_penalty": 2,
      "logit_bias": {"5": -100}, "bad_words": ["no"], "prompt_logprobs": 0, "user": "me",
      "cache_salt": "s", "skip_special_tokens": false, "return_token_ids": true)"));
  const ClientRequest& client = request.prompts[0];
  EXPECT_EQ(client.model, "m");
  EXPECT_EQ(client.cache_salt, "s");
  EXPECT_FALSE(client.skip_special);
  EXPECT_TRUE(request.shape.return_token_ids);
  EXPECT_EQ(request.shape.n, 3);
  EXPECT_EQ(request.shape.logprobs, 4);
  const v1::SamplingParams& sampling = client.sampling;
  EXPECT_EQ(sampling.max_tokens(), 7u);
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.25f);
  EXPECT_EQ(sampling.top_k(), 5u);
  EXPECT_EQ(sampling.min_p(), 0.125f);
  EXPECT_EQ(sampling.seed(), ~uint64_t{0});
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
  EXPECT_THAT(sampling.bad_words(), ElementsAre("no"));
  EXPECT_TRUE(sampling.has_prompt_logprobs());
  const CompletionShape stream =
      ParsedChat(ChatWith(R"("stream": true, "stream_options": {"include_usage": true,
                             "continuous_usage_stats": true})"))
          .shape;
  EXPECT_TRUE(stream.stream && stream.include_usage && stream.continuous_usage);
}

TEST(ChatRequestTest, MaxCompletionTokensCountsBeforeMaxTokens) {
  const auto max_tokens = [](absl::string_view members) {
    return ParsedChat(ChatWith(members)).prompts[0].sampling.max_tokens();
  };
  EXPECT_EQ(max_tokens(R"("max_tokens": 5)"), 5u);
  EXPECT_EQ(max_tokens(R"("max_tokens": 5, "max_completion_tokens": 9)"), 9u);
  EXPECT_EQ(max_tokens(R"("max_completion_tokens": 3, "max_tokens": 5)"), 3u);
}

TEST(ChatRequestTest, LogprobsAreSwitchedOnByAFlag) {
  const auto logprobs = [](absl::string_view members) {
    return ParsedChat(ChatWith(members)).shape.logprobs;
  };
  EXPECT_EQ(logprobs(R"("logprobs": true)"), 0);
  EXPECT_EQ(logprobs(R"("logprobs": true, "top_logprobs": 20)"), 20);
  EXPECT_EQ(logprobs(R"("logprobs": false)"), std::nullopt);
  // No alternatives ask for nothing.
  EXPECT_EQ(logprobs(R"("top_logprobs": 0)"), std::nullopt);
}

TEST(ChatRequestTest, ContentIsATextOrPartsOrNothing) {
  using Content = decltype(ChatMessage::content);
  const auto content = [](absl::string_view json) {
    return MessageOf(absl::StrCat(R"({"role": "user", "content": )", json, "}")).content;
  };
  EXPECT_EQ(content(R"("a\nb")"), Content("a\nb"));
  EXPECT_EQ(content(R"("")"), Content(""));
  EXPECT_EQ(content("null"), Content());
  EXPECT_EQ(MessageOf(R"({"role": "user"})").content, Content());
  EXPECT_EQ(content("[]"), Content(Parts{}));
  EXPECT_EQ(content(R"([{"type": "text", "text": "a"}, {"text": "", "type": "text"}])"),
            Content(Parts{"a", ""}));
  EXPECT_EQ(content(R"(["a", {"type": "input_text", "text": "b", "cache_control": {}},
                        {"type": "output_text", "text": "c", "annotations": []},
                        {"type": "refusal", "refusal": "d"}])"),
            Content(Parts{"a", "b", "c", "d"}));
}

TEST(ChatRequestTest, AMessageOfAToolKeepsItsNameAndItsCall) {
  const ChatMessage message =
      MessageOf(R"({"role": "tool", "name": "f", "tool_call_id": "call_1", "content": "7"})");
  const ChatMessage expected = {
      .role = "tool", .content = "7", .name = "f", .tool_call_id = "call_1"};
  EXPECT_EQ(message, expected);
}

TEST(ChatRequestTest, CallsOfToolsKeepTheirArgumentsAsTheyAreWritten) {
  const ChatMessage message = MessageOf(R"({"role": "assistant", "content": null, "tool_calls": [
      {"id": "a", "type": "function", "index": 0,
       "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 12345678901234567890}"}},
      {"type": "function", "function": {"arguments": {"z" : 1, "a":[1.50]}, "name": "g"}},
      {"id": null, "type": "function", "function": {"name": "h", "arguments": null}},
      {"type": "function", "function": {"name": "h", "arguments": "broken"}}]})");
  const std::vector<ChatToolCall> expected = {{"a", "f", R"({"z": 1, "a": 12345678901234567890})"},
                                              {"", "g", R"({"z" : 1, "a":[1.50]})"},
                                              {"", "h", "{}"},
                                              {"", "h", "broken"}};
  EXPECT_EQ(message.tool_calls, expected);
  EXPECT_THAT(MessageOf(R"({"role": "assistant", "tool_calls": null})").tool_calls, IsEmpty());
  EXPECT_THAT(MessageOf(R"({"role": "assistant", "tool_calls": []})").tool_calls, IsEmpty());
}

TEST(ChatRequestTest, ThreeNamesOfReasoningAreOneField) {
  const auto reasoning = [](absl::string_view members) {
    return MessageOf(absl::StrCat(R"({"role": "assistant", )", members, "}")).reasoning;
  };
  EXPECT_EQ(reasoning(R"("reasoning": "a")"), "a");
  EXPECT_EQ(reasoning(R"("reasoning_content": "a")"), "a");
  EXPECT_EQ(reasoning(R"("thinking": "a")"), "a");
  EXPECT_EQ(reasoning(R"("thinking": "c", "reasoning_content": "b", "reasoning": "a")"), "a");
  EXPECT_EQ(reasoning(R"("reasoning_content": "b", "reasoning": "")"), "b");
  EXPECT_EQ(reasoning(R"("reasoning_content": null, "reasoning": null)"), std::nullopt);
}

TEST(ChatRequestTest, AnAnswerCanBeSentBackAsItIs) {
  // The message of OpenAI's client, as model_dump() gives it.
  const CompletionRequest request = ParsedChat(
      ChatOf(R"({"content": "Hi", "refusal": null, "role": "assistant", "annotations": [],
                 "audio": null, "function_call": null, "tool_calls": null, "something": {"a": 1}})"),
      {.refuse_unknown_fields = true});
  const ChatMessage expected = {.role = "assistant", .content = "Hi"};
  EXPECT_EQ(std::get<Chat>(request.prompts[0].prompt).messages[0], expected);
  EXPECT_THAT(request.ignored.names, IsEmpty());
}

TEST(ChatRequestTest, JsonForTheTemplateStaysAsItIsWritten) {
  const Chat chat = ConversationOf(ChatWith(R"(
      "tools": [ {"type": "function", "function": {"name": "f", "z": 1e400, "a": {}, "z": 2}} ],
      "tool_choice": "none",
      "documents": [{"title": "t",  "text": "ä"}, {}],
      "chat_template_kwargs": {"b": 12345678901234567890 , "a": [null, true], "b": 1})"));
  EXPECT_EQ(chat.tools,
            R"([ {"type": "function", "function": {"name": "f", "z": 1e400, "a": {}, "z": 2}} ])");
  EXPECT_EQ(chat.documents, R"([{"title": "t",  "text": "ä"}, {}])");
  EXPECT_EQ(chat.template_kwargs, R"({"b": 12345678901234567890 , "a": [null, true], "b": 1})");
}

TEST(ChatRequestTest, AnEmptyListOfToolsIsNone) {
  EXPECT_EQ(ConversationOf(ChatWith(R"("tools": [ ])")).tools, "");
  EXPECT_EQ(ConversationOf(ChatWith(R"("tools": [], "tool_choice": "auto")")).tools, "");
  EXPECT_EQ(ConversationOf(ChatWith(R"("tool_choice": "none")")).tools, "");
}

TEST(ChatRequestTest, ReasoningEffortIsAVariableOfTheTemplate) {
  const auto kwargs = [](absl::string_view members) {
    return ConversationOf(ChatWith(members)).template_kwargs;
  };
  EXPECT_EQ(kwargs(R"("reasoning_effort": "low")"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(
      kwargs(R"("reasoning_effort": "\"", "chat_template_kwargs": {"a": 1.0, "ä": "\u00e4"})"),
      R"({"a":1.0,"ä":"\u00e4","reasoning_effort":"\""})");
  // The field counts before the variable.
  EXPECT_EQ(kwargs(R"("chat_template_kwargs": {"reasoning_effort": "high", "a": 1},
                      "reasoning_effort": "low")"),
            R"({"a":1,"reasoning_effort":"low"})");
  EXPECT_EQ(kwargs(R"("chat_template_kwargs": {"reasoning_effort": "high"})"),
            R"({"reasoning_effort": "high"})");
  EXPECT_EQ(kwargs(R"("reasoning_effort": "low", "chat_template_kwargs": {})"),
            R"({"reasoning_effort":"low"})");
}

TEST(ChatRequestTest, TheEndOfThePromptIsWhatTheClientSays) {
  EXPECT_EQ(ConversationOf(ChatWith(R"("add_generation_prompt": false)")).add_generation_prompt,
            false);
  EXPECT_EQ(ConversationOf(ChatWith(R"("add_generation_prompt": true)")).add_generation_prompt,
            true);
  const Chat chat =
      ConversationOf(ChatWith(R"("continue_final_message": true, "add_generation_prompt": false)"));
  EXPECT_TRUE(chat.continue_final_message);
  EXPECT_FALSE(
      ConversationOf(ChatWith(R"("continue_final_message": false)")).continue_final_message);
}

TEST(ChatRequestTest, FieldsOfOtherServersThatChangeNoAnswerAreTaken) {
  const CompletionRequest request =
      ParsedChat(ChatWith(R"("parallel_tool_calls": true, "store": false, "metadata": {"a": "b"},
                  "service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s",
                  "user": "u", "response_format": {"type": "text"}, "modalities": ["text"],
                  "echo": false, "add_special_tokens": false, "chat_template": null,
                  "best_of": 1, "suffix": null, "prompt": null, "function_call": "none")"),
                 {.refuse_unknown_fields = true});
  EXPECT_THAT(request.ignored.names, IsEmpty());
  // This one would change the answer.
  EXPECT_THAT(ParsedChat(ChatWith(R"("verbosity": "low", "odd": 1)")).ignored.names,
              ElementsAre("verbosity", "odd"));
  EXPECT_EQ(ParameterOf(ChatRefusal(ChatWith(R"("odd": 1)"), {.refuse_unknown_fields = true})),
            "odd");
}

TEST(ChatRequestTest, NullMeansAbsent) {
  std::string members;
  for (const char* name : {"tools",
                           "tool_choice",
                           "documents",
                           "chat_template_kwargs",
                           "reasoning_effort",
                           "add_generation_prompt",
                           "continue_final_message",
                           "max_tokens",
                           "max_completion_tokens",
                           "logprobs",
                           "top_logprobs",
                           "parallel_tool_calls",
                           "store",
                           "metadata",
                           "service_tier",
                           "prompt_cache_key",
                           "safety_identifier",
                           "chat_template",
                           "add_special_tokens",
                           "echo"}) {
    absl::StrAppend(&members, "\"", name, "\": null,");
  }
  const CompletionRequest request =
      ParsedChat(absl::StrCat("{", members, kHello, "}"), {.refuse_unknown_fields = true});
  EXPECT_EQ(request.prompts[0].prompt,
            ParsedChat(absl::StrCat("{", kHello, "}")).prompts[0].prompt);
  EXPECT_EQ(ParameterOf(ChatRefusal(R"({"messages": null})")), "messages");
}

TEST(ChatRequestTest, RefusedFieldsAreNamedWithTheirValueAndTheReason) {
  for (const absl::string_view member :
       {R"("prompt": "x")", R"("echo": true)", R"("suffix": "x")", R"("best_of": 2)",
        R"("chat_template": "{{ x }}")", R"("add_special_tokens": true)",
        R"("response_format": {"type": "json_object"})", R"("structured_outputs": {"json": {}})",
        R"("guided_json": {"a": 1})", R"("functions": [{}])", R"("function_call": "auto")",
        R"("audio": {"voice": "a"})", R"("modalities": ["audio"])",
        R"("thinking_token_budget": 5)"}) {
    const std::string name(member.substr(1, member.find('"', 1) - 1));
    const absl::Status status = ChatRefusal(ChatWith(member));
    EXPECT_EQ(ParameterOf(status), name) << status;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(name + " is ")) << status;
  }
  EXPECT_EQ(ChatRefusal(ChatWith(R"("echo": true)")).message(),
            "echo is true; the answer of a chat never has its prompt; use /v1/completions");
}

TEST(ChatRequestTest, CallsOfToolsAreRefusedByName) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  const RefusedChat cases[] = {
      {"", "tool_choice",
       "tool_choice is missing, which means \"auto\" where there are tools; this server"},
      {R"(, "tool_choice": "auto")", "tool_choice",
       "tool_choice is \"auto\", and there are tools; this server"},
      {R"(, "tool_choice": "required")", "tool_choice", "tool_choice is \"required\"; this server"},
      {R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})", "tool_choice",
       "tool_choice is an object; this server does not find calls of tools in answers yet: send "
       "\"tool_choice\": \"none\", and the template still gets the tools"},
      {R"(, "tool_choice": "all")", "tool_choice", "\"all\"; it takes \"none\" or \"auto\""},
      {R"(, "tool_choice": true)", "tool_choice", "tool_choice is true; it takes"},
  };
  for (const RefusedChat& c : cases) {
    const absl::Status status = ChatRefusal(ChatWith(tools + c.members));
    EXPECT_EQ(ParameterOf(status), c.parameter) << c.members;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.members;
  }
  EXPECT_TRUE(ParseChatRequest(ChatWith(tools + R"(, "tool_choice": "none")"), {}).ok());
}

TEST(ChatRequestTest, WrongValuesAreRefusedWithNameAndValue) {
  const RefusedChat cases[] = {
      {R"("max_tokens": 0)", "max_tokens", "max_tokens is 0; it takes integers from 1"},
      {R"("max_completion_tokens": 0)", "max_completion_tokens", "max_completion_tokens is 0"},
      {R"("logprobs": 5)", "logprobs", "logprobs is 5; it takes true or false"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "top_logprobs is 21"},
      {R"("top_logprobs": 2)", "top_logprobs", "top_logprobs is 2, but logprobs is not true"},
      {R"("logprobs": false, "top_logprobs": 2)", "top_logprobs", "but logprobs is not true"},
      {R"("stream": true, "prompt_logprobs": 0)", "prompt_logprobs", "a stream can't have them"},
      {R"("stream_options": {"include_usage": true})", "stream_options", "stream is not true"},
      {R"("continue_final_message": true)", "continue_final_message",
       "continue_final_message is true, and so is add_generation_prompt, which is its default;"},
      {R"("continue_final_message": true, "add_generation_prompt": true)", "continue_final_message",
       "and so is add_generation_prompt; to continue"},
      {R"("continue_final_message": 1)", "continue_final_message", "it takes true or false"},
      {R"("reasoning_effort": 5)", "reasoning_effort", "reasoning_effort is 5; it takes a string"},
      {R"("reasoning_effort": "")", "reasoning_effort", "a string that is not empty"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs", "is a list; it takes an object"},
      {R"("chat_template_kwargs": {"tools": []})", "chat_template_kwargs.tools",
       "send tools as a field of the request"},
      {R"("chat_template_kwargs": {"chat_template": ""})", "chat_template_kwargs.chat_template",
       "chat_template_kwargs.chat_template is set"},
      {R"("documents": {})", "documents", "documents is an object; it takes a list of documents"},
      {R"("documents": [{}, "x"])", "documents[1]", "documents[1] is \"x\"; it takes an object"},
      {R"("tools": {})", "tools", "tools is an object; it takes a list of tools"},
      {R"("tools": ["f"])", "tools[0]", "tools[0] is \"f\"; it takes an object"},
      {R"("tools": [{}])", "tools[0].type", "tools[0].type is missing; send \"function\""},
      {R"("tools": [{"type": "custom"}])", "tools[0].type",
       "tools[0].type is \"custom\"; it takes \"function\""},
      {R"("tools": [{"type": "function"}])", "tools[0].function", "tools[0].function is missing"},
      {R"("tools": [{"type": "function", "function": {}}])", "tools[0].function.name",
       "tools[0].function.name is missing"},
      {R"("tools": [{"type": "function", "function": {"name": 5}}])", "tools[0].function.name",
       "tools[0].function.name is 5; it takes a string"},
      {R"("metadata": "a")", "metadata", "metadata is \"a\"; it takes an object"},
      {R"("store": "yes")", "store", "store is \"yes\"; it takes true or false"},
      {R"("service_tier": 1)", "service_tier", "service_tier is 1; it takes a string"},
      {R"("n": 65)", "n", "n is 65"},
  };
  for (const RefusedChat& c : cases) {
    const absl::Status status = ChatRefusal(ChatWith(c.members));
    EXPECT_EQ(ParameterOf(status), c.parameter) << c.members;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.members;
  }
}

TEST(ChatRequestTest, WrongMessagesAreRefusedWithTheirPlace) {
  const RefusedChat cases[] = {
      {"5", "messages[0]", "messages[0] is 5; it takes an object"},
      {R"({"content": "a"})", "messages[0].role", "messages[0].role is missing; send"},
      {R"({"role": null})", "messages[0].role", "messages[0].role is missing"},
      {R"({"role": 5})", "messages[0].role", "messages[0].role is 5; it takes a string"},
      {R"({"role": "user", "role": "tool"})", "messages[0].role", "occurs twice"},
      {R"({"role": "user"}, {"role": "user", "content": 5})", "messages[1].content",
       "messages[1].content is 5; it takes a text, a list of parts, or null"},
      {R"({"role": "user", "content": [5]})", "messages[0].content[0]", "it takes an object"},
      {R"({"role": "user", "content": [{}]})", "messages[0].content[0].type", "is missing"},
      {R"({"role": "user", "content": [{"type": "text"}]})", "messages[0].content[0].text",
       "messages[0].content[0].text is missing"},
      {R"({"role": "user", "content": [{"type": "refusal", "text": "x"}]})",
       "messages[0].content[0].refusal", "messages[0].content[0].refusal is missing"},
      {R"({"role": "user", "content": [{"type": "text", "text": 5}]})",
       "messages[0].content[0].text", "is 5; it takes a string"},
      {R"({"role": "user", "content": ["a", {"type": "image_url", "image_url": {"url": "x"}}]})",
       "messages[0].content[1].type",
       "messages[0].content[1].type is \"image_url\"; this server reads and writes only text"},
      {R"({"role": "user", "content": [{"input_audio": {}, "type": "input_audio"}]})",
       "messages[0].content[0].type", "is \"input_audio\"; this server"},
      {R"({"role": "user", "name": 5})", "messages[0].name", "it takes a string"},
      {R"({"role": "tool", "tool_call_id": 5})", "messages[0].tool_call_id", "it takes a string"},
      {R"({"role": "assistant", "reasoning": {}})", "messages[0].reasoning", "it takes a string"},
      {R"({"role": "assistant", "tool_calls": {}})", "messages[0].tool_calls",
       "it takes a list of calls"},
      {R"({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})",
       "messages[0].tool_calls[0].type", "is missing; send \"function\""},
      {R"({"role": "assistant", "tool_calls": [{"type": "custom"}]})",
       "messages[0].tool_calls[0].type", "is \"custom\"; it takes \"function\""},
      {R"({"role": "assistant", "tool_calls": [{"type": "function"}]})",
       "messages[0].tool_calls[0].function", "is missing"},
      {R"({"role": "assistant", "tool_calls": [{"type": "function", "function": {}}]})",
       "messages[0].tool_calls[0].function.name", "is missing; send the name"},
      {R"({"role": "assistant", "tool_calls": [{"type": "function",
           "function": {"name": "f", "arguments": [1]}}]})",
       "messages[0].tool_calls[0].function.arguments", "a string with JSON, or an object"},
  };
  for (const RefusedChat& c : cases) {
    const absl::Status status = ChatRefusal(ChatOf(c.members));
    EXPECT_EQ(ParameterOf(status), c.parameter) << c.members;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.members;
  }
  EXPECT_THAT(std::string(ChatRefusal("{}").message()), HasSubstr("messages is missing"));
  EXPECT_THAT(std::string(ChatRefusal(ChatOf("")).message()),
              HasSubstr("messages is an empty list; it takes at least one message"));
  EXPECT_THAT(std::string(ChatRefusal(R"({"messages": "x"})").message()),
              HasSubstr("messages is \"x\"; it takes a list of messages"));
}

TEST(ChatRequestTest, TooManyMessagesPartsAndCallsAreRefusedWithTheNumbers) {
  const auto of = [](size_t messages, size_t parts, size_t calls) {
    const nlohmann::json call = {{"type", "function"}, {"function", {{"name", "f"}}}};
    const nlohmann::json message = {{"role", "user"},
                                    {"content", std::vector<std::string>(parts, "x")},
                                    {"tool_calls", std::vector<nlohmann::json>(calls, call)}};
    return nlohmann::json({{"messages", std::vector<nlohmann::json>(messages, message)}}).dump();
  };
  EXPECT_EQ(ConversationOf(of(kMaxMessages, 1, 0)).messages.size(), kMaxMessages);
  EXPECT_EQ(ChatRefusal(of(kMaxMessages + 1, 1, 0)).message(),
            "messages has 4097 messages; it takes up to 4096");
  EXPECT_TRUE(ParseChatRequest(of(1, kMaxPartsOfMessage, kMaxToolCallsOfMessage), {}).ok());
  EXPECT_EQ(ChatRefusal(of(1, kMaxPartsOfMessage + 1, 0)).message(),
            "messages[0].content has 1025 parts; it takes up to 1024");
  EXPECT_TRUE(ParseChatRequest(of(64, 1000, 24), {}).ok()) << "65,536 in all";
  EXPECT_EQ(ChatRefusal(of(64, 1000, 25)).message(),
            "messages has more than 65536 parts and calls of tools; send texts instead of parts");
  EXPECT_EQ(ChatRefusal(of(1, 1, kMaxToolCallsOfMessage + 1)).message(),
            "messages[0].tool_calls has 1025 calls; it takes up to 1024");
}

TEST(ChatRequestTest, JsonForTheTemplateIsChecked) {
  for (const char* const field : {"tools", "documents", "chat_template_kwargs"}) {
    for (const std::string& value :
         {std::string("[{]"), std::string("{\"a\": nan}"), std::string("[01]"),
          std::string("{\"a\": \"\\ud800\"}"), std::string(70, '['),
          absl::StrCat("{\"a\": ", std::string(70, '['), "}")}) {
      const absl::Status status = ChatRefusal(ChatWith(absl::StrCat("\"", field, "\": ", value)));
      EXPECT_THAT(std::string(status.message()),
                  testing::AnyOf(HasSubstr("not valid JSON"), HasSubstr("it takes")))
          << field << value;
    }
  }
  EXPECT_THAT(std::string(ChatRefusal(ChatWith(absl::StrCat("\"chat_template_kwargs\": {\"a\": ",
                                                            std::string(70, '['), "}")))
                              .message()),
              HasSubstr("nested deeper than 64 levels"));
}

TEST(ChatRequestTest, AnythingCutOffIsRefused) {
  const std::string body = ChatWith(
      R"("tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none",
         "chat_template_kwargs": {"a": [1, "ä"]}, "documents": [{"a": "b"}], "odd": {"a": -1})");
  ASSERT_TRUE(ParseChatRequest(body, {}).ok());
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_FALSE(ChatRefusal(absl::string_view(body).substr(0, size)).ok());
  }
}

}  // namespace
}  // namespace baton
