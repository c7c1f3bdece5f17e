#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/text_pattern.h"
#include "common/tokenizer/unicode_form.h"

namespace baton {

// "normalizer" of a tokenizer.json: nothing, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, or a
// Sequence of those. Constant once built; any thread.
class Normalizer {
 public:
  // `node` is nothing where the file has none.
  static absl::StatusOr<Normalizer> FromJson(const std::optional<JsonNode>& node);

  // The view is of `text` itself or of `*buffer`. InvalidArgument where the pattern of a Replace
  // exceeds its limits; see SplitRegex.
  absl::StatusOr<absl::string_view> Normalize(absl::string_view text, std::string* buffer) const;

  // Whether the n-th character of any text is what the n-th character was before.
  bool keeps_characters_apart() const;

 private:
  struct Prepend {
    std::string text;  // to put before what is not empty
  };
  struct Replace {
    TextPattern pattern;
    std::string with;
  };
  struct Strip {  // white space
    bool left, right;
  };
  using Step = std::variant<UnicodeForm, Prepend, Replace, Strip>;

  static absl::Status Read(const JsonNode& node, int depth, std::vector<Step>* steps);
  static absl::StatusOr<Step> ReadReplace(const JsonNode& node);
  static absl::StatusOr<Step> ReadStrip(const JsonNode& node);

  std::vector<Step> steps_;
};

}  // namespace baton
