#pragma once

#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/split_regex.h"

namespace baton {

// "pre_tokenizer" of a tokenizer.json: cuts text into the words that BPE works on. Steps run one
// after the other, each on the pieces of the one before. Supported: `Split` (pattern Regex or
// String, behaviours Isolated and Removed, either inverted), `ByteLevel` as the last step,
// `Sequence` of those. Constant once built; any thread.
class PreTokenizer {
 public:
  static absl::StatusOr<PreTokenizer> FromJson(const JsonNode& node);

  // Calls `word` for each word of `text` (well-formed UTF-8), in order. A view lives during its
  // call only. InvalidArgument where a pattern exceeds its limits; see SplitRegex.
  absl::Status Split(absl::string_view text,
                     absl::FunctionRef<void(absl::string_view word)> word) const;

 private:
  struct Step {
    std::optional<SplitRegex> regex;  // none: the piece stays whole
    bool drop_matches = false;
    bool drop_gaps = false;         // what lies between matches
    bool add_prefix_space = false;  // before the regex, where the piece does not begin with one
    bool last = false;              // ByteLevel: nothing may follow
  };

  static absl::Status Read(const JsonNode& node, int depth, std::vector<Step>* steps);
  static absl::StatusOr<Step> ReadSplit(const JsonNode& node);
  static absl::StatusOr<Step> ReadByteLevel(const JsonNode& node);
  absl::Status Run(size_t step, absl::string_view text,
                   absl::FunctionRef<void(absl::string_view)> word) const;

  std::vector<Step> steps_;
};

}  // namespace baton
