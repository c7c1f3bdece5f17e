#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/tokenizer/utf8.h"
#include "tests/chat/golden_lines.h"

namespace baton {
namespace {

// Letters that no template here writes, in two cases so that upper() and its like change them.
bool IsMarker(char32_t code) { return code >= 0x10400 && code < 0x10450; }

// Returns `value` with each character of its texts replaced by a marker. Keys and texts that the
// templates compare stay as they are if `all` is false.
ChatValue Marked(const ChatValue& value, bool all) {
  if (value.IsText()) {
    OriginText text;
    if (!all && value.AsText().size() < 12) return value;
    for (const OriginChar c : value.AsText().chars()) {
      text.Append(c.WithCode(c.code() == ' ' ? ' ' : 0x10400 + c.code() % 0x50));
    }
    return ChatValue::Text(std::move(text));
  }
  if (value.IsSequence()) {
    std::vector<ChatValue> items;
    for (const ChatValue& item : value.AsItems()) items.push_back(Marked(item, all));
    return ChatValue::List(std::move(items));
  }
  if (value.IsDict()) {
    std::vector<std::pair<ChatValue, ChatValue>> entries;
    for (const auto& [key, item] : value.AsDict().entries()) {
      const bool is_role = key.AsText() == "role" || key.AsText() == "type";
      entries.emplace_back(key, Marked(item, all && !is_role));
    }
    return ChatValue::Dict(entries);
  }
  return value;
}

void ExpectNoMarkerFromTemplate(const RenderedText& rendered) {
  for (const TextRange& range : rendered.from_template) {
    for (size_t i = range.begin; i < range.end;) {
      const Utf8Char c = DecodeUtf8(rendered.text.data() + i);
      ASSERT_FALSE(IsMarker(c.code)) << rendered.text.substr(range.begin, range.end - range.begin);
      i += c.bytes;
    }
  }
}

TEST(ChatOriginsTest, NoCharacterOfPeopleEverPassesForTheTemplates) {
  const auto templates = ReadGoldenTemplates();
  int rendered_texts = 0;
  for (const GoldenLine& line : ReadGoldenLines()) {
    for (const bool all : {false, true}) {
      ChatVariables variables = VariablesOf(line.variables);
      for (auto& [name, value] : variables) value = Marked(value, all);
      const auto rendered =
          templates.at(line.template_name)->Render(variables, RenderLimits{}, line.clock);
      if (!rendered.ok()) continue;
      ++rendered_texts;
      SCOPED_TRACE(line.template_name);
      ExpectNoMarkerFromTemplate(*rendered);
    }
  }
  EXPECT_GT(rendered_texts, 200);
}

TEST(ChatOriginsTest, TheMarkersOfTurnsAreTheTemplates) {
  const auto templates = ReadGoldenTemplates();
  int brackets = 0;
  for (const GoldenLine& line : ReadGoldenLines()) {
    if (line.template_name != "plain_turns.jinja") continue;
    ChatVariables variables = VariablesOf(line.variables);
    for (auto& [name, value] : variables) value = Marked(value, true);
    const auto rendered =
        templates.at(line.template_name)->Render(variables, RenderLimits{}, line.clock);
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    // No person can write "<" here, so the template wrote each one.
    for (size_t i = 0; i < rendered->text.size(); ++i) {
      if (rendered->text[i] != '<') continue;
      ++brackets;
      EXPECT_TRUE(
          std::any_of(rendered->from_template.begin(), rendered->from_template.end(),
                      [&](const TextRange& range) { return range.begin <= i && i < range.end; }));
    }
  }
  EXPECT_GT(brackets, 50);
}

}  // namespace
}  // namespace baton
