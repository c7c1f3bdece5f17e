#include "common/tokenizer/normalizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr int kMaxNormalizerDepth = 8;
constexpr size_t kMaxNormalizerSteps = 32;
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

// Strips the text that some parts make together.
void StripEnds(bool left, bool right, std::vector<std::string>* parts) {
  for (auto part = parts->begin(); left && part != parts->end(); ++part) {
    *part = std::string(Stripped(*part, true, false));
    if (!part->empty()) break;
  }
  for (auto part = parts->rbegin(); right && part != parts->rend(); ++part) {
    *part = std::string(Stripped(*part, false, true));
    if (!part->empty()) break;
  }
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const std::optional<JsonNode>& node) {
  Normalizer normalizer;
  if (node) {
    RETURN_IF_ERROR(Read(*node, 0, &normalizer.steps_));
  }
  return normalizer;
}

absl::Status Normalizer::Read(const JsonNode& node, int depth, std::vector<Step>* steps) {
  ASSIGN_OR_RETURN(const auto type, node.Get("type"));
  ASSIGN_OR_RETURN(const auto name, type.String());
  if (name == "Sequence") {
    if (depth > kMaxNormalizerDepth) return node.Error("sequences nested too deeply");
    ASSIGN_OR_RETURN(const auto list, node.Get("normalizers"));
    ASSIGN_OR_RETURN(const auto parts, list.Array());
    for (const JsonNode& part : parts) {
      RETURN_IF_ERROR(Read(part, depth + 1, steps));
    }
    return absl::OkStatus();
  }
  if (steps->size() == kMaxNormalizerSteps)
    return node.Error(absl::StrCat("more than ", kMaxNormalizerSteps, " steps"));
  for (const auto& [known, form] : kForms) {
    if (name != known) continue;
    steps->push_back(form);
    return absl::OkStatus();
  }
  if (name == "Prepend") {
    ASSIGN_OR_RETURN(const auto prepend, node.Get("prepend"));
    ASSIGN_OR_RETURN(const auto text, prepend.String());
    steps->push_back(Prepend{std::string(text)});
    return absl::OkStatus();
  }
  if (name != "Replace" && name != "Strip") {
    return type.Unsupported(
        "\"NFC\", \"NFD\", \"NFKC\", \"NFKD\", \"Prepend\", \"Replace\", \"Strip\", \"Sequence\"");
  }
  ASSIGN_OR_RETURN(auto step, name == "Replace" ? ReadReplace(node) : ReadStrip(node));
  steps->push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<Normalizer::Step> Normalizer::ReadReplace(const JsonNode& node) {
  ASSIGN_OR_RETURN(const auto pattern_node, node.Get("pattern"));
  ASSIGN_OR_RETURN(auto pattern, TextPattern::FromJson(pattern_node));
  ASSIGN_OR_RETURN(const auto content, node.Get("content"));
  ASSIGN_OR_RETURN(const auto with, content.String());
  return Step(Replace{std::move(pattern), std::string(with)});
}

absl::StatusOr<Normalizer::Step> Normalizer::ReadStrip(const JsonNode& node) {
  ASSIGN_OR_RETURN(const auto left, node.Get("strip_left"));
  ASSIGN_OR_RETURN(const auto strip_left, left.Bool());
  ASSIGN_OR_RETURN(const auto right, node.Get("strip_right"));
  ASSIGN_OR_RETURN(const auto strip_right, right.Bool());
  return Step(Strip{strip_left, strip_right});
}

absl::StatusOr<absl::string_view> Normalizer::Apply(const Step& step, absl::string_view text,
                                                    EncodeStop* stop, std::string* buffer) {
  if (const auto* form = std::get_if<UnicodeForm>(&step)) {
    const unsigned char first = FirstByteChangedBy(*form);
    const bool changes = std::any_of(text.begin(), text.end(), [first](char c) {
      return static_cast<unsigned char>(c) >= first;
    });
    if (!changes) return text;
    ASSIGN_OR_RETURN(*buffer, NormalizeUnicode(*form, text, stop));
    return *buffer;
  }
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    if (text.empty()) return text;
    *buffer = absl::StrCat(prepend->text, text);
    return *buffer;
  }
  if (const auto* replace = std::get_if<Replace>(&step)) {
    ASSIGN_OR_RETURN(const bool replaced,
                     replace->pattern.Replace(text, replace->with, stop, buffer));
    return replaced ? absl::string_view(*buffer) : text;
  }
  const auto& strip = std::get<Strip>(step);
  return Stripped(text, strip.left, strip.right);
}

absl::StatusOr<absl::string_view> Normalizer::Normalize(absl::string_view text, EncodeStop* stop,
                                                        std::string* buffer) const {
  std::string next;
  for (const Step& step : steps_) {
    ASSIGN_OR_RETURN(text, Apply(step, text, stop, &next));
    if (text.data() != next.data()) continue;
    buffer->swap(next);
    text = *buffer;
  }
  return text;
}

absl::StatusOr<bool> Normalizer::NormalizeParts(std::vector<std::string>* parts,
                                                EncodeStop* stop) const {
  for (const Step& step : steps_) {
    std::string whole_buffer, buffer;
    const std::string before = absl::StrJoin(*parts, "");
    ASSIGN_OR_RETURN(const absl::string_view whole, Apply(step, before, stop, &whole_buffer));
    const auto* const strip = std::get_if<Strip>(&step);
    if (strip != nullptr) StripEnds(strip->left, strip->right, parts);
    for (auto part = parts->begin(); strip == nullptr && part != parts->end(); ++part) {
      ASSIGN_OR_RETURN(const absl::string_view changed, Apply(step, *part, stop, &buffer));
      *part = std::string(changed);
      // Only the beginning of the whole text gets another text before it.
      if (std::holds_alternative<Prepend>(step) && !part->empty()) break;
    }
    if (absl::StrJoin(*parts, "") != whole) return false;
  }
  return true;
}

bool Normalizer::keeps_characters_apart() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const auto* replace = std::get_if<Replace>(&step);
    return replace != nullptr && replace->pattern.matches_one_char() && !replace->with.empty() &&
           DecodeUtf8(replace->with.data()).bytes == static_cast<int>(replace->with.size());
  });
}

}  // namespace baton
