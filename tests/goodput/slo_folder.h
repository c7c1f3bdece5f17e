#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/goodput/results/slo_file.h"

namespace baton {

// Returns the folders in which SLO files are found by name. Earlier folders win. The order is: the
// folders in $BATON_SLO (separated by colons), share/baton/slo beside the folder of an installed
// program, and tests/goodput/slo of the checkout in which the program was built.
std::vector<std::string> SloFolders();

// Returns the paths of all SLO files in the folders, sorted by name. If two files have the same
// name, the one in the earlier folder counts.
std::vector<std::string> FindSloFiles(const std::vector<std::string>& folders);

// Reads the SLO `name`: the file of this path if it exists, else the SLO of this name in the
// folders. The message of a NotFound has the names that exist. InvalidArgument comes from ParseSlo.
absl::StatusOr<SloFile> ReadSlo(const std::string& name, const std::vector<std::string>& folders);

// Reads the SLO that the flag --slo names.
absl::StatusOr<SloFile> ReadSloFromFlag();

}  // namespace baton
