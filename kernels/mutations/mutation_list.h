#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::mutations {

// One place in a source file and the wrong code that can stand there.
struct Replacement {
  int line = 0;       // of the list, for messages
  std::string text;   // as the source has it
  std::string wrong;  // may be empty: the text is left out
};

// A fault to put into a source file. All its replacements are made at once.
struct ListedMutation {
  std::string name;
  std::string file;  // from the root of the repository
  int line = 0;      // of the list, for messages
  std::vector<Replacement> replacements;
};

// Reads a list of mutations; README.md describes the format. `path` is for messages alone. Returns
// InvalidArgument, with path and line, for what does not fit the format, and where two mutations
// have the same name.
absl::StatusOr<std::vector<ListedMutation>> ParseMutationList(absl::string_view path,
                                                              absl::string_view contents);

}  // namespace baton::mutations
