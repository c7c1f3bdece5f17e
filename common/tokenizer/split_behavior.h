#pragma once

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/text_pattern.h"

namespace baton {

// What becomes of the matches of a pattern that cuts text.
enum class SplitBehavior {
  kIsolated,            // each match is a piece: "a--b" at "-" gives a - - b
  kRemoved,             // a b
  kContiguous,          // a -- b
  kMergedWithPrevious,  // a- - b
  kMergedWithNext,      // a - -b
};

// The member "behavior" of `node`, or `otherwise` where it is missing.
absl::StatusOr<SplitBehavior> ReadSplitBehavior(const JsonNode& node,
                                                std::optional<SplitBehavior> otherwise);

// Cuts `text` and calls `piece` for what that gives, in order; no piece is empty. With `invert`,
// what lies between matches counts as the matches. Fails as TextPattern::Find does.
absl::Status SplitText(const TextPattern& pattern, bool invert, SplitBehavior behavior,
                       absl::string_view text, absl::FunctionRef<void(absl::string_view)> piece);

}  // namespace baton
