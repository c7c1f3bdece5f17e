#include "common/chat/chat_renderer.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error_details.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "common/chat/text_case.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr char kForTools[] = "tool_use";
std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Returns a text without the white space at its beginning, if `front` is true, and at its end, as
// Python's str.strip() and str.rstrip() do.
absl::string_view Stripped(absl::string_view text, bool front) {
  while (front && !text.empty()) {
    const Utf8Char c = DecodeUtf8(text.data());
    if (!IsPythonSpace(c.code)) break;
    text.remove_prefix(c.bytes);
  }
  while (!text.empty()) {
    const Utf8Char c = DecodeLastUtf8(text);
    if (!IsPythonSpace(c.code)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

// Leaves the last message open. Its text, `final_text`, has the tag behind it in what was rendered.
absl::Status CutBehindFinalMessage(absl::string_view final_text, RenderedText* rendered) {
  const absl::string_view tag = Stripped(kContinueTag, /*front=*/false);
  std::string& text = rendered->text;
  const size_t at = text.rfind(std::string(tag));
  const absl::string_view wanted = Stripped(final_text, /*front=*/true);
  if (at == text.npos || text.find(std::string(wanted)) == text.npos) {
    return BadParameter("continue_final_message",
                        "the model's chat template does not write the last message as it is, so it "
                        "can't be continued");
  }
  size_t end = at;
  // If the template has trimmed the message, its end is trimmed here too.
  if (text.compare(at, kContinueTag.size(), kContinueTag.data(), kContinueTag.size()) != 0) {
    end = Stripped(absl::string_view(text).substr(0, at), /*front=*/false).size();
  }
  text.resize(end);
  std::vector<TextRange>& ranges = rendered->from_template;
  while (!ranges.empty() && ranges.back().begin >= end) ranges.pop_back();
  if (!ranges.empty()) ranges.back().end = std::min(ranges.back().end, end);
  return absl::OkStatus();
}

absl::Status FailureOf(const absl::Status& status) {
  // The message may have a whole message of the conversation, and goes into trailers at gRPC.
  constexpr size_t kLongest = 1000;
  absl::string_view message = status.message();
  if (message.size() > kLongest) {
    size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
    message = message.substr(0, end);
  }
  const char* const why =
      absl::IsInvalidArgument(status)     ? "the model's chat template refuses the messages: "
      : absl::IsResourceExhausted(status) ? "the messages are too much for the model's chat "
                                            "template: "
                                          : "the model's chat template can't write the messages: ";
  return BadParameter(
      "messages",
      absl::StrCat(why, message, message.size() < status.message().size() ? "..." : ""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const ChatRenderer>> ChatRenderer::Load(const ChatTexts& texts,
                                                                       const std::string& choice) {
  auto renderer = std::unique_ptr<ChatRenderer>(new ChatRenderer());
  if (choice == "none") {
    renderer->usable_ =
        absl::InvalidArgumentError("chat is switched off (--chat-template=none); send a prompt");
    renderer->description_ = "none, by --chat-template";
    return renderer;
  }
  for (const auto& [name, text] : texts.special_tokens) {
    renderer->special_tokens_.emplace_back(name, ChatValue::Text(text, TextOrigin::kTemplate));
  }
  if (choice == "auto") {
    for (const auto& [name, text] : texts.templates) renderer->Add(name, text);
  } else {
    const auto text = ReadFile(choice);
    if (!text) {
      return absl::NotFoundError(
          absl::StrCat("--chat-template is '", choice,
                       "'; there is no such file; it takes auto, none or the "
                       "file of a template"));
    }
    renderer->Add(kDefaultTemplate, *text);
    const absl::Status parsed = renderer->templates_.at(kDefaultTemplate).parsed.status();
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--chat-template: ", choice, ": ", parsed.message()));
    }
  }
  renderer->Describe();
  return renderer;
}

void ChatRenderer::Add(const std::string& name, absl::string_view source) {
  Named named = {ChatTemplate::Parse(source), {}};
  if (named.parsed.ok()) named.traits = ProbeTemplate(**named.parsed, special_tokens_);
  templates_.insert_or_assign(name, std::move(named));
}

void ChatRenderer::Describe() {
  if (templates_.empty()) {
    usable_ = absl::InvalidArgumentError(
        "the model has no chat template; send a prompt, or start the router with --chat-template");
    description_ = "none";
    return;
  }
  std::vector<std::string> parts;
  absl::Status failure;
  for (const auto& [name, named] : templates_) {
    if (!named.parsed.ok()) {
      failure = absl::InvalidArgumentError(
          absl::StrCat("the model's chat template", name == kDefaultTemplate ? "" : " '",
                       name == kDefaultTemplate ? "" : name + "'",
                       " can't be read: ", named.parsed.status().message()));
      parts.push_back(absl::StrCat(name, " (", named.parsed.status().message(), ")"));
      continue;
    }
    parts.push_back(absl::StrCat(name, named.traits.takes_parts ? ", with parts" : "",
                                 named.traits.takes_several_systems ? "" : ", one system message"));
  }
  const bool any = std::any_of(templates_.begin(), templates_.end(),
                               [](const auto& one) { return one.second.parsed.ok(); });
  if (!any) usable_ = failure;
  description_ = absl::StrJoin(parts, "; ");
}

absl::StatusOr<ChatRenderer::Prompt> ChatRenderer::Render(const Chat& chat,
                                                          const TemplateClock& clock) const {
  if (!usable_.ok()) return WithParameter(usable_, "messages");
  if (chat.continue_final_message && chat.add_generation_prompt.value_or(false)) {
    return BadParameter("continue_final_message",
                        "continue_final_message and add_generation_prompt are both true");
  }
  auto found = templates_.find(chat.tools.empty() ? kDefaultTemplate : kForTools);
  if (found == templates_.end()) found = templates_.find(kDefaultTemplate);
  if (found == templates_.end()) {
    return BadParameter("messages",
                        "the model has several chat templates, and none of them is the default");
  }
  const Named& chosen = found->second;
  if (!chosen.parsed.ok()) {
    return BadParameter("messages", absl::StrCat("the model's chat template can't be read: ",
                                                 chosen.parsed.status().message()));
  }
  ASSIGN_OR_RETURN(NormalChat normal, NormalizeChat(chat, **chosen.parsed, chosen.traits));
  ChatVariables variables = special_tokens_;
  std::move(normal.variables.begin(), normal.variables.end(), std::back_inserter(variables));
  absl::StatusOr<RenderedText> rendered = (*chosen.parsed)->Render(variables, {}, clock);
  if (!rendered.ok()) return FailureOf(rendered.status());
  if (chat.continue_final_message) {
    RETURN_IF_ERROR(CutBehindFinalMessage(normal.final_text, &*rendered));
  }
  broken_arguments_.Add(normal.broken_arguments);
  return Prompt{std::move(rendered->text), std::move(rendered->from_template),
                normal.broken_arguments};
}

}  // namespace baton
