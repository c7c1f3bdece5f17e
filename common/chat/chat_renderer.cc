#include "common/chat/chat_renderer.h"

#include <algorithm>
#include <filesystem>
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

constexpr char kDefault[] = "default", kForTools[] = "tool_use";
// Special tokens that a template knows by name, as in transformers.
constexpr absl::string_view kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Reads a file of JSON, if there is one.
absl::StatusOr<std::unique_ptr<const JsonText>> ReadJson(const std::string& path) {
  const std::optional<std::string> text = ReadFile(path);
  if (!text) return nullptr;
  auto json = JsonText::Parse(*text);
  if (!json.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", json.status().message()));
  }
  return json;
}

// A special token of a file is a text, or an object with its content.
std::optional<absl::string_view> TextOfToken(const JsonValue& value) {
  if (const auto text = value.String()) return text;
  const auto content = value.Member("content");
  return content ? content->String() : std::nullopt;
}

// Appends the special tokens that a file names to `tokens`.
void AddSpecialTokens(const JsonValue& file,
                      std::vector<std::pair<std::string, std::string>>* tokens) {
  const auto add = [&](absl::string_view name, const JsonValue& value) {
    const auto text = TextOfToken(value);
    if (!text) return;
    tokens->emplace_back(std::string(name), std::string(*text));
  };
  for (const absl::string_view name : kSpecialNames) {
    if (const auto value = file.Member(name)) add(name, *value);
  }
  if (const auto extra = file.Member("extra_special_tokens"); extra && extra->IsObject()) {
    extra
        ->ForEachMember([&](absl::string_view name, const JsonValue& value) {
          add(name, value);
          return absl::OkStatus();
        })
        .IgnoreError();
  }
}

// Reads the templates that have files of their own in a folder.
void ReadTemplates(const std::string& folder, std::map<std::string, std::string>* templates) {
  if (auto source = ReadFile(absl::StrCat(folder, "/chat_template.jinja"))) {
    templates->insert_or_assign(kDefault, *std::move(source));
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat(folder, "/additional_chat_templates"), error)) {
    if (entry.path().extension() != ".jinja") continue;
    if (auto source = ReadFile(entry.path())) {
      templates->insert_or_assign(entry.path().stem(), *std::move(source));
    }
  }
}

// Reads the templates in tokenizer_config.json: one, or several with names.
absl::Status ReadTemplates(const JsonValue& config, std::map<std::string, std::string>* templates) {
  const auto given = config.Member("chat_template");
  if (!given) return absl::OkStatus();
  if (given->String()) templates->insert_or_assign(kDefault, std::string(*given->String()));
  return given->ForEachElement([&](const JsonValue& named) {
    const auto name = named.Member("name"), source = named.Member("template");
    if (name && name->String() && source && source->String()) {
      templates->insert_or_assign(std::string(*name->String()), std::string(*source->String()));
    }
    return absl::OkStatus();
  });
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

absl::StatusOr<std::unique_ptr<const ChatRenderer>> ChatRenderer::Load(const std::string& folder,
                                                                       const std::string& choice) {
  ChatSources sources;
  if (choice == "none") return FromSources(sources, choice);
  ASSIGN_OR_RETURN(const auto config, ReadJson(absl::StrCat(folder, "/tokenizer_config.json")));
  if (config != nullptr) {
    AddSpecialTokens(config->root(), &sources.special_tokens);
    // Older folders have some of the names in a file of their own.
    if (!config->root().Member("added_tokens_decoder")) {
      ASSIGN_OR_RETURN(const auto older,
                       ReadJson(absl::StrCat(folder, "/special_tokens_map.json")));
      if (older != nullptr) AddSpecialTokens(older->root(), &sources.special_tokens);
    }
  }
  if (choice == "auto") {
    ReadTemplates(folder, &sources.templates);
    if (sources.templates.empty() && config != nullptr) {
      RETURN_IF_ERROR(ReadTemplates(config->root(), &sources.templates));
    }
  }
  return FromSources(sources, choice);
}

absl::StatusOr<std::unique_ptr<const ChatRenderer>> ChatRenderer::FromSources(
    const ChatSources& sources, const std::string& choice) {
  auto renderer = std::unique_ptr<ChatRenderer>(new ChatRenderer());
  if (choice == "none") {
    renderer->usable_ =
        absl::InvalidArgumentError("chat is switched off (--chat-template=none); send a prompt");
    renderer->description_ = "none, by --chat-template";
    return renderer;
  }
  for (const auto& [name, text] : sources.special_tokens) {
    renderer->special_tokens_.emplace_back(name, ChatValue::Text(text, TextOrigin::kTemplate));
  }
  if (choice == "auto") {
    for (const auto& [name, source] : sources.templates) renderer->Add(name, source);
  } else {
    const auto source = ReadFile(choice);
    if (!source) {
      return absl::NotFoundError(
          absl::StrCat("--chat-template is '", choice,
                       "'; there is no such file; it takes auto, none or the "
                       "file of a template"));
    }
    renderer->Add(kDefault, *source);
    const absl::Status parsed = renderer->templates_.at(kDefault).parsed.status();
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
    description_ = "none in the folder";
    return;
  }
  std::vector<std::string> parts;
  absl::Status failure;
  for (const auto& [name, named] : templates_) {
    if (!named.parsed.ok()) {
      failure = absl::InvalidArgumentError(absl::StrCat(
          "the model's chat template", name == kDefault ? "" : " '",
          name == kDefault ? "" : name + "'", " can't be read: ", named.parsed.status().message()));
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
  auto found = templates_.find(chat.tools.empty() ? kDefault : kForTools);
  if (found == templates_.end()) found = templates_.find(kDefault);
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
