#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "common/base/pulse.h"
#include "common/base/wakeup.h"

namespace baton {

// Runs one object on a thread of its own, which alone uses the state of this object. The thread
// calls `run_once(now)` again and again; `now` comes from SteadyNow. When run_once returns false
// (there was nothing to do), the thread waits until Wake() is called, until `idle` has passed, or
// until the time that `next_turn` returns. Programs make loops; the objects that loops drive never
// start threads and never read the clock.
class Loop {
 public:
  struct Options {
    const char* name = "loop";                     // name of the thread, at most 15 bytes
    absl::Duration idle = absl::Milliseconds(50);  // longest wait between two calls of run_once
    // returns the time at which run_once must be called even if nothing wakes the loop; called on
    // the loop's thread
    std::function<absl::Time()> next_turn;
    // If set, the loop uses this instead of a Wakeup of its own. Needed if objects that wake the
    // loop are made before it or destroyed after it. Must outlive the loop.
    Wakeup* wakeup = nullptr;
    // `wait` replaces the wait on a Wakeup, for example by a transport's wait, and may return
    // early. `wake` ends the current wait, or else the next one. Any thread may call `wake`. Set
    // both functions or neither. If they are set, `wakeup` is not used.
    std::function<void(absl::Duration)> wait;
    std::function<void()> wake;
    Pulse* pulse = nullptr;  // beats at every call of run_once; must outlive the loop
  };
  // Starts the thread.
  Loop(Options options, std::function<bool(absl::Time now)> run_once);
  // Stops the loop and joins the thread.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Any thread. Ends the current wait, or the next one, so that run_once is called without delay.
  void Wake();
  // Any thread but the loop's own. After Stop returns, run_once is not running and will not be
  // called.
  void Stop();

 private:
  void Run();

  Options options_;
  const std::function<bool(absl::Time)> run_once_;
  Wakeup own_wakeup_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace baton
