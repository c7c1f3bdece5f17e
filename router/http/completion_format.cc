#include "router/http/completion_format.h"

#include "router/http/json_writer.h"

namespace baton {
namespace {

class TextFormat final : public CompletionFormat {
 public:
  absl::string_view Object(bool /*stream*/) const override { return "text_completion"; }
  void AppendWholeText(absl::string_view text, std::string* out) const override {
    out->append("\"text\":");
    AppendJsonString(text, out);
  }
  void AppendPartOfText(absl::string_view text, bool /*first*/, bool /*last*/,
                        std::string* out) const override {
    AppendWholeText(text, out);
  }
  void AddLogprob(const v1::Token& token, size_t offset, int alternatives,
                  const Tokenizer& tokenizer, LogprobLists* lists) const override {
    lists->Add(token, offset, alternatives, tokenizer);
  }
  void AppendLogprobs(const LogprobLists* before, const LogprobLists& lists,
                      std::string* out) const override {
    lists.AppendTo(before, out);
  }
  bool PromptIsInChoices() const override { return true; }
};

class ChatFormat final : public CompletionFormat {
 public:
  absl::string_view Object(bool stream) const override {
    return stream ? "chat.completion.chunk" : "chat.completion";
  }
  void AppendWholeText(absl::string_view text, std::string* out) const override {
    out->append("\"message\":{\"role\":\"assistant\",\"content\":");
    AppendJsonString(text, out);
    out->append(",\"refusal\":null}");
  }
  // The role comes with the first token and not before, because load tools take the first event
  // with a choice for the first token.
  void AppendPartOfText(absl::string_view text, bool first, bool last,
                        std::string* out) const override {
    out->append("\"delta\":{");
    if (first) out->append("\"role\":\"assistant\",");
    if (first || !last) {
      out->append("\"content\":");
      AppendJsonString(text, out);
    }
    out->push_back('}');
  }
  void AddLogprob(const v1::Token& token, size_t /*offset*/, int alternatives,
                  const Tokenizer& tokenizer, LogprobLists* lists) const override {
    lists->AddToContent(token, alternatives, tokenizer);
  }
  void AppendLogprobs(const LogprobLists* /*before*/, const LogprobLists& lists,
                      std::string* out) const override {
    lists.AppendContentTo(out);
  }
  bool PromptIsInChoices() const override { return false; }
};

}  // namespace

const CompletionFormat& CompletionFormat::Of(bool chat) {
  static const TextFormat text;
  static const ChatFormat of_chat;
  if (chat) return of_chat;
  return text;
}

}  // namespace baton
