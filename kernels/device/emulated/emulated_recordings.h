#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "kernels/device/emulated/emulated_event.h"
#include "kernels/device/emulated/emulated_streams.h"

namespace baton {

// This process's recordings of interprocess events behind which work has not run. It runs as late
// as any other: when somebody here asks for it, or when another process waits for it, which a
// thread looks for, because whoever recorded it may be asleep by then. The thread starts with the
// first recording. All under the scheduler's mutex.
class OpenRecordings {
 public:
  OpenRecordings(StreamScheduler* scheduler, Mutex* mutex) : scheduler_(scheduler), mutex_(mutex) {}
  // The caller must not hold the mutex, and all recordings must have ended.
  ~OpenRecordings();

  // Records `event` on the stream of `queue`. Runs or awaits earlier work only where more
  // recordings of the event are open than there may be.
  absl::Status Record(const std::shared_ptr<SharedEvent>& event,
                      const std::shared_ptr<EmulatedQueue>& queue);
  // The place of a recording that is open and ours.
  std::optional<StreamPoint> Find(const SharedPoint& recording) const;

 private:
  struct Open {
    SharedPoint recording;
    StreamPoint place;
  };
  void ForgetEnded();
  void Serve();

  StreamScheduler* const scheduler_;
  Mutex* const mutex_;
  std::vector<Open> open_;
  bool ending_ = false;
  CondVar changed_;
  std::thread server_;
};

}  // namespace baton
