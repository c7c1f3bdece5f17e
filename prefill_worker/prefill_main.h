#pragma once

#include "common/worker/worker_equipment.h"

namespace baton {

// Runs the program of a prefill worker: reads the command line, serves until a stop signal, and
// returns the exit status. A mistake in the command line ends the process with a message. Only
// `main` calls this, once.
int PrefillMain(int argc, char** argv, const WorkerEquipment& equipment);

}  // namespace baton
