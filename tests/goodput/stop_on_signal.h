#pragma once

#include "tests/goodput/load/stop_flag.h"

namespace baton {

// A flag that SIGINT or SIGTERM sets; a second one ends the process at once. Once per process,
// before it makes threads: they must not take the signal. Never deleted, because the thread that
// waits for the signal may use it to the end.
StopFlag* StopOnSignal();

}  // namespace baton
