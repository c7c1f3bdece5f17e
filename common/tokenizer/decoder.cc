#include "common/tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr int kMaxDecoderDepth = 8;
constexpr size_t kMaxDecoderSteps = 32;
// Max bytes that Replace may put in place of a match.
constexpr size_t kMaxReplacementBytes = 512;
// Max factor by which all Replace steps together may lengthen a text. Each step alone is limited by
// kMaxReplacementBytes, but the factors of several steps multiply.
constexpr double kMaxGrowth = 512;

}  // namespace

absl::StatusOr<Decoder> Decoder::FromJson(const JsonNode& node) {
  Decoder decoder;
  RETURN_IF_ERROR(decoder.Read(node, 0));
  return decoder;
}

absl::Status Decoder::Read(const JsonNode& node, int depth) {
  ASSIGN_OR_RETURN(const auto type, node.Get("type"));
  ASSIGN_OR_RETURN(const auto name, type.String());
  if (name == "Sequence") {
    if (depth > kMaxDecoderDepth) return node.Error("sequences nested too deeply");
    ASSIGN_OR_RETURN(const auto list, node.Get("decoders"));
    ASSIGN_OR_RETURN(const auto parts, list.Array());
    for (const JsonNode& part : parts) {
      RETURN_IF_ERROR(Read(part, depth + 1));
    }
    return absl::OkStatus();
  }
  if (name == "Fuse") {
    joined_ = true;
    return absl::OkStatus();
  }
  if (name == "Replace") return Add(node, ReadReplace(node));
  if (name == "Strip") return Add(node, ReadStrip(node));
  if (name == "Metaspace") return Add(node, ReadMetaspace(node));
  if (name != "ByteLevel" && name != "ByteFallback") {
    return type.Unsupported(
        "\"ByteLevel\", \"Replace\", \"ByteFallback\", \"Fuse\", \"Strip\", \"Metaspace\", "
        "\"Sequence\"");
  }
  if (joined_ || (byte_fallback_ && name == "ByteFallback")) {
    return type.Unsupported(
        "after ByteLevel or Fuse only \"Strip\" and \"Metaspace\", and one \"ByteFallback\"");
  }
  if (name == "ByteLevel") {
    joined_ = true;
    byte_level_ = true;
  } else {
    byte_fallback_ = true;
  }
  return absl::OkStatus();
}

absl::Status Decoder::Add(const JsonNode& node, absl::StatusOr<Step> step) {
  RETURN_IF_ERROR(step.status());
  std::vector<Step>& part = joined_ ? whole_ : byte_fallback_ ? each_behind_ : each_;
  if (part.size() == kMaxDecoderSteps)
    return node.Error(absl::StrCat("more than ", kMaxDecoderSteps, " steps"));
  if (joined_ && step->kind == Step::Kind::kReplace) {
    return node.Get("type")->Unsupported(
        "after ByteLevel or Fuse only \"Strip\" and \"Metaspace\"");
  }
  if (step->kind == Step::Kind::kReplace && step->with.size() > step->from.size()) {
    growth_ *= static_cast<double>(step->with.size()) / static_cast<double>(step->from.size());
    if (growth_ > kMaxGrowth) {
      return node.Error(absl::StrCat("the steps up to here make a text up to ", growth_,
                                     " times as long; supported: at most ", kMaxGrowth, " times"));
    }
  }
  part.push_back(*std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<Decoder::Step> Decoder::ReadReplace(const JsonNode& node) {
  ASSIGN_OR_RETURN(const auto pattern, node.Get("pattern"));
  ASSIGN_OR_RETURN(const auto regex, pattern.Find("Regex"));
  if (regex) return pattern.Error("a Replace decoder with a Regex; supported: a String");
  ASSIGN_OR_RETURN(const auto from_node, pattern.Get("String"));
  ASSIGN_OR_RETURN(const auto from, from_node.String());
  if (from.empty()) return from_node.Error("is empty; supported: a text to replace");
  ASSIGN_OR_RETURN(const auto with_node, node.Get("content"));
  ASSIGN_OR_RETURN(const auto with, with_node.String());
  if (with.size() > kMaxReplacementBytes) {
    return with_node.Error(
        absl::StrCat("has ", with.size(), " bytes; supported: at most ", kMaxReplacementBytes));
  }
  Step step{Step::Kind::kReplace, std::string(from), std::string(with)};
  return step;
}

absl::StatusOr<Decoder::Step> Decoder::ReadStrip(const JsonNode& node) {
  ASSIGN_OR_RETURN(const auto content, node.Get("content"));
  ASSIGN_OR_RETURN(const auto mark, content.Char());
  Step step{Step::Kind::kStrip, std::string(mark)};
  for (const auto& [key, value] :
       {std::pair("start", &step.start), std::pair("stop", &step.stop)}) {
    ASSIGN_OR_RETURN(const auto count_node, node.Get(key));
    ASSIGN_OR_RETURN(const auto count, count_node.Int(0, 1 << 20));
    *value = static_cast<size_t>(count);
  }
  return step;
}

absl::StatusOr<Decoder::Step> Decoder::ReadMetaspace(const JsonNode& node) {
  ASSIGN_OR_RETURN(const auto replacement, node.Get("replacement"));
  ASSIGN_OR_RETURN(const auto mark, replacement.Char());
  ASSIGN_OR_RETURN(const auto scheme, node.StringOr("prepend_scheme", "always"));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return node.Get("prepend_scheme")->Unsupported("\"always\", \"first\", \"never\"");
  }
  ASSIGN_OR_RETURN(const auto add_prefix_space, node.BoolOr("add_prefix_space", true));
  Step step{Step::Kind::kMetaspace, std::string(mark), " "};
  step.drops_in_first = scheme != "never" && add_prefix_space;
  return step;
}

std::string Decoder::BeforeFallback(absl::string_view token, bool first) const {
  return Apply(each_, token, first);
}
std::string Decoder::BehindFallback(absl::string_view token, bool first) const {
  return Apply(each_behind_, token, first);
}

std::string Decoder::BytesOf(std::string token) const {
  if (!byte_level_) return token;
  // A token with a character outside of the byte alphabet keeps its text. Hugging Face tokenizers
  // also treats added tokens in this way.
  std::optional<std::string> bytes = BytesOfText(token);
  return bytes ? *std::move(bytes) : token;
}

std::string Decoder::Apply(const std::vector<Step>& steps, absl::string_view token, bool first) {
  std::string text(token);
  for (const Step& step : steps) {
    switch (step.kind) {
      case Step::Kind::kReplace:
        text = absl::StrReplaceAll(text, {{step.from, step.with}});
        break;
      case Step::Kind::kMetaspace:
        text = absl::StrReplaceAll(text, {{step.from, first && step.drops_in_first ? "" : " "}});
        break;
      case Step::Kind::kStrip:
        text =
            std::string(StripStop(StripStart(text, step.from, step.start), step.from, step.stop));
        break;
    }
  }
  return text;
}

bool Decoder::FirstDiffers(const std::vector<Step>& steps) {
  return std::any_of(steps.begin(), steps.end(),
                     [](const Step& step) { return step.drops_in_first; });
}

bool Decoder::behind_by_character() const {
  return std::all_of(each_behind_.begin(), each_behind_.end(), [](const Step& step) {
    return step.kind != Step::Kind::kStrip && !step.drops_in_first &&
           static_cast<size_t>(DecodeUtf8(step.from.data()).bytes) == step.from.size();
  });
}

std::optional<unsigned char> Decoder::ByteOf(absl::string_view token) {
  if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token[5] != '>') return std::nullopt;
  // Accepts a + in place of the first digit, as in <0x+5>, because Hugging Face tokenizers does.
  const auto digit = [](char c) {
    return absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10;
  };
  if ((token[3] != '+' && !absl::ascii_isxdigit(token[3])) || !absl::ascii_isxdigit(token[4]))
    return std::nullopt;
  return (token[3] == '+' ? 0 : digit(token[3]) << 4) | digit(token[4]);
}

absl::string_view Decoder::StripStart(absl::string_view text, absl::string_view mark, size_t max) {
  for (; max > 0 && absl::StartsWith(text, mark); --max) text.remove_prefix(mark.size());
  return text;
}
absl::string_view Decoder::StripStop(absl::string_view text, absl::string_view mark, size_t max) {
  for (; max > 0 && absl::EndsWith(text, mark); --max) text.remove_suffix(mark.size());
  return text;
}

}  // namespace baton
