#include "kernels/mutations/switched_source.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mutations/source_tokens.h"

namespace baton::mutations {
namespace {

using testing::HasSubstr;

using Pairs = std::vector<std::pair<std::string, std::string>>;  // {text, wrong}

// Calls SwitchChanges with a change for each pair, numbered from 1.
absl::StatusOr<SwitchedSource> Switch(const std::string& source, const Pairs& pairs) {
  std::vector<SwitchedChange> changes;
  for (const auto& [text, wrong] : pairs) {
    const int number = static_cast<int>(changes.size()) + 1;
    changes.push_back({number, absl::StrCat("change ", number), text, wrong});
  }
  return SwitchChanges("a.cu", source, changes);
}

// Returns the tokens of the code with one space between them, so that comparisons ignore white
// space.
std::string Normal(absl::string_view code) {
  std::vector<std::string> texts;
  for (const Token& token : Tokens(code)) texts.emplace_back(token.text);
  return absl::StrJoin(texts, " ");
}

// Expects that a function with this body gets the expected body when the changes are switched into
// it. In `expected`, `On` stands for ::baton::mutations::IsOn.
void ExpectBody(const std::string& body, const Pairs& pairs, absl::string_view expected) {
  const absl::StatusOr<SwitchedSource> switched = Switch("void F() { " + body + " }", pairs);
  ASSERT_EQ(switched.status(), absl::OkStatus()) << body;
  EXPECT_EQ(Normal(absl::StrReplaceAll(switched->code, {{"::baton::mutations::IsOn", "On"}})),
            Normal(absl::StrCat("void F() { ", expected, " }")));
}

std::string Error(const std::string& source, const Pairs& pairs) {
  const absl::StatusOr<SwitchedSource> switched = Switch(source, pairs);
  EXPECT_EQ(switched.status().code(), absl::StatusCode::kInvalidArgument) << source;
  return std::string(switched.status().message());
}

TEST(SwitchedSourceTest, TakesTheExpressionAroundTheDifference) {
  ExpectBody("x = a + b * c;", {{"a + b", "a - b"}}, "x = (On(1) ? (a - b * c) : (a + b * c));");
  ExpectBody("return f(a, i < n && b);", {{"i < n", "true"}},
             "return f(a, (On(1) ? (true) : (i < n)) && b);");
  ExpectBody("x[2 * i + 1] += y;", {{"2 * i + 1", "2 * i"}},
             "x[(On(1) ? (2 * i) : (2 * i + 1))] += y;");
  ExpectBody("T t{a + 1, b};", {{"a + 1", "a"}}, "T t{(On(1) ? (a) : (a + 1)), b};");
  ExpectBody("x = p ? q : r;", {{"p ?", "!p ?"}}, "x = (On(1) ? (! p) : (p)) ? q : r;");
  ExpectBody("for (int m = 16; m > 0; m /= 2) g(m);", {{"int m = 16;", "int m = 8;"}},
             "for (int m = (On(1) ? (8) : (16)); m > 0; m /= 2) g(m);");
}

TEST(SwitchedSourceTest, TakesMoreWhereOperatorsOfTheWrongTextBindLess) {
  ExpectBody("x = p && q;", {{"q", "r || s"}}, "x = (On(1) ? (p && r || s) : (p && q));");
  ExpectBody("x = a + b;", {{"b", "p ? b : c"}}, "x = (On(1) ? (a + p ? b : c) : (a + b));");
  ExpectBody("s += a;", {{"s += a", "s = a"}}, "(On(1) ? (s = a) : (s += a));");
  ExpectBody("x = p ? q : r;", {{"p ? q : r", "q"}}, "x = (On(1) ? (q) : (p ? q : r));");
}

TEST(SwitchedSourceTest, TakesTheCallWhereItsArgumentsAreOthers) {
  ExpectBody("x = f(a, b);", {{"a, b", "b, a"}}, "x = (On(1) ? (f(b, a)) : (f(a, b)));");
  ExpectBody("x = f();", {{"f()", "f(1)"}}, "x = (On(1) ? (f(1)) : (f()));");
  ExpectBody("x = f(1);", {{"f(1)", "f()"}}, "x = (On(1) ? (f()) : (f(1)));");
  ExpectBody("x = f(g(a));", {{"g(a)", "a"}}, "x = f((On(1) ? (a) : (g(a))));");
  ExpectBody("x = f(a) + b;", {{"f(a) + b", "f(a + b)"}}, "x = (On(1) ? (f(a + b)) : (f(a) + b));");
}

TEST(SwitchedSourceTest, ExchangesStatements) {
  ExpectBody("a(); Sync(); b();", {{"Sync();", ""}}, "a(); if (On(1)) { } else { Sync(); } b();");
  ExpectBody("a(); b();", {{"a(); b();", "a(); Sync(); b();"}},
             "a();if (On(1)) { Sync(); } else {  } b();");
  ExpectBody("a(); b();", {{"a();", "if (x) a();"}},
             "if (On(1)) { if (x) a(); } else { a(); } b();");
  ExpectBody("a(); b();", {{"a(); b();", "b(); a();"}},
             "if (On(1)) { b(); a(); } else { a(); b(); }");
  ExpectBody("return {a, b};", {{"{a, b}", "{b, a}"}},
             "if (On(1)) { return {b, a}; } else { return {a, b}; }");
}

TEST(SwitchedSourceTest, LeavesOutAStatementAsAnEditorWould) {
  // If an editor leaves out only the body `a();`, the `if` takes the next statement as its body.
  // The switch must have the same effect.
  ExpectBody("if (x) a(); b(); c();", {{"if (x) a();", "if (x)"}},
             "if (On(1)) { if (x) b(); } else { if (x) a(); b(); } c();");
  ExpectBody("if (x) a(); b();", {{"if (x) a();", ""}}, "if (On(1)) { } else { if (x) a(); } b();");
  ExpectBody("if (x) { a(); } else { b(); } c();", {{"else { b(); }", ""}},
             "if (On(1)) { if (x) { a(); } } else { if (x) { a(); } else { b(); } } c();");
  ExpectBody("if (x) { a(); } b();", {{"{ a(); } b();", "{ a(); b(); }"}},
             "if (On(1)) { if (x) { a(); b(); } } else { if (x) { a(); } b(); }");
}

TEST(SwitchedSourceTest, TakesTheWholeLoopWhereItsHeadIsAnother) {
  ExpectBody("for (int i = 0; i < n; ++i) a(i); b();", {{"int i = 0; i < n", "int i = 1; i <= n"}},
             "if (On(1)) { for (int i = 1; i <= n; ++i) a(i); } else "
             "{ for (int i = 0; i < n; ++i) a(i); } b();");
}

TEST(SwitchedSourceTest, PlacesMayLieInEachOther) {
  ExpectBody("x = f(a + b) * c;", {{"a + b", "a"}, {"* c", "* d"}},
             "x = (On(2) ? (f(a + b) * d) : (f((On(1) ? (a) : (a + b))) * c));");
  ExpectBody("if (p) { a(b); }", {{"if (p) { a(b); }", ""}, {"a(b)", "a(c)"}},
             "if (On(1)) { } else { if (p) { a((On(2) ? (c) : (b))); } }");
}

TEST(SwitchedSourceTest, PlacesThatOverlapBecomeOne) {
  ExpectBody("x = a + b;", {{"a +", "c +"}, {"+ b", "+ d"}},
             "x = (On(1) ? (c + b) : On(2) ? (a + d) : (a + b));");
  ExpectBody("a(); b(); c();", {{"a(); b();", "b(); a();"}, {"b(); c();", "c(); b();"}},
             "if (On(1)) { b(); a(); c(); } else if (On(2)) { a(); c(); b(); } else "
             "{ a(); b(); c(); }");
}

TEST(SwitchedSourceTest, ANumberMayChangeSeveralPlaces) {
  const std::vector<SwitchedChange> changes = {{7, "", "~a", "a"}, {7, "", "~b", "b"}};
  const auto switched = SwitchChanges("a.cu", "int F() { return g(~a, ~b); }", changes);
  ASSERT_EQ(switched.status(), absl::OkStatus());
  EXPECT_EQ(absl::StrReplaceAll(switched->code, {{"::baton::mutations::IsOn", "On"}}),
            "int F() { return g((On(7) ? (a) : (~a)), (On(7) ? (b) : (~b))); }");
}

TEST(SwitchedSourceTest, ComparesTokensAndKeepsLines) {
  const std::string source =
      "void F() {\n"
      "  x = a +  // the first\n"
      "      b +\n"
      "      c;\n"
      "  y = d;\n"
      "}\n";
  const auto switched = Switch(source, {{"a+b +  c", "a + c"}, {"y=d", "y = e"}});
  ASSERT_EQ(switched.status(), absl::OkStatus());
  EXPECT_EQ(absl::StrReplaceAll(switched->code, {{"::baton::mutations::IsOn", "On"}}),
            "void F() {\n"
            "  x = (On(1) ? (a + c) : (a +  // the first\n"
            "      b +\n"
            "      c));\n"
            "  y = (On(2) ? (e) : (d));\n"
            "}\n");
  EXPECT_THAT(switched->lines, testing::ElementsAre(3, 5));
}

TEST(SwitchedSourceTest, ATextMustStandThereExactlyOnce) {
  const std::string source = "void F() {\n  a();\n  b();\n  a();\n}\n";
  EXPECT_EQ(
      Error(source, {{"a();", ""}, {"b();", ""}, {"c();", ""}}),
      "change 1: the text stands 2 times in a.cu (lines 2, 4); add lines around it, each with "
      "a space before it, so that it stands there exactly once\n"
      "change 3: the text stands nowhere in a.cu; it must stand there exactly once");
  ExpectBody("a(); b(); a();", {{"b(); a();", "b();"}}, "a(); b(); if (On(1)) { } else { a(); }");
  // A part of a name does not count as that name.
  EXPECT_THAT(Error("void F() { sync(); }", {{"syn", "x"}}), HasSubstr("stands nowhere"));
}

TEST(SwitchedSourceTest, RefusesWhatIsNoChangeOrNoSwitch) {
  EXPECT_EQ(Error("void F() { a(); }", {{"// a();", "b();"}}), "change 1: the text holds no code");
  EXPECT_EQ(Error("void F() { a(); }", {{"a ( );", "a();"}}),
            "change 1: the wrong text is the same as the text");
  const std::string no_switch =
      "change 1: no switch can be made of this change: it is neither within an expression nor "
      "whole statements";
  EXPECT_EQ(Error("void F() { a(); }", {{"a(); }", "a(); } void G() { b(); }"}}), no_switch);
  EXPECT_EQ(Error("using A = int;", {{"using", "typedef"}}), no_switch);
  EXPECT_EQ(Error("void F() { a(); b }", {{"b", "b; c"}}), no_switch);
  EXPECT_EQ(Error("void F() { a(); }", {{"a();", "a( ;"}}), no_switch);
  EXPECT_EQ(Error("void F() {\na();\n#if B\nb();\n#endif\nc();\n}", {{"a();", "if (x)"}}),
            no_switch);
  EXPECT_THAT(Error("void F() { a(; }", {{"a", "b"}}),
              HasSubstr("a.cu: the brackets do not match"));
}

TEST(SwitchedSourceTest, WithoutChangesTheSourceStaysAsItIs) {
  const std::string source = "#ifdef A\nvoid F() {\n#else\nvoid G() {\n#endif\n}\n";
  const auto switched = Switch(source, {});
  ASSERT_EQ(switched.status(), absl::OkStatus());
  EXPECT_EQ(switched->code, source);
}

}  // namespace
}  // namespace baton::mutations
