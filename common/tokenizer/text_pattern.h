#pragma once

#include <string>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/split_regex.h"

namespace baton {

// What a step of a tokenizer.json looks for in the text: a regular expression, a fixed text, or any
// one character of a class. Constant once built; any thread.
class TextPattern {
 public:
  using CharClass = bool (*)(char32_t code);

  // `node` is {"Regex": PATTERN} or {"String": TEXT}.
  static absl::StatusOr<TextPattern> FromJson(const JsonNode& node);
  // `text` is not empty.
  static TextPattern OfText(std::string text) { return TextPattern(std::move(text)); }
  static TextPattern OfClass(CharClass contains) { return TextPattern(contains); }
  static TextPattern OfRegex(SplitRegex regex) { return TextPattern(std::move(regex)); }

  // Calls `piece` for each match and each stretch between matches, in order; together they are
  // `text`, which is well-formed UTF-8. Only a match may be empty. InvalidArgument where a regular
  // expression exceeds its limits (see SplitRegex); some pieces have been handed out then.
  absl::Status Find(absl::string_view text,
                    absl::FunctionRef<void(absl::string_view text, bool matched)> piece) const;

  // `text` with `with` in place of each match, into `*out`; false, and `*out` untouched, where
  // nothing matches.
  absl::StatusOr<bool> Replace(absl::string_view text, absl::string_view with,
                               std::string* out) const;

  // Whether it matches one fixed character and nothing else.
  bool matches_one_char() const;

 private:
  using What = std::variant<std::string, CharClass, SplitRegex>;
  explicit TextPattern(What what) : what_(std::move(what)) {}

  What what_;
};

}  // namespace baton
