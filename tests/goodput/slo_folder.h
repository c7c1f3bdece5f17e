#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/goodput/results/slo_file.h"

namespace baton {

// Returns the folders whose SLO files can be named without a path. Earlier folders win: those in
// $BATON_SLO (separated by colons), then share/baton/slo beside the folder of an installed program,
// then tests/goodput/slo of the checkout in which the program was built.
std::vector<std::string> SloFolders();

// Returns the paths of all SLO files in the folders, sorted by name. If two files have the same
// name, the one in the earlier folder counts.
std::vector<std::string> FindSloFiles(const std::vector<std::string>& folders);

// Reads the SLO that `name` means: a file, or else the SLO of that name in the folders. NotFound
// says what was looked for and which names exist. InvalidArgument comes from ParseSlo.
absl::StatusOr<SloFile> ReadSlo(const std::string& name, const std::vector<std::string>& folders);

// Reads the SLO that the flag --slo names.
absl::StatusOr<SloFile> ReadSloFromFlag();

}  // namespace baton
