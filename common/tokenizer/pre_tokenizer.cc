#include "common/tokenizer/pre_tokenizer.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/character_class.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr int kMaxPreTokenizerDepth = 8;
constexpr size_t kMaxPreTokenizerSteps = 32;

// The pattern by which the step ByteLevel cuts text (from GPT-2's encoder.py).
constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const std::optional<JsonNode>& node) {
  PreTokenizer result;
  if (node) {
    RETURN_IF_ERROR(Read(*node, 0, &result.steps_));
  }
  return result;
}

absl::Status PreTokenizer::Read(const JsonNode& node, int depth, std::vector<Step>* steps) {
  ASSIGN_OR_RETURN(const auto type, node.Get("type"));
  ASSIGN_OR_RETURN(const auto name, type.String());
  if (name == "Sequence") {
    if (depth > kMaxPreTokenizerDepth) return node.Error("sequences nested too deeply");
    ASSIGN_OR_RETURN(const auto list, node.Get("pretokenizers"));
    ASSIGN_OR_RETURN(const auto parts, list.Array());
    for (const JsonNode& part : parts) {
      RETURN_IF_ERROR(Read(part, depth + 1, steps));
    }
    return absl::OkStatus();
  }
  if (steps->size() == kMaxPreTokenizerSteps)
    return node.Error(absl::StrCat("more than ", kMaxPreTokenizerSteps, " steps"));
  ASSIGN_OR_RETURN(auto step, ReadStep(node));
  bool bytes_before = false, text_changed_before = false;
  for (const Step& before : *steps) {
    bytes_before |= std::holds_alternative<ByteLevel>(before);
    text_changed_before |= !std::holds_alternative<Cut>(before);
  }
  if (bytes_before && !std::holds_alternative<Cut>(step)) {
    return type.Unsupported("after ByteLevel, only steps that cut and change nothing");
  }
  if (const auto* metaspace = std::get_if<Metaspace>(&step);
      metaspace != nullptr && metaspace->prepend == Metaspace::Prepend::kFirst &&
      text_changed_before) {
    return node.Error(
        "prepend_scheme \"first\" after another step that changes the text is not supported");
  }
  steps->push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadStep(const JsonNode& node) {
  ASSIGN_OR_RETURN(const auto type, node.Get("type"));
  const absl::string_view name = type.String().value();
  if (name == "Split") return ReadSplit(node);
  if (name == "ByteLevel") return ReadByteLevel(node);
  if (name == "Metaspace") return ReadMetaspace(node);
  if (name == "Digits") {
    ASSIGN_OR_RETURN(const auto individual, node.BoolOr("individual_digits", false));
    return Cut{TextPattern::OfClass(IsNumeric),
               individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous};
  }
  if (name == "Punctuation") {
    ASSIGN_OR_RETURN(const auto behavior, ReadSplitBehavior(node, SplitBehavior::kIsolated));
    return Cut{TextPattern::OfClass(IsPunctuation), behavior};
  }
  if (name == "WhitespaceSplit") {
    return Cut{TextPattern::OfClass(IsWhiteSpace), SplitBehavior::kRemoved};
  }
  return type.Unsupported(
      "\"Split\", \"Digits\", \"Punctuation\", \"WhitespaceSplit\", \"Metaspace\", "
      "\"ByteLevel\", \"Sequence\"");
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadSplit(const JsonNode& node) {
  ASSIGN_OR_RETURN(const auto pattern_node, node.Get("pattern"));
  ASSIGN_OR_RETURN(auto pattern, TextPattern::FromJson(pattern_node));
  ASSIGN_OR_RETURN(const auto invert, node.BoolOr("invert", false));
  ASSIGN_OR_RETURN(const auto behavior, ReadSplitBehavior(node, std::nullopt));
  return Cut{std::move(pattern), behavior, invert};
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadByteLevel(const JsonNode& node) {
  ByteLevel step;
  ASSIGN_OR_RETURN(const auto add_prefix_space, node.BoolOr("add_prefix_space", true));
  step.add_prefix_space = add_prefix_space;
  ASSIGN_OR_RETURN(const auto use_regex, node.BoolOr("use_regex", true));
  if (use_regex) {
    ASSIGN_OR_RETURN(auto compiled, SplitRegex::Compile(kGpt2Pattern));
    step.pattern = TextPattern::OfRegex(std::move(compiled));
  }
  return step;
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadMetaspace(const JsonNode& node) {
  ASSIGN_OR_RETURN(const auto replacement, node.Get("replacement"));
  ASSIGN_OR_RETURN(const auto mark, replacement.Char());
  ASSIGN_OR_RETURN(const auto split, node.BoolOr("split", true));
  Metaspace step{std::string(mark), TextPattern::OfText(std::string(mark)),
                 Metaspace::Prepend::kAlways, split};

  ASSIGN_OR_RETURN(const auto scheme_node, node.Find("prepend_scheme"));
  if (scheme_node) {
    ASSIGN_OR_RETURN(const auto scheme, scheme_node->String());
    if (scheme == "first") {
      step.prepend = Metaspace::Prepend::kFirst;
    } else if (scheme == "never") {
      step.prepend = Metaspace::Prepend::kNever;
    } else if (scheme != "always") {
      return scheme_node->Unsupported("\"always\", \"first\", \"never\"");
    }
  }
  // Older tokenizer.json files have add_prefix_space instead of prepend_scheme.
  ASSIGN_OR_RETURN(const auto add_prefix_space, node.BoolOr("add_prefix_space", true));
  if (!add_prefix_space) {
    if (scheme_node && step.prepend != Metaspace::Prepend::kNever) {
      return node.Error("add_prefix_space is false, but prepend_scheme is not \"never\"");
    }
    step.prepend = Metaspace::Prepend::kNever;
  }
  return step;
}

absl::Status PreTokenizer::Split(absl::string_view text, bool at_start, Word word) const {
  if (text.empty()) return absl::OkStatus();
  return Run(0, text, at_start, word);
}

WordSpelling PreTokenizer::spelling() const {
  for (const Step& step : steps_) {
    if (!std::holds_alternative<ByteLevel>(step)) continue;
    return &step == &steps_.back() ? WordSpelling::kBytes : WordSpelling::kByteAlphabet;
  }
  return WordSpelling::kText;
}

bool PreTokenizer::asks_for_start() const {
  for (const Step& step : steps_) {
    const auto* metaspace = std::get_if<Metaspace>(&step);
    if (metaspace != nullptr && metaspace->prepend == Metaspace::Prepend::kFirst) return true;
  }
  return false;
}

absl::Status PreTokenizer::Run(size_t index, absl::string_view text, bool at_start,
                               Word word) const {
  if (index == steps_.size()) return word(text);
  if (const auto* cut = std::get_if<Cut>(&steps_[index])) {
    return RunPieces(index + 1, cut->pattern, cut->invert, cut->behavior, text, at_start, word);
  }
  if (std::holds_alternative<ByteLevel>(steps_[index])) return RunByteLevel(index, text, word);
  return RunMetaspace(index, text, at_start, word);
}

// Cuts `text` into pieces and runs step number `next` on each piece.
absl::Status PreTokenizer::RunPieces(size_t next, const TextPattern& pattern, bool invert,
                                     SplitBehavior behavior, absl::string_view text, bool at_start,
                                     Word word) const {
  return SplitText(pattern, invert, behavior, text, [&](absl::string_view piece) {
    return Run(next, piece, at_start && piece.data() == text.data(), word);
  });
}

absl::Status PreTokenizer::RunByteLevel(size_t index, absl::string_view text, Word word) const {
  const auto& step = std::get<ByteLevel>(steps_[index]);
  std::string with_space;
  if (step.add_prefix_space && !absl::StartsWith(text, " ")) {
    with_space = absl::StrCat(" ", text);
    text = with_space;
  }
  const bool last = index + 1 == steps_.size();
  const auto spell = [&](absl::string_view piece) {
    return last ? word(piece) : Run(index + 1, TextOfBytes(piece), /*at_start=*/false, word);
  };
  if (!step.pattern) return spell(text);
  return SplitText(*step.pattern, /*invert=*/false, SplitBehavior::kIsolated, text, spell);
}

absl::Status PreTokenizer::RunMetaspace(size_t index, absl::string_view text, bool at_start,
                                        Word word) const {
  const auto& step = std::get<Metaspace>(steps_[index]);
  std::string marked = absl::StrReplaceAll(text, {{" ", step.mark}});
  const bool wants_mark = step.prepend == Metaspace::Prepend::kAlways ||
                          (step.prepend == Metaspace::Prepend::kFirst && at_start);
  if (wants_mark && !absl::StartsWith(marked, step.mark)) marked.insert(0, step.mark);
  if (!step.split) return Run(index + 1, marked, at_start, word);
  return RunPieces(index + 1, step.pattern, /*invert=*/false, SplitBehavior::kMergedWithNext,
                   marked, at_start, word);
}

}  // namespace baton
