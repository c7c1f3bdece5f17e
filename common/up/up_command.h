#pragma once

#include <string>

#include "common/up/up_options.h"

namespace baton {

// Runs `up`: starts the processes, answers the first prompt, keeps the processes running until a
// signal, and stops them in order. `programs` is the folder of the programs, `state` the folder of
// the cluster's state. Returns the exit status:
// - 0 after an orderly stop, or once a cluster with --detach serves
// - with --once, the status of the first prompt
// - 128 plus the number of a signal that came before the first answer
// - 1 in all other cases
int RunUp(const UpOptions& options, const std::string& programs, const std::string& state);

}  // namespace baton
