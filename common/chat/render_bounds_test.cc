#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/chat/chat_template.h"

namespace baton {
namespace {

std::string Times(int n, absl::string_view text) {
  std::string repeated;
  for (int i = 0; i < n; ++i) absl::StrAppend(&repeated, text);
  return repeated;
}

// Renders a hostile template. It must fail soon.
absl::Status HostileStatus(absl::string_view source) {
  const absl::Time begin = absl::Now();
  const auto parsed = ChatTemplate::Parse(source);
  // Tests may run slowly, under a sanitizer or beside others; these steps take 0.05 s alone.
  const RenderLimits limits = {.max_steps = 1'000'000, .max_live_bytes = 16 << 20};
  const absl::Status status =
      parsed.ok() ? (*parsed)->Render({}, limits, TemplateClock{}).status() : parsed.status();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << source.substr(0, 200);
  return status;
}

void ExpectBounded(absl::string_view source) {
  const absl::Status status = HostileStatus(source);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted)
      << source.substr(0, 200) << ": " << status;
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("line "));
}

TEST(RenderBoundsTest, TheParsersDepthIsBounded) {
  for (const absl::string_view open : {"(", "[", "{1:", "-", "not ", "a[", "f(", "1 if 1 else "}) {
    const absl::Status status = HostileStatus(absl::StrCat("{{ ", Times(10'000, open)));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << open;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("nested too deeply")) << open;
  }
  for (const absl::string_view tag : {"{% if 1 %}", "{% for x in y %}", "{% macro m() %}",
                                      "{% set x %}", "{% with %}", "{% generation %}"}) {
    const absl::Status status = HostileStatus(Times(10'000, tag));
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("nested too deeply")) << tag;
  }
  for (const absl::string_view chain : {" + 1", "|e", ".a", " or 1", " is string", "[1]", "()"}) {
    const absl::Status status = HostileStatus(absl::StrCat("{{ 1", Times(10'000, chain), " }}"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << chain;
  }
}

TEST(RenderBoundsTest, StepsAreBounded) {
  ExpectBounded("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}");
  ExpectBounded(
      "{% macro m(n) %}{% for i in range(9) %}{{ m(n - 1) if n }}{% endfor %}{% endmacro %}{{ "
      "m(20) }}");
  ExpectBounded("{% set x = range(99999)|list %}{% for i in x %}{{ x == x|list }}{% endfor %}");
  ExpectBounded("{% set x = 'a' * 99999 %}{% for i in range(99999) %}{{ 'b' in x }}{% endfor %}");
  ExpectBounded("{% for i in range(999) %}{{ range(99999)|sort|length }}{% endfor %}");
}

TEST(RenderBoundsTest, DepthIsBounded) {
  ExpectBounded("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  ExpectBounded("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  ExpectBounded("{% macro m() %}{{ caller }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}");
}

TEST(RenderBoundsTest, MemoryIsBounded) {
  ExpectBounded("{{ 'a' * 10**9 }}");
  ExpectBounded("{{ [1] * 10**12 }}");
  ExpectBounded("{{ ('a' * 1000) * 10**17 }}");
  ExpectBounded(
      "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% "
      "endfor %}");
  ExpectBounded(
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}");
  ExpectBounded("{{ '%999999999d' % 1 }}");
  ExpectBounded("{{ '{:>999999999}'.format(1) }}");
  ExpectBounded("{{ 'a'.ljust(10**9) }}{{ 'a'.center(10**18) }}");
  ExpectBounded("{{ 'a'|indent(10**9, true) }}");
  ExpectBounded("{{ '\t'.expandtabs(10**9) }}");
  ExpectBounded("{{ ('a' * 9999).replace('', 'b' * 9999) }}");
  ExpectBounded("{{ ('b' * 9999).join(range(9999)|map('string')) }}");
  ExpectBounded("{{ [1]|tojson(indent=10**9) }}");
  ExpectBounded(
      "{% set ns = namespace() %}{% for i in range(99999) %}{% set ns.x = namespace(x=ns.x, y='a' "
      "* 999) %}{% endfor %}");
}

TEST(RenderBoundsTest, NestedValuesAreBounded) {
  ExpectBounded(
      "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}");
  ExpectBounded(
      "{% set ns = namespace(x={}) %}{% for i in range(999) %}{% set ns.x = {1: ns.x} %}{% endfor "
      "%}");
  // 2^100 lists that share their parts.
  const std::string doubled =
      "{% set ns = namespace(x=[], y=[]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  ExpectBounded(absl::StrCat(doubled, "{{ ns.x }}"));
  ExpectBounded(absl::StrCat(doubled, "{{ ns.x|tojson }}"));
  ExpectBounded(absl::StrCat(doubled, "{{ ns.x == ns.y }}"));
}

TEST(RenderBoundsTest, LargeNumbersAreErrors) {
  for (const absl::string_view source :
       {"{{ 9 ** 9 ** 9 }}", "{{ range(10 ** 9) }}", "{{ 9.9 ** 999 }}", "{{ '%.999999f' % 1 }}",
        "{{ '{:.999999f}'.format(1) }}", "{{ [1]|batch(10**12, 0)|list }}",
        "{{ [1]|slice(10**12)|list }}", "{{ '%*d' % (10**12, 'x') }}"}) {
    EXPECT_EQ(HostileStatus(source).code(), absl::StatusCode::kFailedPrecondition) << source;
  }
}

TEST(RenderBoundsTest, OutputIsBounded) {
  const auto parsed = ChatTemplate::Parse("{% for i in range(100) %}0123456789{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  const auto rendered = (*parsed)->Render({}, {.max_output_bytes = 999}, {});
  EXPECT_EQ(rendered.status(),
            absl::ResourceExhaustedError("line 1: the template writes more than 999 bytes"));
  EXPECT_TRUE((*parsed)->Render({}, {.max_output_bytes = 1000}, {}).ok());
}

TEST(RenderBoundsTest, ValuesThatHoldEachOtherAreFreed) {
  // The address sanitizer would report them.
  const auto parsed = ChatTemplate::Parse(
      "{% set ns = namespace() %}{% set ns.me = ns %}{% for i in range(2) %}{% set ns.l = loop %}"
      "{{ loop.changed(loop, ns) }}{% endfor %}{% macro m() %}{% endmacro %}{% set ns.m = m %}"
      "{% set c = cycler(ns) %}{% set ns.c = c %}{% set ns.f = c.next %}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE((*parsed)->Render({}, {}, {}).ok());
  // A long chain of namespaces is not freed by recursion.
  const auto chain = ChatTemplate::Parse(
      "{% set ns = namespace() %}{% for i in range(99999) %}{% set ns.x = namespace(x=ns.x) %}"
      "{% endfor %}{% set ns.x = 1 %}");
  ASSERT_TRUE(chain.ok());
  EXPECT_TRUE((*chain)->Render({}, {}, {}).ok());
}

}  // namespace
}  // namespace baton
