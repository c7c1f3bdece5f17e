#include "common/model/source/chat_texts.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "common/model/source/gguf_file.h"
#include "common/model/source/json_reader.h"

namespace baton {
namespace {

constexpr size_t kMaxChatFileBytes = 64 << 20;
// Special tokens that a template knows by name, as in transformers.
constexpr absl::string_view kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

std::optional<std::string> ReadText(const std::string& path) {
  auto text = ReadSmallFile(path, kMaxChatFileBytes);
  return text.ok() ? std::optional(*std::move(text)) : std::nullopt;
}

// Reads a file of JSON, if there is one.
absl::StatusOr<std::unique_ptr<const JsonText>> ReadJson(const std::string& path) {
  const std::optional<std::string> text = ReadText(path);
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
void ReadTemplateFiles(const std::string& folder, std::map<std::string, std::string>* templates) {
  if (auto source = ReadText(absl::StrCat(folder, "/chat_template.jinja"))) {
    templates->insert_or_assign(kDefaultTemplate, *std::move(source));
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat(folder, "/additional_chat_templates"), error)) {
    if (entry.path().extension() != ".jinja") continue;
    if (auto source = ReadText(entry.path())) {
      templates->insert_or_assign(entry.path().stem(), *std::move(source));
    }
  }
}

// Reads the templates in tokenizer_config.json: one, or several with names.
absl::Status ReadTemplates(const JsonValue& config, std::map<std::string, std::string>* templates) {
  const auto given = config.Member("chat_template");
  if (!given) return absl::OkStatus();
  if (given->String()) templates->insert_or_assign(kDefaultTemplate, std::string(*given->String()));
  return given->ForEachElement([&](const JsonValue& named) {
    const auto name = named.Member("name"), source = named.Member("template");
    if (name && name->String() && source && source->String()) {
      templates->insert_or_assign(std::string(*name->String()), std::string(*source->String()));
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<ChatTexts> ReadChatTexts(const std::string& folder) {
  ChatTexts texts;
  ASSIGN_OR_RETURN(const auto config, ReadJson(absl::StrCat(folder, "/tokenizer_config.json")));
  if (config != nullptr) {
    AddSpecialTokens(config->root(), &texts.special_tokens);
    // Older folders have some of the names in a file of their own.
    if (!config->root().Member("added_tokens_decoder")) {
      ASSIGN_OR_RETURN(const auto older,
                       ReadJson(absl::StrCat(folder, "/special_tokens_map.json")));
      if (older != nullptr) AddSpecialTokens(older->root(), &texts.special_tokens);
    }
  }
  ReadTemplateFiles(folder, &texts.templates);
  if (texts.templates.empty() && config != nullptr) {
    RETURN_IF_ERROR(ReadTemplates(config->root(), &texts.templates));
  }
  return texts;
}

ChatTexts ChatTextsOf(const GgufFile& file) {
  ChatTexts texts;
  constexpr absl::string_view kTemplate = "tokenizer.chat_template";
  for (const auto& [key, value] : file.settings()) {
    const auto* const source = std::get_if<std::string>(&value);
    absl::string_view name = key;
    if (source == nullptr || !absl::ConsumePrefix(&name, kTemplate)) continue;
    if (!IsUtf8(*source) || !IsUtf8(name)) continue;
    if (name.empty()) texts.templates[kDefaultTemplate] = *source;
    if (absl::ConsumePrefix(&name, ".")) texts.templates[std::string(name)] = *source;
  }
  const auto* const tokens = file.Find<std::vector<std::string>>("tokenizer.ggml.tokens");
  for (const auto& [here, there] :
       {std::pair("bos", "bos_token"), std::pair("eos", "eos_token"),
        std::pair("unknown", "unk_token"), std::pair("seperator", "sep_token"),
        std::pair("padding", "pad_token")}) {
    const auto* const id = file.Find<int64_t>(absl::StrCat("tokenizer.ggml.", here, "_token_id"));
    if (id == nullptr || tokens == nullptr || *id < 0 ||
        *id >= static_cast<int64_t>(tokens->size()) || !IsUtf8((*tokens)[*id])) {
      continue;
    }
    texts.special_tokens.emplace_back(there, (*tokens)[*id]);
  }
  return texts;
}

}  // namespace baton
