#pragma once

#include <string>

namespace baton {

// Runs `status`: prints which processes run, their addresses, and if they serve. Returns 0 if the
// router serves.
int RunStatus(const std::string& programs, const std::string& state);

}  // namespace baton
