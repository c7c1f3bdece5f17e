#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Events that are lent and come back, so that none is made once there are enough. Thread-safe.
class EventPool {
 public:
  // The runtime must outlive the pool and all that was lent.
  explicit EventPool(DeviceRuntime* runtime) : runtime_(runtime) {}

  // Comes back when the last holder lets go of it. It may then be recorded anew at once, which does
  // not touch the waits that were put on streams before.
  absl::StatusOr<std::shared_ptr<DeviceEvent>> Take() {
    std::unique_ptr<DeviceEvent> event;
    {
      MutexLock lock(&spares_->mutex);
      if (!spares_->events.empty()) {
        event = std::move(spares_->events.back());
        spares_->events.pop_back();
      }
    }
    if (event == nullptr) {
      ASSIGN_OR_RETURN(auto made, runtime_->CreateEvent());
      event = std::move(made);
    }
    return std::shared_ptr<DeviceEvent>(event.release(), [spares = spares_](DeviceEvent* back) {
      MutexLock lock(&spares->mutex);
      spares->events.emplace_back(back);
    });
  }

 private:
  struct Spares {
    Mutex mutex;
    std::vector<std::unique_ptr<DeviceEvent>> events ABSL_GUARDED_BY(mutex);
  };
  DeviceRuntime* const runtime_;
  const std::shared_ptr<Spares> spares_ = std::make_shared<Spares>();
};

}  // namespace baton
