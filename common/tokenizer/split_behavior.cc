#include "common/tokenizer/split_behavior.h"

#include <utility>

#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr std::pair<absl::string_view, SplitBehavior> kNames[] = {
    {"Isolated", SplitBehavior::kIsolated},
    {"Removed", SplitBehavior::kRemoved},
    {"Contiguous", SplitBehavior::kContiguous},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext}};

// A text is cut into parts, each either matched or not. Returns true if a part belongs to the same
// piece as the part before it.
bool Joins(SplitBehavior behavior, bool matched, bool previous_matched) {
  switch (behavior) {
    case SplitBehavior::kContiguous:
      return matched == previous_matched;
    case SplitBehavior::kMergedWithPrevious:
      return matched && !previous_matched;
    case SplitBehavior::kMergedWithNext:
      return !matched && previous_matched;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<SplitBehavior> ReadSplitBehavior(const JsonNode& node,
                                                std::optional<SplitBehavior> otherwise) {
  ASSIGN_OR_RETURN(const auto found, node.Find("behavior"));
  if (!found && otherwise) return *otherwise;
  ASSIGN_OR_RETURN(const auto behavior, node.Get("behavior"));
  ASSIGN_OR_RETURN(const auto name, behavior.String());
  for (const auto& [known, value] : kNames) {
    if (name == known) return value;
  }
  return behavior.Unsupported(
      "\"Isolated\", \"Removed\", \"Contiguous\", \"MergedWithPrevious\", \"MergedWithNext\"");
}

absl::Status SplitText(const TextPattern& pattern, bool invert, SplitBehavior behavior,
                       absl::string_view text,
                       absl::FunctionRef<absl::Status(absl::string_view)> piece) {
  if (behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved) {
    const bool keep_matches = behavior == SplitBehavior::kIsolated;
    return pattern.Find(text, [&](absl::string_view part, bool matched) {
      const bool kept = !part.empty() && (keep_matches || matched == invert);
      return kept ? piece(part) : absl::OkStatus();
    });
  }
  absl::string_view joined;
  bool previous_matched = false, first = true;
  RETURN_IF_ERROR(pattern.Find(text, [&](absl::string_view part, bool regex_matched) {
    const bool matched = regex_matched != invert;
    const bool joins = !first && Joins(behavior, matched, previous_matched);
    first = false;
    previous_matched = matched;
    if (joins) {
      joined = absl::string_view(joined.data(), joined.size() + part.size());
      return absl::OkStatus();
    }
    const absl::string_view whole = std::exchange(joined, part);
    return whole.empty() ? absl::OkStatus() : piece(whole);
  }));
  return joined.empty() ? absl::OkStatus() : piece(joined);
}

}  // namespace baton
