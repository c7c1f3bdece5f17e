#pragma once

#include "absl/status/status.h"
#include "kernels/backend/backend.h"

namespace baton {

// What every backend asks of the arguments of an operation before it reads or writes anything.
// InvalidArgument with the values; the text begins with the operation's name. Tensors of no rows
// are fine. Says nothing of overlap, nor of block ids beyond the pool, whose size no view carries.
absl::Status CheckWeight(const Matrix& weight);
absl::Status CheckArgs(const EmbedArgs& args);
absl::Status CheckArgs(const RmsNormArgs& args);
absl::Status CheckArgs(const GemmArgs& args);
absl::Status CheckArgs(const RopeAndWriteKvArgs& args);
absl::Status CheckArgs(const AttentionArgs& args);
absl::Status CheckArgs(const SiluMulArgs& args);
absl::Status CheckArgs(const LogitsArgs& args);
// What its operations would find out one by one, and that nothing is beyond what the program has
// room for.
absl::Status CheckArgs(const StepArgs& step);
// In a step: without the sequences and ropes, which the step's own check has seen.
absl::Status CheckArgsInStep(const RopeAndWriteKvArgs& args);
absl::Status CheckArgsInStep(const AttentionArgs& args);

}  // namespace baton
