#include "tests/goodput/search/compared_modes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {

absl::StatusOr<std::vector<ComparedSide>> ParseComparedSides(absl::string_view text) {
  constexpr size_t kMax = 8;
  std::vector<ComparedSide> sides;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    ComparedSide side{.name = std::string(parts[0])};
    const bool is_mode =
        parts[0] == "disaggregated" || parts[0] == "colocated" || parts[0] == "auto";
    if (is_mode) side.mode = side.name;
    if (parts.size() == 2) side.endpoint = std::string(parts[1]);
    if (side.name.empty() || (parts.size() == 2 && side.endpoint.empty())) {
      return absl::InvalidArgumentError(
          absl::StrCat("--compare: '", word, "' is neither MODE nor NAME=HOST:PORT"));
    }
    if (!is_mode && side.endpoint.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--compare: '", word,
                       "' is not a mode (disaggregated, colocated, auto), and has no endpoint: "
                       "NAME=HOST:PORT"));
    }
    for (const ComparedSide& other : sides) {
      if (other.name == side.name) {
        return absl::InvalidArgumentError(
            absl::StrCat("--compare: '", side.name, "' occurs twice"));
      }
    }
    sides.push_back(std::move(side));
  }
  if (sides.size() < 2 || sides.size() > kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compare has ", sides.size(), " of the 2 to ", kMax, " sides it takes"));
  }
  return sides;
}

}  // namespace baton
