#pragma once

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/text_pattern.h"

namespace baton {

// Says what happens to the matches of a pattern that cuts text into pieces.
enum class SplitBehavior {
  kIsolated,            // each match is a piece: "a--b" cut at "-" gives "a", "-", "-", "b"
  kRemoved,             // "a--b" cut at "-" gives "a", "b"
  kContiguous,          // "a--b" cut at "-" gives "a", "--", "b"
  kMergedWithPrevious,  // "a--b" cut at "-" gives "a-", "-", "b"
  kMergedWithNext,      // "a--b" cut at "-" gives "a", "-", "-b"
};

// Reads the member "behavior" of `node`. Returns `otherwise` if the member is missing.
absl::StatusOr<SplitBehavior> ReadSplitBehavior(const JsonNode& node,
                                                std::optional<SplitBehavior> otherwise);

// Cuts `text` and calls `piece` for each resulting piece, in order; no piece is empty. With
// `invert`, the text between matches is treated as matches, and the matches as other text. Stops at
// the first status of `piece` that is not OK, and returns it. Returns the errors of
// TextPattern::Find.
absl::Status SplitText(const TextPattern& pattern, bool invert, SplitBehavior behavior,
                       absl::string_view text,
                       absl::FunctionRef<absl::Status(absl::string_view)> piece);

}  // namespace baton
