#include "common/chat/render_meter.h"

#include "absl/strings/str_cat.h"

namespace baton {

bool RenderMeter::Step(int64_t steps) {
  steps_ += steps;
  if (steps_ <= limits_.max_steps) return ok();
  return Fail(absl::StrCat("the template takes more than ", limits_.max_steps, " steps"));
}

bool RenderMeter::Allows(int64_t bytes) {
  if (bytes <= limits_.max_live_bytes - live_bytes_) return ok();
  return Fail(absl::StrCat("the template's values take more than ", limits_.max_live_bytes,
                           " bytes of memory"));
}

bool RenderMeter::Charge(int64_t bytes) {
  live_bytes_ += bytes;
  return Allows(0);
}

bool RenderMeter::Fail(absl::string_view message) {
  if (ok()) status_ = absl::ResourceExhaustedError(message);
  return false;
}

}  // namespace baton
