#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Copies bytes between host and device memory, or within a device, on a stream of its own. Finished
// copies are reported in the order of the calls of Copy. KV thread only.
class DeviceCopies {
 public:
  // Called once, from Progress or FinishOldest. `status` is OK, or the error of the device.
  using Done = std::function<void(const absl::Status& status)>;

  // `runtime` must outlive the returned object. Returns Internal, with the runtime's message, if
  // the device fails.
  static absl::StatusOr<std::unique_ptr<DeviceCopies>> Create(DeviceRuntime* runtime);
  // Waits for all copies under way, but does not call their `done`.
  ~DeviceCopies();

  // Enqueues a copy. Both buffers must stay valid until `done` is called. If Copy returns an error,
  // `done` is never called.
  absl::Status Copy(void* to, const void* from, size_t bytes, Done done);
  // Reports the copies that have finished, without waiting. Returns true if there were any.
  bool Progress();
  // Waits for the oldest copy and reports it. Aborts if no copy is under way.
  void FinishOldest();
  size_t under_way() const { return copies_.size(); }

  // The stream on which the copies run.
  DeviceStream& stream() { return *stream_; }

 private:
  struct Copying {
    std::unique_ptr<DeviceEvent> event;  // recorded on the stream after the copy
    Done done;
  };

  DeviceCopies(DeviceRuntime* runtime, std::unique_ptr<DeviceStream> stream)
      : runtime_(runtime), stream_(std::move(stream)) {}
  void ReportOldest(const absl::Status& status);

  DeviceRuntime* const runtime_;
  const std::unique_ptr<DeviceStream> stream_;
  std::deque<Copying> copies_;  // oldest copy first
  std::vector<std::unique_ptr<DeviceEvent>> spare_events_;
};

}  // namespace baton
