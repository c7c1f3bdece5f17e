#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/json_value.h"
#include "common/chat/chat_json.h"
#include "common/chat/chat_template.h"

namespace baton {
namespace {

void CheckRendered(const RenderedText& rendered, const RenderLimits& limits) {
  BATON_CHECK(IsUtf8(rendered.text));
  BATON_CHECK(static_cast<int64_t>(rendered.text.size()) <= limits.max_output_bytes);
  size_t end = 0;
  for (const TextRange& range : rendered.from_template) {
    BATON_CHECK(range.begin < range.end && range.end <= rendered.text.size());
    BATON_CHECK(range.begin > end || end == 0) << range.begin;
    end = range.end;
  }
}

// Checks that no letter which only people wrote passes for the template's.
void CheckOrigins(absl::string_view source, const RenderedText& rendered) {
  // Cyrillic letters of two bytes, U+0400 to U+04FF, which begin with these bytes.
  for (const char first : {'\xD0', '\xD1', '\xD2', '\xD3'}) {
    if (absl::StrContains(source, first)) return;
  }
  if (absl::StrContains(source, '\\')) return;  // An escape may stand for such a letter.
  for (const TextRange& range : rendered.from_template) {
    for (size_t i = range.begin; i < range.end; ++i) {
      const auto byte = static_cast<unsigned char>(rendered.text[i]);
      BATON_CHECK(byte < 0xD0 || byte > 0xD3) << rendered.text;
    }
  }
}

}  // namespace
}  // namespace baton

// The input is a template. After a zero byte, it may hold its variables as a JSON object.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const absl::string_view source = input.substr(0, zero);
  baton::ChatVariables variables;
  if (zero != absl::string_view::npos) {
    const auto value = baton::ParseChatJson(input.substr(zero + 1));
    if (value.ok() && value->IsDict()) {
      for (const auto& [key, item] : value->AsDict().entries()) {
        variables.emplace_back(key.AsText().Utf8(), item);
      }
    }
  }
  const auto parsed = baton::ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(parsed.status()) && !parsed.status().message().empty());
    return 0;
  }
  // Small bounds keep each input fast.
  const baton::RenderLimits limits = {.max_steps = 20'000,
                                      .max_live_bytes = 1 << 20,
                                      .max_output_bytes = 1 << 16,
                                      .max_depth = 100};
  const auto rendered = (*parsed)->Render(variables, limits, baton::TemplateClock{});
  if (rendered.ok()) {
    baton::CheckRendered(*rendered, limits);
    baton::CheckOrigins(source, *rendered);
  } else {
    BATON_CHECK(absl::IsInvalidArgument(rendered.status()) ||
                absl::IsResourceExhausted(rendered.status()) ||
                absl::IsFailedPrecondition(rendered.status()))
        << rendered.status();
  }
  return 0;
}
