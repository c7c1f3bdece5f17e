#pragma once

#include "tests/goodput/load/stop_flag.h"

namespace baton {

// Returns a flag that SIGINT or SIGTERM sets. A second signal ends the process immediately. Call
// this once per process, before any thread starts, because no other thread may receive the signal.
// The flag is never deleted: the thread that waits for the signal may use it until the process
// ends.
StopFlag* StopOnSignal();

}  // namespace baton
