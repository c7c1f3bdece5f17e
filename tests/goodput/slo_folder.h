#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/goodput/results/slo_file.h"

namespace baton {

// Folders of SLO files that can be named without a path, the first one first: those in $BATON_SLO
// (separated by colons), share/baton/slo beside an installed program's folder, and
// tests/goodput/slo of the checkout that the program was built in.
std::vector<std::string> SloFolders();

// The paths of all SLO files in the folders, by their names. Of two with one name, the first
// counts.
std::vector<std::string> FindSloFiles(const std::vector<std::string>& folders);

// Reads what --slo names: a file, or else the SLO of that name in the folders. NotFound says what
// was looked for and which names there are; InvalidArgument is ParseSlo's.
absl::StatusOr<SloFile> ReadSlo(const std::string& name, const std::vector<std::string>& folders);

// The SLO that the flag --slo names.
absl::StatusOr<SloFile> ReadSloFromFlag();

}  // namespace baton
