#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// State of one capture, from BeginCapture to EndCapture: which thread may end the capture, and
// which forbidden call has made it fail. Both runtimes check these rules with this class, so that a
// program meets the same rules everywhere. Not synchronised.
class DeviceCapture {
 public:
  // Begins a capture by the calling thread. `stream` identifies the stream; its address is only
  // compared.
  explicit DeviceCapture(const void* stream) : origin_(stream) {}

  bool IsOwn() const { return thread_ == std::this_thread::get_id(); }
  bool IsOrigin(const void* stream) const { return stream == origin_; }
  bool ended() const { return ended_; }

  // Makes the capture fail, because of a call that a capture does not allow. End() reports the
  // first reason. Returns FailedPrecondition with `why`.
  absl::Status Spoil(absl::string_view why);
  // Ends the capture. Returns FailedPrecondition if Spoil() has been called.
  absl::Status End();

 private:
  const void* const origin_;
  const std::thread::id thread_ = std::this_thread::get_id();
  absl::Status spoilt_;
  bool ended_ = false;
};

// The captures of a device that have begun and not ended. Not synchronised.
class OpenCaptures {
 public:
  void Add(std::shared_ptr<DeviceCapture> capture) { captures_.push_back(std::move(capture)); }
  // Removes `capture`. Aborts if it was not added.
  void Remove(const DeviceCapture& capture);
  // Returns the calling thread's capture, or null.
  DeviceCapture* OfThisThread() const;
  // If the calling thread is capturing, makes that capture fail, because it does not allow `call`,
  // and returns FailedPrecondition.
  absl::Status Refuse(absl::string_view call) const;

 private:
  std::vector<std::shared_ptr<DeviceCapture>> captures_;
};

}  // namespace baton
