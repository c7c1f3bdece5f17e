#pragma once

#include <string>

namespace baton {

// Runs `down`: asks the running cluster to stop, and returns once it has. Asked a second time, by
// another run of `down`, the cluster does not wait for running answers. Returns the exit status.
int RunDown(const std::string& state);

}  // namespace baton
