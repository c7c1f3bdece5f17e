#pragma once

#include "common/base/program.h"
#include "common/worker/worker_equipment.h"

namespace baton {

// Starts the program of a worker: reads its flags, answers --help and --version, and blocks the
// signals that stop it. A positional argument ends the process with a message. `own` has the flags
// of one kind of worker; --help shows them near the top.
void StartWorkerProgram(int argc, char** argv, const char* usage, const FlagGroup& own,
                        const WorkerEquipment& equipment);

}  // namespace baton
