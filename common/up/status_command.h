#pragma once

#include <string>

namespace baton {

// Runs `status`: prints what runs, where, and whether it serves. Returns 0 if the router serves.
int RunStatus(const std::string& programs, const std::string& state);

}  // namespace baton
