// Renders chat templates for tests/chat/check_chat_templates. Each line of the standard input is a
// JSON object: "template", "variables", "now" in seconds, and optionally "tokenizer", the path of a
// tokenizer.json. Each line of the standard output is one too: "text", "from_template", the ranges
// of bytes that the template wrote, and "ids" if there is a tokeniser, or "error" and "code".
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/chat/chat_json.h"
#include "common/chat/chat_template.h"
#include "common/chat/python_text.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {
namespace {

std::string JsonString(absl::string_view text) {
  RenderMeter meter({.max_steps = int64_t{1} << 40, .max_live_bytes = int64_t{1} << 40});
  TextBuilder out(&meter);
  JsonStyle style;
  style.ensure_ascii = true;
  BATON_CHECK(AppendJson(ChatValue::Text(text, TextOrigin::kPeople), style, &out).ok());
  return out.TakeText().Utf8();
}

absl::StatusOr<RenderedText> RenderLine(const ChatDict& line) {
  static auto* const parsed =
      new std::map<std::string, absl::StatusOr<std::unique_ptr<const ChatTemplate>>>;
  const std::string source = line.Find("template")->AsText().Utf8();
  const auto place = parsed->find(source);
  const auto& chat_template =
      (place != parsed->end() ? place : parsed->emplace(source, ChatTemplate::Parse(source)).first)
          ->second;
  if (!chat_template.ok()) return chat_template.status();
  ChatVariables variables;
  for (const auto& [name, value] : line.Find("variables")->AsDict().entries()) {
    variables.emplace_back(name.AsText().Utf8(), value);
  }
  const TemplateClock clock = {.now = absl::FromUnixSeconds(line.Find("now")->AsInt())};
  return (*chat_template)->Render(variables, RenderLimits{}, clock);
}

// Returns the ids of a rendered chat, as a router makes them.
absl::StatusOr<std::vector<TokenId>> IdsOf(const RenderedText& rendered, const std::string& path) {
  static auto* const loaded = new std::map<std::string, std::unique_ptr<const Tokenizer>>;
  std::unique_ptr<const Tokenizer>& tokenizer = (*loaded)[path];
  if (tokenizer == nullptr) {
    ASSIGN_OR_RETURN(tokenizer, Tokenizer::FromFile(path));
  }
  return tokenizer->Encode(rendered.text,
                           {.add_special = false, .special_ranges = rendered.from_template});
}

std::string ErrorLine(const absl::Status& status) {
  return absl::StrCat("{\"error\": ", JsonString(status.message()),
                      ", \"code\": ", JsonString(absl::StatusCodeToString(status.code())), "}");
}

std::string AnswerLine(const std::string& text) {
  const auto line = ParseChatJson(text);
  const auto rendered = line.ok() ? RenderLine(line->AsDict()) : line.status();
  if (!rendered.ok()) return ErrorLine(rendered.status());
  const std::string ranges =
      absl::StrJoin(rendered->from_template, ", ", [](std::string* out, const TextRange& range) {
        absl::StrAppend(out, "[", range.begin, ", ", range.end, "]");
      });
  std::string ids;
  if (const ChatValue* const path = line->AsDict().Find("tokenizer")) {
    const auto encoded = IdsOf(*rendered, path->AsText().Utf8());
    if (!encoded.ok()) return ErrorLine(encoded.status());
    ids = absl::StrCat(", \"ids\": [", absl::StrJoin(*encoded, ", "), "]");
  }
  return absl::StrCat("{\"text\": ", JsonString(rendered->text), ", \"from_template\": [", ranges,
                      "]", ids, "}");
}

}  // namespace
}  // namespace baton

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << baton::AnswerLine(line) << std::endl;
  }
}
