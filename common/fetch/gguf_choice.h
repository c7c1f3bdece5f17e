#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// Chooses one GGUF model among `names`, the names of all files of a repository. Returns the name of
// its file, or the names of all parts of a split one (NAME-00001-of-00003.gguf), the first part
// first.
//   choice   "Q8/model-Q8_0.gguf": this file, or the parts that this one belongs to
//            "Q8_0":               the model whose name ends with -Q8_0 or .Q8_0, in any case
//            "":                   the only model
//
// Errors list the names that there are, the ones most like `choice` first:
// - NotFound: no model fits.
// - FailedPrecondition: several models fit, or a part is missing.
absl::StatusOr<std::vector<std::string>> ChooseGguf(const std::vector<std::string>& names,
                                                    absl::string_view choice);

}  // namespace baton
