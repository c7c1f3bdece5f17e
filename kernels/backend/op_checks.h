#pragma once

#include "absl/status/status.h"
#include "kernels/backend/backend.h"

namespace baton {

// Checks of an operation's arguments, which every backend makes before it reads or writes anything.
// Return InvalidArgument with the values; the message begins with the operation's name. Tensors
// without rows are valid. Overlap is not checked, and neither are block ids beyond the end of the
// pool, because no view carries the pool's size.
absl::Status CheckWeight(const Matrix& weight);
absl::Status CheckArgs(const EmbedArgs& args);
absl::Status CheckArgs(const RmsNormArgs& args);
absl::Status CheckArgs(const GemmArgs& args);
absl::Status CheckArgs(const RopeAndWriteKvArgs& args);
absl::Status CheckArgs(const AttentionArgs& args);
absl::Status CheckArgs(const SiluMulArgs& args);
absl::Status CheckArgs(const LogitsArgs& args);
// Checks all that the operations of the step would otherwise check one by one, and that the step
// stays within the limits of its program.
absl::Status CheckArgs(const StepArgs& step);
// The same checks for an operation in a step, but without sequences and ropes: CheckArgs(step) has
// checked these.
absl::Status CheckArgsInStep(const RopeAndWriteKvArgs& args);
absl::Status CheckArgsInStep(const AttentionArgs& args);

}  // namespace baton
