#include "common/tokenizer/normalizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxSteps = 32;
constexpr std::pair<absl::string_view, UnicodeForm> kForms[] = {{"NFC", UnicodeForm::kNfc},
                                                                {"NFD", UnicodeForm::kNfd},
                                                                {"NFKC", UnicodeForm::kNfkc},
                                                                {"NFKD", UnicodeForm::kNfkd}};

absl::string_view Stripped(absl::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const Utf8Char c = DecodeUtf8(text.data());
    if (!IsWhiteSpace(c.code)) break;
    text.remove_prefix(c.bytes);
  }
  while (right && !text.empty()) {
    const Utf8Char c = DecodeLastUtf8(text);
    if (!IsWhiteSpace(c.code)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const std::optional<JsonNode>& node) {
  Normalizer normalizer;
  if (node) {
    if (absl::Status read = Read(*node, 0, &normalizer.steps_); !read.ok()) return read;
  }
  return normalizer;
}

absl::Status Normalizer::Read(const JsonNode& node, int depth, std::vector<Step>* steps) {
  const auto type = node.Get("type");
  if (!type.ok()) return type.status();
  const auto name = type->String();
  if (!name.ok()) return name.status();
  if (*name == "Sequence") {
    if (depth > kMaxDepth) return node.Error("sequences nested too deeply");
    const auto list = node.Get("normalizers");
    if (!list.ok()) return list.status();
    const auto parts = list->Array();
    if (!parts.ok()) return parts.status();
    for (const JsonNode& part : *parts) {
      if (absl::Status read = Read(part, depth + 1, steps); !read.ok()) return read;
    }
    return absl::OkStatus();
  }
  if (steps->size() == kMaxSteps)
    return node.Error(absl::StrCat("more than ", kMaxSteps, " steps"));
  for (const auto& [known, form] : kForms) {
    if (*name != known) continue;
    steps->push_back(form);
    return absl::OkStatus();
  }
  if (*name == "Prepend") {
    const auto prepend = node.Get("prepend");
    if (!prepend.ok()) return prepend.status();
    const auto text = prepend->String();
    if (!text.ok()) return text.status();
    steps->push_back(Prepend{std::string(*text)});
    return absl::OkStatus();
  }
  if (*name != "Replace" && *name != "Strip") {
    return type->Unsupported(
        "\"NFC\", \"NFD\", \"NFKC\", \"NFKD\", \"Prepend\", \"Replace\", \"Strip\", \"Sequence\"");
  }
  auto step = *name == "Replace" ? ReadReplace(node) : ReadStrip(node);
  if (!step.ok()) return step.status();
  steps->push_back(*std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<Normalizer::Step> Normalizer::ReadReplace(const JsonNode& node) {
  const auto pattern_node = node.Get("pattern");
  if (!pattern_node.ok()) return pattern_node.status();
  auto pattern = TextPattern::FromJson(*pattern_node);
  if (!pattern.ok()) return pattern.status();
  const auto content = node.Get("content");
  if (!content.ok()) return content.status();
  const auto with = content->String();
  if (!with.ok()) return with.status();
  return Step(Replace{*std::move(pattern), std::string(*with)});
}

absl::StatusOr<Normalizer::Step> Normalizer::ReadStrip(const JsonNode& node) {
  const auto left = node.Get("strip_left");
  if (!left.ok()) return left.status();
  const auto strip_left = left->Bool();
  if (!strip_left.ok()) return strip_left.status();
  const auto right = node.Get("strip_right");
  if (!right.ok()) return right.status();
  const auto strip_right = right->Bool();
  if (!strip_right.ok()) return strip_right.status();
  return Step(Strip{*strip_left, *strip_right});
}

absl::StatusOr<absl::string_view> Normalizer::Normalize(absl::string_view text,
                                                        std::string* buffer) const {
  std::string next;
  for (const Step& step : steps_) {
    bool changed = false;
    if (const auto* form = std::get_if<UnicodeForm>(&step)) {
      const unsigned char first = FirstByteChangedBy(*form);
      changed = std::any_of(text.begin(), text.end(),
                            [first](char c) { return static_cast<unsigned char>(c) >= first; });
      if (changed) next = NormalizeUnicode(*form, text);
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      changed = !text.empty();
      if (changed) next = absl::StrCat(prepend->text, text);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      const auto replaced = replace->pattern.Replace(text, replace->with, &next);
      if (!replaced.ok()) return replaced.status();
      changed = *replaced;
    } else {
      const auto& strip = std::get<Strip>(step);
      text = Stripped(text, strip.left, strip.right);
    }
    if (!changed) continue;
    buffer->swap(next);
    text = *buffer;
  }
  return text;
}

bool Normalizer::keeps_characters_apart() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const auto* replace = std::get_if<Replace>(&step);
    return replace != nullptr && replace->pattern.matches_one_char() && !replace->with.empty() &&
           DecodeUtf8(replace->with.data()).bytes == static_cast<int>(replace->with.size());
  });
}

}  // namespace baton
