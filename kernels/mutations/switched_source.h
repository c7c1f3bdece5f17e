#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton::mutations {

// A change of a source that takes effect while a mutation is on.
struct SwitchedChange {
  int number = 0;      // of the mutation
  std::string origin;  // every message about the change begins with this
  std::string text;    // code that stands in the source exactly once
  std::string wrong;   // the code that takes its place
};

struct SwitchedSource {
  // The source, in which IsOn(number) (is_on.h) chooses between the text and the wrong text of each
  // change. Each line of the source is still the line of that number.
  std::string code;
  // For each change, the line of the source where the wrong text begins to differ.
  std::vector<int> lines;
};

// Switches the changes into `source`, in C++ or CUDA C++. Text is compared as tokens: white space
// and comments do not matter.
//
// While a mutation is on, the code does what the source would do after an editor had replaced the
// texts of its changes. For that, a switch may have to take more than what differs: the expression
// around it, as far as its operators reach, or whole statements.
//
// Returns InvalidArgument, with a line for each bad change, where a text does not stand in the
// source exactly once, where nothing differs, or where no switch can be made because the change is
// neither within one expression nor within the statements of one block. `path` names the source in
// messages.
absl::StatusOr<SwitchedSource> SwitchChanges(absl::string_view path, absl::string_view source,
                                             absl::Span<const SwitchedChange> changes);

}  // namespace baton::mutations
