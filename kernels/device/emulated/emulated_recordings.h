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

// The open recordings of interprocess events that this process has made. A recording is open while
// work before it has not run. That work runs as late as possible: when this process needs its
// result, or when another process waits for the recording. A thread looks for waits of other
// processes, because this process's own threads may be asleep. The thread starts with the first
// recording. All functions are called with the scheduler's mutex held.
class OpenRecordings {
 public:
  OpenRecordings(StreamScheduler* scheduler, Mutex* mutex) : scheduler_(scheduler), mutex_(mutex) {}
  // The caller must not hold the constructor's `mutex`. All recordings of this object must have
  // ended.
  ~OpenRecordings();

  // Records `event` on the stream of `queue`. Does not run or await the work before the recording,
  // unless the event already has SharedEvent::kMaxOpen recordings whose earlier work has not run.
  absl::Status Record(const std::shared_ptr<SharedEvent>& event,
                      const std::shared_ptr<EmulatedQueue>& queue);
  // Returns the point that `recording` marks in the work of one of this process's streams. Returns
  // nullopt if the recording has ended or is another process's.
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
