#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/encode_stop.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/text_pattern.h"
#include "common/tokenizer/unicode_form.h"

namespace baton {

// The "normalizer" of a tokenizer.json: none, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, or a
// Sequence of these. Constant once built; any thread.
class Normalizer {
 public:
  // Reads the normalizer. `node` must be nullopt if tokenizer.json has none.
  static absl::StatusOr<Normalizer> FromJson(const std::optional<JsonNode>& node);

  // Returns a view of `text` itself or of `*buffer`. Returns InvalidArgument if the pattern of a
  // Replace exceeds its limits (see SplitRegex). Returns the status of `stop` if it is not OK.
  absl::StatusOr<absl::string_view> Normalize(absl::string_view text, EncodeStop* stop,
                                              std::string* buffer) const;

  // Normalises the text that some parts make together. Turns each part into what comes of it, and
  // returns true; or returns false if what comes of one part depends on another one. Returns the
  // errors of Normalize().
  absl::StatusOr<bool> NormalizeParts(std::vector<std::string>* parts, EncodeStop* stop) const;

  // Returns true if normalising maps the n-th character of any text to the n-th character of the
  // result.
  bool keeps_characters_apart() const;

 private:
  struct Prepend {
    std::string text;  // put before any text that is not empty
  };
  struct Replace {
    TextPattern pattern;
    std::string with;
  };
  struct Strip {  // strips white space
    bool left, right;
  };
  using Step = std::variant<UnicodeForm, Prepend, Replace, Strip>;

  // Returns the text after one step: a view of `text` itself or of `*buffer`.
  static absl::StatusOr<absl::string_view> Apply(const Step& step, absl::string_view text,
                                                 EncodeStop* stop, std::string* buffer);
  static absl::Status Read(const JsonNode& node, int depth, std::vector<Step>* steps);
  static absl::StatusOr<Step> ReadReplace(const JsonNode& node);
  static absl::StatusOr<Step> ReadStrip(const JsonNode& node);

  std::vector<Step> steps_;
};

}  // namespace baton
