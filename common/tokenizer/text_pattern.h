#pragma once

#include <string>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/encode_stop.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/split_regex.h"

namespace baton {

// A pattern that a step of a tokenizer.json searches for: a regular expression, a fixed text, or
// any character of a class. Constant once built; any thread.
class TextPattern {
 public:
  using CharClass = bool (*)(char32_t code);

  // Reads a pattern. `node` is {"Regex": PATTERN} or {"String": TEXT}.
  static absl::StatusOr<TextPattern> FromJson(const JsonNode& node);
  // Returns a pattern for a fixed text, which must not be empty.
  static TextPattern OfText(std::string text) { return TextPattern(std::move(text)); }
  static TextPattern OfClass(CharClass contains) { return TextPattern(contains); }
  static TextPattern OfRegex(SplitRegex regex) { return TextPattern(std::move(regex)); }

  // Calls `piece` for each match and for each part between matches, in order. All these parts
  // together are `text`, which must be well-formed UTF-8. Only a match may be empty. Stops at the
  // first status of `piece` that is not OK, and returns it. Returns InvalidArgument, possibly after
  // some calls of `piece`, if a regular expression exceeds its limits (see SplitRegex).
  absl::Status Find(
      absl::string_view text,
      absl::FunctionRef<absl::Status(absl::string_view text, bool matched)> piece) const;

  // Copies `text` into `*out` with each match replaced by `with`. Returns false, and leaves `*out`
  // unchanged, if nothing matches. Returns the status of `stop` if it is not OK.
  absl::StatusOr<bool> Replace(absl::string_view text, absl::string_view with, EncodeStop* stop,
                               std::string* out) const;

  // Returns true if the pattern matches one fixed character and nothing else.
  bool matches_one_char() const;

 private:
  using What = std::variant<std::string, CharClass, SplitRegex>;
  explicit TextPattern(What what) : what_(std::move(what)) {}

  What what_;
};

}  // namespace baton
