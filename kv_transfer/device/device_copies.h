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

// Copies to and from a device on a stream of their own, reported in the order of the calls. KV
// thread only.
class DeviceCopies {
 public:
  // OK, or what the device failed with. Called once, from Progress or FinishOldest.
  using Done = std::function<void(const absl::Status& status)>;

  // `runtime` must outlive it. Internal with the runtime's words when the device fails.
  static absl::StatusOr<std::unique_ptr<DeviceCopies>> Create(DeviceRuntime* runtime);
  // Waits for what is under way, and reports nothing of it.
  ~DeviceCopies();

  // Enqueued; both ends stay what they are until `done`, which is not called after an error here.
  absl::Status Copy(void* to, const void* from, size_t bytes, Done done);
  // Reports those that have run; true when there were some. Waits for nothing.
  bool Progress();
  // Waits for the oldest, and reports it. Dies when there is none.
  void FinishOldest();
  size_t under_way() const { return copies_.size(); }

  // That of the copies.
  DeviceStream& stream() { return *stream_; }

 private:
  struct Copying {
    std::unique_ptr<DeviceEvent> event;  // behind it
    Done done;
  };

  DeviceCopies(DeviceRuntime* runtime, std::unique_ptr<DeviceStream> stream)
      : runtime_(runtime), stream_(std::move(stream)) {}
  void ReportOldest(const absl::Status& status);

  DeviceRuntime* const runtime_;
  const std::unique_ptr<DeviceStream> stream_;
  std::deque<Copying> copies_;  // in the order of the stream
  std::vector<std::unique_ptr<DeviceEvent>> spare_events_;
};

}  // namespace baton
