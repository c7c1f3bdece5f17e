#include "kernels/backend/backend.h"

#include <new>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {

absl::Status Backend::StartStep(const StepArgs& step, StepOps ops) {
  if (started_ >= kMaxSteps) {
    return absl::FailedPreconditionError(
        absl::StrCat("step: ", started_, " are started and not finished"));
  }
  for (size_t i = 0; i < step.samples.size(); ++i) {
    if (step.samples[i] == nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("step: logit row ", i, " is to be sampled, which this backend can't do"));
  }
  for (size_t row = 0; row < step.follows.size(); ++row) {
    if (step.follows[row] == -1) continue;
    return absl::InvalidArgumentError(absl::StrCat("step: row ", row, " follows logit row ",
                                                   step.follows[row],
                                                   ", and this backend samples no tokens"));
  }
  const absl::Status ran = ops(step);
  // After StartStep returns, the caller may free what the views in `step` point to, even if an
  // operation failed. So this waits until all operations have run.
  const absl::Status finished = Synchronize();
  RETURN_IF_ERROR(ran);
  if (finished.ok()) ++started_;
  return finished;
}

absl::Status Backend::FinishStep() {
  if (started_ == 0) return absl::FailedPreconditionError("step: none is started");
  --started_;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<float[]>> Backend::AllocateResults(size_t floats) {
  std::shared_ptr<float[]> memory(new (std::nothrow) float[floats]);
  if (memory != nullptr) return memory;
  return absl::ResourceExhaustedError(
      absl::StrCat("logits: ", floats * sizeof(float), " bytes of memory could not be allocated"));
}

}  // namespace baton
