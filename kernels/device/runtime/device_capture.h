#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// One capture, from BeginCapture to EndCapture: who may end it, and what spoilt it. Both runtimes
// keep these rules themselves, so that they are the same wherever a program is tried. Not
// synchronised.
class DeviceCapture {
 public:
  // Begun by the calling thread on `stream`, whatever stands for it.
  explicit DeviceCapture(const void* stream) : origin_(stream) {}

  bool IsOwn() const { return thread_ == std::this_thread::get_id(); }
  bool IsOrigin(const void* stream) const { return stream == origin_; }
  bool ended() const { return ended_; }

  // Something was called that a capture does not allow; the first reason is what End tells.
  // Returns FailedPrecondition with `why`.
  absl::Status Spoil(absl::string_view why);
  // FailedPrecondition when it was spoilt.
  absl::Status End();

 private:
  const void* const origin_;
  const std::thread::id thread_ = std::this_thread::get_id();
  absl::Status spoilt_;
  bool ended_ = false;
};

// The captures of a device that are under way. Not synchronised.
class OpenCaptures {
 public:
  void Add(std::shared_ptr<DeviceCapture> capture) { captures_.push_back(std::move(capture)); }
  // Dies on one that was not added.
  void Remove(const DeviceCapture& capture);
  // The calling thread's, or null.
  DeviceCapture* OfThisThread() const;
  // FailedPrecondition when the calling thread is capturing, which is then spoilt: a capture does
  // not allow `call`.
  absl::Status Refuse(absl::string_view call) const;

 private:
  std::vector<std::shared_ptr<DeviceCapture>> captures_;
};

}  // namespace baton
