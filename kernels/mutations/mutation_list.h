#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::mutations {

// A piece of a source file, and the wrong code that replaces it.
struct Replacement {
  int line = 0;       // line in the list, for messages
  std::string text;   // code as it stands in the source
  std::string wrong;  // if empty, `text` is removed from the source
};

// A fault to put into a source file. All of its replacements are made together.
struct ListedMutation {
  std::string name;
  std::string file;  // path from the root of the repository
  int line = 0;      // line in the list, for messages
  std::vector<Replacement> replacements;
};

// Parses a list of mutations; README.md describes the format. `path` is used only in messages.
// Returns InvalidArgument, with path and line, for text that does not fit the format and for two
// mutations with the same name.
absl::StatusOr<std::vector<ListedMutation>> ParseMutationList(absl::string_view path,
                                                              absl::string_view contents);

}  // namespace baton::mutations
