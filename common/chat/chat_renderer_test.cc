#include "common/chat/chat_renderer.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/scratch_folder.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// Renders every message as ROLE:CONTENT; and marks the beginning of an answer.
constexpr char kPlain[] =
    "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}";
// Shows all of the messages, as JSON.
constexpr char kDump[] = "{{ messages | tojson }}";

ChatMessage Message(std::string role, std::string content) {
  ChatMessage message;
  message.role = std::move(role);
  message.content = std::move(content);
  return message;
}

class ChatRendererTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(folder_.path(), "/", name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }
  void Load(const std::string& choice = "auto") {
    const auto texts = ReadChatTexts(folder_.path());
    ASSERT_TRUE(texts.ok()) << texts.status();
    auto renderer = ChatRenderer::Load(*texts, choice);
    ASSERT_TRUE(renderer.ok()) << renderer.status();
    renderer_ = *std::move(renderer);
  }
  void LoadTemplate(const std::string& source) {
    Write("chat_template.jinja", source);
    Load();
  }
  std::string Render(const Chat& chat) {
    const auto prompt = renderer_->Render(chat, {});
    return prompt.ok() ? prompt->text : absl::StrCat("ERROR: ", prompt.status().message());
  }
  std::string Render(std::vector<ChatMessage> messages) {
    Chat chat;
    chat.messages = std::move(messages);
    return Render(chat);
  }
  std::string ParameterOfRefusal(const Chat& chat) {
    const auto prompt = renderer_->Render(chat, {});
    EXPECT_TRUE(absl::IsInvalidArgument(prompt.status())) << prompt.status();
    return ParameterOf(prompt.status());
  }

  ScratchFolder folder_;
  std::unique_ptr<const ChatRenderer> renderer_;
};

TEST_F(ChatRendererTest, TemplatesComeFromTheirFilesInOrder) {
  Load();
  EXPECT_THAT(Render({Message("user", "a")}), HasSubstr("the model has no chat template"));
  Write("tokenizer_config.json",
        R"({"chat_template": "config{{ bos_token }}", "bos_token": {"content": "<s>"}})");
  Load();
  EXPECT_EQ(Render({Message("user", "a")}), "config<s>");
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "D{{ eos_token }}"},
                              {"name": "tool_use", "template": "T"}]})");
  Write("special_tokens_map.json", R"({"eos_token": "</s>"})");
  Load();
  Chat chat;
  chat.messages = {Message("user", "a")};
  EXPECT_EQ(Render(chat), "D</s>");
  chat.tools = R"([{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(Render(chat), "T");
  Write("chat_template.jinja", "file");
  Load();
  EXPECT_EQ(Render(chat), "file");
  Write("additional_chat_templates/tool_use.jinja", "file of tools");
  Load();
  EXPECT_EQ(Render(chat), "file of tools");
  Write("mine.jinja", "mine");
  Load(absl::StrCat(folder_.path(), "/mine.jinja"));
  EXPECT_EQ(Render(chat), "mine");
  Load("none");
  EXPECT_THAT(Render(chat), HasSubstr("chat is switched off"));
}

TEST_F(ChatRendererTest, ABrokenTemplateRefusesChatAndABrokenChoiceTheStart) {
  LoadTemplate("a\n{% autoescape x %}");
  EXPECT_THAT(Render({Message("user", "a")}),
              testing::AllOf(HasSubstr("chat template can't be read"), HasSubstr("line 2"),
                             HasSubstr("autoescape")));
  EXPECT_FALSE(renderer_->usable().ok());
  const std::string path = absl::StrCat(folder_.path(), "/chat_template.jinja");
  EXPECT_THAT(std::string(ChatRenderer::Load({}, path).status().message()),
              testing::AllOf(HasSubstr(path), HasSubstr("line 2")));
  EXPECT_THAT(std::string(ChatRenderer::Load({}, "/no/such").status().message()),
              HasSubstr("--chat-template is '/no/such'"));
  Write("tokenizer_config.json", "{");
  EXPECT_THAT(std::string(ReadChatTexts(folder_.path()).status().message()),
              HasSubstr("tokenizer_config.json"));
}

TEST_F(ChatRendererTest, ArgumentsOfToolCallsAreObjects) {
  LoadTemplate(kDump);
  ChatMessage message;
  message.role = "assistant";
  message.tool_calls = {{"c1", "f", R"({"b": 1, "a": [12345678901234567890123]})"},
                        {"", "g", "[1]"},
                        {"", "h", "{"},
                        {"", "i", ""}};
  const std::string text = Render({message});
  EXPECT_EQ(text, R"([{"role": "assistant", "content": "", "tool_calls": [)"
                  R"({"id": "c1", "type": "function", "function": {"name": "f", )"
                  R"("arguments": {"b": 1, "a": [12345678901234567890123]}}}, )"
                  R"({"type": "function", "function": {"name": "g", "arguments": {}}}, )"
                  R"({"type": "function", "function": {"name": "h", "arguments": {}}}, )"
                  R"({"type": "function", "function": {"name": "i", "arguments": {}}}]}])");
  EXPECT_EQ(renderer_->broken_arguments().value(), 2u);  // No arguments at all are right.
}

TEST_F(ChatRendererTest, PartsStayPartsWhereTheTemplateTakesThem) {
  ChatMessage message = Message("user", "");
  message.content = std::vector<std::string>{"a", "b"};
  LoadTemplate(kPlain);
  EXPECT_EQ(Render({message}), "user:a\nb;>");
  constexpr char kParts[] =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}";
  LoadTemplate(kParts);
  EXPECT_EQ(Render({message}), "[a][b]");
  message.role = "tool";
  EXPECT_EQ(Render({message}), "a\nb");
  message.role = "user";
  LoadTemplate("{{ messages[0].content | tojson }}");  // It would show parts as JSON.
  EXPECT_EQ(Render({message}), R"("a\nb")");
}

TEST_F(ChatRendererTest, DevelopersAndSystems) {
  LoadTemplate(kPlain);
  EXPECT_EQ(Render({Message("developer", "d"), Message("user", "u")}), "system:d;user:u;>");
  EXPECT_EQ(Render({Message("user", "u"), Message("system", "s"), Message("developer", "d")}),
            "user:u;system:s;system:d;>");
  LoadTemplate(absl::StrCat(kPlain, "{{ '' if 'developer' else '' }}"));
  EXPECT_EQ(Render({Message("developer", "d")}), "developer:d;>");
  constexpr char kOneSystem[] =
      "{% if messages[0].role == 'system' %}<{{ messages[0].content }}>"
      "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}"
      "{% if m.role != 'user' %}{{ raise_exception('only users') }}{% endif %}{{ m.content }}"
      "{% endfor %}";
  LoadTemplate(kOneSystem);
  EXPECT_EQ(Render({Message("user", "u"), Message("system", "s"), Message("system", "t")}),
            "<s\n\nt>u");
  EXPECT_EQ(Render({Message("assistant", "a")}),
            "ERROR: the model's chat template refuses the messages: only users");
  // The last message is the user's once the systems are one.
  Chat chat;
  chat.messages = {Message("system", "s"), Message("user", "u"), Message("system", "t")};
  chat.continue_final_message = true;
  EXPECT_EQ(Render(chat), "<s\n\nt>u");
  LoadTemplate("{{ raise_exception('x' * 5000) }}");
  EXPECT_LT(Render(chat).size(), 1100u);
}

TEST_F(ChatRendererTest, ThoughtsHaveThreeNames) {
  LoadTemplate(
      "{% for m in messages %}{{ m.reasoning }}{{ m.reasoning_content }}{{ m.thinking }}"
      "{{ m.name }}{{ m.tool_call_id }}{% endfor %}");
  ChatMessage message = Message("assistant", "x");
  message.reasoning = "r";
  message.name = "n";
  message.tool_call_id = "t";
  EXPECT_EQ(Render({message, Message("user", "y")}), "rrrnt");
}

TEST_F(ChatRendererTest, OnlyTheTemplatesTextMayHaveSpecialTokens) {
  Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  LoadTemplate(
      "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
      "{{ extra }}{{ 'critic' if false }}");
  Chat chat;
  chat.messages = {Message("user", "<|user|>"), Message("critic", "b")};
  chat.template_kwargs = R"({"extra": "<|end|>", "bos_token": "<|mine|>"})";
  const auto prompt = renderer_->Render(chat, {});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->text, "<|mine|><|user|><|user|><|critic|>b<|end|>");
  std::vector<std::string> from_template;
  for (const TextRange& range : prompt->from_template) {
    from_template.push_back(prompt->text.substr(range.begin, range.end - range.begin));
  }
  EXPECT_THAT(from_template, testing::ElementsAre("<|user|>", "<|critic|>"));
  for (const char* const role : {"end_of_turn", "<|", "|>", ""}) {
    chat.messages[1].role = role;
    EXPECT_EQ(ParameterOfRefusal(chat), "messages[1].role") << role;
  }
}

// The demo's template has its special tokens in quotes, and writes roles as special tokens.
TEST_F(ChatRendererTest, NoRoleOfTheDemoForgesAToken) {
  auto renderer = ChatRenderer::Load(*ReadChatTexts(BATON_SOURCE_DIR "/common/model/demo"), "auto");
  ASSERT_TRUE(renderer.ok()) << renderer.status();
  renderer_ = *std::move(renderer);
  Chat chat;
  for (const char* const role : {"end_of_turn", "<|end_of_turn|>", "<|assistant|>"}) {
    chat.messages = {Message(role, "hi")};
    EXPECT_EQ(ParameterOfRefusal(chat), "messages[0].role") << role;
  }
  chat.messages = {Message("user", "hi")};
  EXPECT_EQ(Render(chat), "<|begin_of_text|><|user|>hi<|end_of_turn|><|assistant|>");
}

TEST_F(ChatRendererTest, LargeConversationsAreRefused) {
  LoadTemplate(kPlain);
  Chat chat;
  chat.messages = {Message("assistant", "")};
  chat.messages[0].tool_calls.resize(kMaxPartsOfChat + 1);
  EXPECT_EQ(ParameterOfRefusal(chat), "messages");
  chat.messages.assign(kMaxMessages + 1, Message("user", ""));
  EXPECT_EQ(ParameterOfRefusal(chat), "messages");
  chat.messages = {Message("user", "a")};
  std::string lists = "[";
  for (int i = 0; i < 300000; ++i) absl::StrAppend(&lists, "[],");
  chat.tools = absl::StrCat(R"([{"a": )", lists, "0]}]");
  EXPECT_EQ(ParameterOfRefusal(chat), "tools");
}

TEST_F(ChatRendererTest, AnswersContinueTheLastMessage) {
  LoadTemplate(kPlain);
  Chat chat;
  chat.messages = {Message("user", "q"), Message("assistant", "It is ")};
  chat.continue_final_message = true;
  EXPECT_EQ(Render(chat), "user:q;assistant:It is ");
  chat.add_generation_prompt = true;
  EXPECT_EQ(ParameterOfRefusal(chat), "continue_final_message");
  chat.add_generation_prompt = false;
  LoadTemplate("{% for m in messages %}{{ m.content | trim }}</s>{% endfor %}");
  EXPECT_EQ(Render(chat), "q</s>It is");
  chat.messages.back().content = "\u00a0It is\u3000";
  EXPECT_EQ(Render(chat), "q</s>It is");
  LoadTemplate("nothing of it, but content");
  EXPECT_EQ(ParameterOfRefusal(chat), "continue_final_message");
  chat.messages.back().content = std::monostate();
  EXPECT_EQ(ParameterOfRefusal(chat), "continue_final_message");
}

TEST_F(ChatRendererTest, WrongConversationsAreRefusedWithTheirParameter) {
  LoadTemplate(kPlain);
  Chat chat;
  EXPECT_EQ(ParameterOfRefusal(chat), "messages");
  chat.messages = {Message("user", "\xff")};
  EXPECT_EQ(ParameterOfRefusal(chat), "messages[0].content");
  chat.messages = {Message("user", "a")};
  for (const char* const tools : {"{", "5", "[5]"}) {
    chat.tools = tools;
    EXPECT_EQ(ParameterOfRefusal(chat), "tools") << tools;
  }
  chat.tools = "[]";
  EXPECT_EQ(Render(chat), "user:a;>");
  for (const char* const kwargs : {"{", "[]", R"({"messages": 5})"}) {
    chat.template_kwargs = kwargs;
    EXPECT_EQ(ParameterOfRefusal(chat), "chat_template_kwargs") << kwargs;
  }
  LoadTemplate("{{ messages[0].content * 100000000 }}");
  EXPECT_THAT(Render({Message("user", "abc")}),
              HasSubstr("too much for the model's chat template"));
  LoadTemplate("{{ messages.x.y }}");
  EXPECT_THAT(Render({Message("user", "abc")}), HasSubstr("can't write the messages: line 1"));
}

}  // namespace
}  // namespace baton
