#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Lends out events and takes them back for reuse, so that it need not create a new event each time.
// Thread-safe.
class EventPool {
 public:
  // The runtime must outlive the pool and all events that it has lent.
  explicit EventPool(DeviceRuntime* runtime) : runtime_(runtime) {}

  // Returns an event, which comes back to the pool when its last holder releases it. The pool may
  // then lend it to another caller immediately, which may record it again. This does not affect
  // waits for the event that are already enqueued.
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
