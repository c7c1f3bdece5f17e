#pragma once

#include "absl/status/status.h"
#include "kernels/backend/backend.h"

namespace baton {

// These functions check the arguments of an operation. Every backend except the fake one calls them
// before the operation reads or writes anything. They return InvalidArgument with the values; the
// message begins with the operation's name. Tensors without rows are valid. Overlap is not checked,
// and neither are block ids beyond the end of the pool, because no view carries the pool's size.
absl::Status CheckWeight(const Matrix& weight);
absl::Status CheckArgs(const EmbedArgs& args);
absl::Status CheckArgs(const RmsNormArgs& args);
absl::Status CheckArgs(const GemmArgs& args);
absl::Status CheckArgs(const RopeAndWriteKvArgs& args);
absl::Status CheckArgs(const AttentionArgs& args);
absl::Status CheckArgs(const SiluMulArgs& args);
absl::Status CheckArgs(const LogitsArgs& args);
// Checks all members of `step` that its operations get as arguments (StepOps), and its memory for
// results. Also checks that the step stays within max_rows, context and vocab.
absl::Status CheckArgs(const StepArgs& step);
// Checks the arguments of an operation in a step, except its sequences and ropes. CheckArgs(step)
// has checked these already.
absl::Status CheckArgsInStep(const RopeAndWriteKvArgs& args);
absl::Status CheckArgsInStep(const AttentionArgs& args);

}  // namespace baton
