#include "common/tokenizer/pre_tokenizer.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxSteps = 32;

// What ByteLevel cuts by (GPT-2, encoder.py).
constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const JsonNode& node) {
  PreTokenizer result;
  if (absl::Status read = Read(node, 0, &result.steps_); !read.ok()) return read;
  if (result.steps_.empty() || !result.steps_.back().last) {
    return node.Error("does not end in a ByteLevel step; supported: byte-level tokenisers");
  }
  return result;
}

absl::Status PreTokenizer::Read(const JsonNode& node, int depth, std::vector<Step>* steps) {
  const auto type = node.Get("type");
  if (!type.ok()) return type.status();
  const auto name = type->String();
  if (!name.ok()) return name.status();
  if (*name == "Sequence") {
    if (depth > kMaxDepth) return node.Error("sequences nested too deeply");
    const auto list = node.Get("pretokenizers");
    if (!list.ok()) return list.status();
    const auto parts = list->Array();
    if (!parts.ok()) return parts.status();
    for (const JsonNode& part : *parts) {
      if (absl::Status read = Read(part, depth + 1, steps); !read.ok()) return read;
    }
    return absl::OkStatus();
  }
  if (*name != "Split" && *name != "ByteLevel") {
    return type->Unsupported("\"ByteLevel\", \"Split\", \"Sequence\"");
  }
  if (steps->size() == kMaxSteps)
    return node.Error(absl::StrCat("more than ", kMaxSteps, " steps"));
  if (!steps->empty() && steps->back().last)
    return node.Error("a step behind ByteLevel is not supported");
  auto step = *name == "Split" ? ReadSplit(node) : ReadByteLevel(node);
  if (!step.ok()) return step.status();
  steps->push_back(*std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadSplit(const JsonNode& node) {
  const auto pattern = node.Get("pattern");
  if (!pattern.ok()) return pattern.status();
  const auto regex = pattern->Find("Regex");
  if (!regex.ok()) return regex.status();
  const auto literal = pattern->Find("String");
  if (!literal.ok()) return literal.status();
  if (regex->has_value() == literal->has_value()) {
    return pattern->Error("expected an object with either \"Regex\" or \"String\"");
  }
  const JsonNode& source = *regex ? **regex : **literal;
  const auto text = source.String();
  if (!text.ok()) return text.status();

  Step step;
  auto compiled = *regex ? SplitRegex::Compile(*text) : SplitRegex::CompileLiteral(*text);
  if (!compiled.ok()) return source.Error(compiled.status().message());
  step.regex = *std::move(compiled);

  const auto invert = node.BoolOr("invert", false);
  if (!invert.ok()) return invert.status();
  const auto behavior = node.Get("behavior");
  if (!behavior.ok()) return behavior.status();
  const auto behavior_name = behavior->String();
  if (!behavior_name.ok()) return behavior_name.status();
  if (*behavior_name == "Removed") {
    (*invert ? step.drop_gaps : step.drop_matches) = true;
  } else if (*behavior_name != "Isolated") {
    return behavior->Unsupported("\"Isolated\", \"Removed\"");
  }
  return step;
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadByteLevel(const JsonNode& node) {
  Step step;
  step.last = true;
  const auto add_prefix_space = node.BoolOr("add_prefix_space", true);
  if (!add_prefix_space.ok()) return add_prefix_space.status();
  step.add_prefix_space = *add_prefix_space;
  const auto use_regex = node.BoolOr("use_regex", true);
  if (!use_regex.ok()) return use_regex.status();
  if (*use_regex) {
    auto compiled = SplitRegex::Compile(kGpt2Pattern);
    if (!compiled.ok()) return compiled.status();
    step.regex = *std::move(compiled);
  }
  return step;
}

absl::Status PreTokenizer::Split(absl::string_view text,
                                 absl::FunctionRef<void(absl::string_view)> word) const {
  return Run(0, text, word);
}

absl::Status PreTokenizer::Run(size_t index, absl::string_view text,
                               absl::FunctionRef<void(absl::string_view)> word) const {
  if (index == steps_.size()) {
    word(text);
    return absl::OkStatus();
  }
  const Step& step = steps_[index];
  std::string with_space;
  if (step.add_prefix_space && !absl::StartsWith(text, " ")) {
    with_space = absl::StrCat(" ", text);
    text = with_space;
  }
  if (!step.regex) return Run(index + 1, text, word);
  absl::Status deeper;
  const absl::Status split = step.regex->Split(text, [&](absl::string_view piece, bool matched) {
    if ((matched ? step.drop_matches : step.drop_gaps) || !deeper.ok()) return;
    deeper = Run(index + 1, piece, word);
  });
  return split.ok() ? deeper : split;
}

}  // namespace baton
