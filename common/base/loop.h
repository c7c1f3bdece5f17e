#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/pulse.h"

namespace baton {

// The thread that owns one object's state. Calls `run_once(now)`, by SteadyNow, again and again;
// when that returns false (nothing to do) it waits until Wake() or until `idle` has passed. `main`
// makes loops; the objects they drive never start threads or read the clock.
class Loop {
 public:
  struct Options {
    const char* name = "loop";                     // of the thread, at most 15 bytes
    absl::Duration idle = absl::Milliseconds(50);  // longest wait between two calls
    std::function<void(absl::Duration)> wait;      // instead of the built-in wait; may return early
    std::function<void()> wake;                    // ends `wait` early; any thread
    Pulse* pulse = nullptr;                        // beats at every turn; outlives the loop
  };
  // Starts the thread.
  Loop(Options options, std::function<bool(absl::Time now)> run_once);
  // Stops and joins.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Any thread. The next call of run_once comes at once.
  void Wake();
  // Any thread but the loop's own. No call of run_once is running or will follow.
  void Stop();

 private:
  void Run();

  const Options options_;
  const std::function<bool(absl::Time)> run_once_;
  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton
