#include "common/chat/chat_template.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/chat/chat_json.h"

namespace baton {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ChatVariables VariablesFromJson(absl::string_view json) {
  ChatVariables variables;
  const auto value = ParseChatJson(json);
  EXPECT_TRUE(value.ok()) << value.status();
  for (const auto& [name, item] : value->AsDict().entries()) {
    variables.emplace_back(name.AsText().Utf8(), item);
  }
  return variables;
}

absl::StatusOr<RenderedText> RenderSource(absl::string_view source, absl::string_view json = "{}",
                                          const RenderLimits& limits = {}) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const TemplateClock clock = {.now = absl::FromUnixSeconds(1'722'000'000)};
  return (*parsed)->Render(VariablesFromJson(json), limits, clock);
}

std::string TextOf(absl::string_view source, absl::string_view json = "{}") {
  const auto rendered = RenderSource(source, json);
  return rendered.ok() ? rendered->text : absl::StrCat("ERROR ", rendered.status().message());
}

std::string ErrorOf(absl::string_view source, absl::string_view json = "{}") {
  const auto rendered = RenderSource(source, json);
  return rendered.ok() ? absl::StrCat("TEXT ", rendered->text)
                       : std::string(rendered.status().message());
}

// Returns the text with "." for each byte that is people's.
std::string OriginsOf(absl::string_view source, absl::string_view json = "{}") {
  const auto rendered = RenderSource(source, json);
  if (!rendered.ok()) return absl::StrCat("ERROR ", rendered.status().message());
  std::string shown(rendered->text.size(), '.');
  for (const TextRange& range : rendered->from_template) {
    shown.replace(range.begin, range.end - range.begin, rendered->text, range.begin,
                  range.end - range.begin);
  }
  return shown;
}

TEST(ChatTemplateTest, AParseErrorNamesItsLineAndConstruct) {
  EXPECT_EQ(ErrorOf("a\n\n{% autoescape true %}{% endautoescape %}"),
            "line 3: the tag 'autoescape' is not supported");
  EXPECT_EQ(ErrorOf("{{ 1 +\n }}"),
            "line 2: expected an expression, found the end of the expression");
  EXPECT_EQ(ErrorOf("{% if x %}"),
            "line 1: the template ends where a tag 'elif' or 'else' or 'endif' is missing");
  EXPECT_EQ(ErrorOf("{% for x in y %}{% endif %}"), "line 1: the tag 'endif' is not supported");
  EXPECT_EQ(ErrorOf("{{ x|nothing }}"), "line 1: there is no filter 'nothing'");
  EXPECT_EQ(ErrorOf("{{ x is nothing }}"), "line 1: there is no test 'nothing'");
  EXPECT_EQ(ErrorOf("{% break %}"), "line 1: 'break' outside of a loop");
  EXPECT_EQ(ErrorOf("{{ 'a }}"), "line 1: a string has no end");
  EXPECT_EQ(ErrorOf("\n{# a"), "line 2: the comment has no end");
  EXPECT_EQ(ErrorOf("{{ (1] }}"), "line 1: unexpected ']'");
  EXPECT_EQ(ErrorOf("{{ f(a=1, 2) }}"), "line 1: an argument of a call is at the wrong place");
  EXPECT_EQ(ErrorOf("\xFF"), "the template is not UTF-8");
}

TEST(ChatTemplateTest, AFilterThatDoesNotExistFailsOnlyWhereItRuns) {
  EXPECT_EQ(TextOf("{% if false %}{{ x|nothing }}{% endif %}{{ 1 if true else x|nothing }}"), "1");
  EXPECT_EQ(ErrorOf("{% if true %}\n{{ 1|nothing }}{% endif %}"),
            "line 2: there is no filter 'nothing'");
}

TEST(ChatTemplateTest, AnErrorNamesItsLine) {
  EXPECT_EQ(ErrorOf("\n{{ x.y }}"), "line 2: 'x' is undefined");
  EXPECT_EQ(ErrorOf("{{ m.y.z }}", R"({"m": {}})"), "line 1: 'dict object' has no attribute 'y'");
  EXPECT_EQ(ErrorOf("{{ 1 / 0 }}"), "line 1: division by zero");
  EXPECT_EQ(ErrorOf("{{ m.append(1) }}", R"({"m": []})"),
            "line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(ErrorOf("{{ x.__class__ }}{{ x.__class__.a }}", R"({"x": "a"})"),
            "line 1: access to attribute '__class__' of 'str' object is unsafe.");
  EXPECT_EQ(ErrorOf("{{ [] < 1 }}"),
            "line 1: '<' is not supported between instances of 'list' and 'int'");
}

TEST(ChatTemplateTest, TheMessageOfRaiseExceptionIsForTheClient) {
  EXPECT_EQ(RenderSource("\n{{ raise_exception('No ' ~ role) }}", R"({"role": "x"})").status(),
            absl::InvalidArgumentError("No x"));
}

TEST(ChatTemplateTest, WhatTheTemplateNamesIsKnown) {
  const auto parsed = ChatTemplate::Parse("{% if m.role == 'developer' %}system{% endif %}{{ k }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE((*parsed)->HasString("developer"));
  EXPECT_FALSE((*parsed)->HasString("system"));
  EXPECT_FALSE((*parsed)->HasString("role"));
  EXPECT_TRUE((*parsed)->HasVariable("k"));
  EXPECT_FALSE((*parsed)->HasVariable("role"));
}

TEST(ChatTemplateTest, AnIteratorIsReadOnceAndIsAlwaysTrue) {
  EXPECT_EQ(TextOf("{% set i = [1, 2]|select %}{{ i|list }}{{ i|list }}{{ 'true' if i }}"),
            "[1, 2][]true");
  // An error in it waits until it is read.
  EXPECT_EQ(TextOf("{% set i = [1, 2]|map('nothing') if true %}ok"), "ok");
}

TEST(ChatTemplateTest, TheClockIsGiven) {
  EXPECT_EQ(TextOf("{{ strftime_now('%d %b %Y %H:%M %% %-d %f %Z|%q') }}"),
            "26 Jul 2024 13:20 % 26 000000 |%q");
}

TEST(ChatOriginTest, LiteralsAreTheTemplatesAndValuesArePeoples) {
  EXPECT_EQ(OriginsOf("<a>{{ x }}<b>{{ '<c>' }}{{ 1 }}", R"({"x": "<d>"})"), "<a>...<b><c>1");
  EXPECT_EQ(OriginsOf("{{ '<' ~ x ~ '>' }}{{ '<' + x + '>' }}", R"({"x": "ab"})"), "<..><..>");
  EXPECT_EQ(OriginsOf("{{ m.role }}{{ {'u': '<U>'}[m.role] }}", R"({"m": {"role": "u"}})"), ".<U>");
  EXPECT_EQ(
      OriginsOf("{% for k, v in m.items() %}{{ k ~ '=' ~ v }}{% endfor %}", R"({"m": {"k": "v"}})"),
      ".=.");
}

TEST(ChatOriginTest, NumbersAndBracketsArePeoples) {
  EXPECT_EQ(OriginsOf("{{ n }}|{{ n + 1 }}|{{ true and n }}|{{ [n, 'x'] }}", R"({"n": 7})"),
            ".|.|.|.....x..");
  EXPECT_EQ(OriginsOf("{{ {'a': x}|tojson }}", R"({"x": "<b>"})"), "..a.........");
  EXPECT_EQ(OriginsOf("{{ '%c' % n }}{{ '{:c}'.format(n) }}", R"({"n": 60})"), "..");
  EXPECT_EQ(OriginsOf("{{ '%5s|' % 'ab' }}{{ '{:*>4}|'.format('ab') }}"), "...ab|..ab|");
}

TEST(ChatOriginTest, CharactersKeepTheirOriginThroughOperations) {
  constexpr absl::string_view kVariables = R"({"x": "a<b c", "s": "-"})";
  EXPECT_EQ(OriginsOf("{{ ('<' ~ x)|upper }}{{ ('<' ~ x ~ '>').title() }}", kVariables),
            "<.....<.....>");
  EXPECT_EQ(OriginsOf("{{ x.replace('<', '[') }}{{ 'a-b'.replace('-', x) }}", kVariables),
            ".[...a.....b");
  EXPECT_EQ(OriginsOf("{{ ('  ' ~ x ~ ' | ')|trim }}{{ ('<' ~ x)[::-1] }}", kVariables),
            "..... |.....<");
  EXPECT_EQ(OriginsOf("{{ x.split()|join('+') }}{{ ['<', '>']|join(s) }}", kVariables), "...+.<.>");
  EXPECT_EQ(OriginsOf("{{ '<%s>' % x }}{{ '<{}>'.format(x) }}{{ '<%s>'|format(x) }}", kVariables),
            "<.....><.....><.....>");
  EXPECT_EQ(
      OriginsOf("{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m(x) }}{% set b %}<{{ x }}{% endset %}"
                "{{ b }}{% filter upper %}a{{ x }}{% endfilter %}",
                kVariables),
      "<.....><.....A.....");
  EXPECT_EQ(
      OriginsOf("{{ ('a' ~ x)|tojson }}{{ ('<' ~ s)|e }}{{ 'a\n<'|indent('>') }}", kVariables),
      ".a......&lt;.a\n><");
  EXPECT_EQ(OriginsOf("{{ 'a' * 3 }}{{ s * 2 }}{{ 'ab'|list|first }}{{ ('<' ~ s)|list|last }}",
                      kVariables),
            "aaa..a.");
}

TEST(ChatOriginTest, ACallerMayGiveTheTemplatesOwnText) {
  const auto parsed = ChatTemplate::Parse("{{ bos }}{{ x }}");
  ASSERT_TRUE(parsed.ok());
  const auto rendered = (*parsed)->Render({{"bos", ChatValue::Text("<s>", TextOrigin::kTemplate)},
                                           {"x", ChatValue::Text("<s>", TextOrigin::kPeople)}},
                                          {}, {});
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(rendered->text, "<s><s>");
  ASSERT_EQ(rendered->from_template.size(), 1u);
  EXPECT_EQ(rendered->from_template[0].end, 3u);
}

}  // namespace
}  // namespace baton
