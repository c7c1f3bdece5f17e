#pragma once

#include <string>

namespace baton {

// Runs `down`: tells the running cluster to stop, and returns when it has stopped. A second `down`
// makes the cluster stop without waiting for running answers. Returns the exit status.
int RunDown(const std::string& state);

}  // namespace baton
