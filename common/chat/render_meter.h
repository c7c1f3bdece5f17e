#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Bounds of one rendering. Reaching one ends it with ResourceExhausted.
struct RenderLimits {
  // One step is one node of the template that is evaluated, one element that is visited, or 16
  // characters that are read or written.
  int64_t max_steps = 5'000'000;
  // Memory of the values that the rendering made and still holds. Values of the caller do not
  // count.
  int64_t max_live_bytes = int64_t{128} << 20;
  int64_t max_output_bytes = int64_t{32} << 20;
  // Statements, expressions and calls that are open at one time.
  int max_depth = 500;
};

inline constexpr int kMaxValueDepth = 200;  // Containers inside containers.

// Counts what one rendering uses. The first bound that is reached stays in status(), and all later
// calls fail, so code that cannot return a status may go on with any value until the interpreter
// looks at status(), which it does at each node. One thread.
class RenderMeter {
 public:
  explicit RenderMeter(const RenderLimits& limits) : limits_(limits) {}
  RenderMeter(const RenderMeter&) = delete;
  RenderMeter& operator=(const RenderMeter&) = delete;

  const RenderLimits& limits() const { return limits_; }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  // Counts steps. False when a bound has been reached, by this call or before.
  bool Step(int64_t steps = 1);
  // Counts the reading or writing of characters.
  bool Characters(int64_t characters) { return Step(1 + characters / 16); }
  // False, and the end of the rendering, if `bytes` more would be too much. Takes nothing.
  bool Allows(int64_t bytes);
  // Takes memory for a value that lives until Release.
  bool Charge(int64_t bytes);
  void Release(int64_t bytes) { live_bytes_ -= bytes; }
  // Ends the rendering with ResourceExhausted, unless a bound was reached before.
  bool Fail(absl::string_view message);

 private:
  const RenderLimits limits_;
  int64_t steps_ = 0;
  int64_t live_bytes_ = 0;
  absl::Status status_;
};

}  // namespace baton
