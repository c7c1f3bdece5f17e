#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton::mutations {

// A change to a source file that takes effect while a mutation is on.
struct SwitchedChange {
  int number = 0;      // number of the mutation
  std::string origin;  // start of every message about the change
  std::string text;    // code that stands in the source exactly once
  std::string wrong;   // code that replaces it
};

struct SwitchedSource {
  // The source with a switch for each change: IsOn(number) (is_on.h) chooses between `text` and
  // `wrong`. Every line keeps its number.
  std::string code;
  // For each change, the first line of the source at which its wrong text differs from the source.
  std::vector<int> lines;
};

// Builds switches for the changes into `source`, which is C++ or CUDA C++. Text is compared token
// by token: white space and comments do not matter.
//
// While a mutation is on, the code does what it would do if an editor had replaced the texts of the
// mutation's changes. To achieve that, a switch may have to cover more than the part that differs:
// the expression around it, as far as its operators reach, or whole statements.
//
// Returns InvalidArgument, with one line per bad change, if a text does not stand in the source
// exactly once, if a change changes nothing, or if no switch can be made because the change is
// neither within one expression nor within the statements of one block. `path` names the source in
// messages.
absl::StatusOr<SwitchedSource> SwitchChanges(absl::string_view path, absl::string_view source,
                                             absl::Span<const SwitchedChange> changes);

}  // namespace baton::mutations
