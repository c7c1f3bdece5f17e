#include "common/tokenizer/text_pattern.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr size_t kMaxReplacedBytes = size_t{1} << 30;

using Piece = absl::FunctionRef<absl::Status(absl::string_view, bool)>;

absl::Status FindText(absl::string_view wanted, absl::string_view text, Piece piece) {
  size_t handed = 0;
  for (size_t at; (at = text.find(wanted, handed)) != absl::string_view::npos;) {
    if (at > handed) {
      RETURN_IF_ERROR(piece(text.substr(handed, at - handed), false));
    }
    RETURN_IF_ERROR(piece(text.substr(at, wanted.size()), true));
    handed = at + wanted.size();
  }
  return handed < text.size() ? piece(text.substr(handed), false) : absl::OkStatus();
}

absl::Status FindClass(TextPattern::CharClass contains, absl::string_view text, Piece piece) {
  size_t handed = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.data() + at);
    const size_t end = at + c.bytes;
    if (contains(c.code)) {
      if (at > handed) {
        RETURN_IF_ERROR(piece(text.substr(handed, at - handed), false));
      }
      RETURN_IF_ERROR(piece(text.substr(at, c.bytes), true));
      handed = end;
    }
    at = end;
  }
  return handed < text.size() ? piece(text.substr(handed), false) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<TextPattern> TextPattern::FromJson(const JsonNode& node) {
  ASSIGN_OR_RETURN(const auto regex, node.Find("Regex"));
  ASSIGN_OR_RETURN(const auto literal, node.Find("String"));
  if (regex.has_value() == literal.has_value()) {
    return node.Error("expected an object with either \"Regex\" or \"String\"");
  }
  const JsonNode& source = regex ? *regex : *literal;
  ASSIGN_OR_RETURN(const auto text, source.String());
  if (literal && !text.empty()) return OfText(std::string(text));
  auto compiled = regex ? SplitRegex::Compile(text) : SplitRegex::CompileLiteral(text);
  if (!compiled.ok()) return source.Error(compiled.status().message());
  return OfRegex(*std::move(compiled));
}

absl::Status TextPattern::Find(absl::string_view text, Piece piece) const {
  if (const auto* wanted = std::get_if<std::string>(&what_)) {
    return FindText(*wanted, text, piece);
  }
  if (const auto* contains = std::get_if<CharClass>(&what_)) {
    return FindClass(*contains, text, piece);
  }
  return std::get<SplitRegex>(what_).Split(text, piece);
}

absl::StatusOr<bool> TextPattern::Replace(absl::string_view text, absl::string_view with,
                                          EncodeStop* stop, std::string* out) const {
  std::string replaced;
  bool any = false;
  size_t copied = 0;
  RETURN_IF_ERROR(Find(text, [&](absl::string_view piece, bool matched) -> absl::Status {
    RETURN_IF_ERROR(stop->Worked(piece.size()));
    if (!matched) return absl::OkStatus();
    any = true;
    const size_t begin = piece.data() - text.data();
    replaced.append(text.data() + copied, begin - copied);
    replaced.append(with.data(), with.size());
    copied = begin + piece.size();
    if (replaced.size() <= kMaxReplacedBytes) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("replacing in a text of ", text.size(),
                                                   " bytes gives more than ", kMaxReplacedBytes,
                                                   " bytes"));
  }));
  if (!any) return false;
  replaced.append(text.data() + copied, text.size() - copied);
  *out = std::move(replaced);
  return true;
}

bool TextPattern::matches_one_char() const {
  const auto* wanted = std::get_if<std::string>(&what_);
  return wanted != nullptr && DecodeUtf8(wanted->data()).bytes == static_cast<int>(wanted->size());
}

}  // namespace baton
