#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "common/base/pulse.h"
#include "common/base/wakeup.h"

namespace baton {

// The thread that owns one object's state. It calls `run_once(now)`, by SteadyNow, again and again.
// Where that returns false (there was nothing to do), the thread waits until Wake() is called, or
// until `idle` or `next_turn` is reached. Programs make loops; the objects that loops drive never
// start threads and never read the clock.
class Loop {
 public:
  struct Options {
    const char* name = "loop";                     // of the thread, at most 15 bytes
    absl::Duration idle = absl::Milliseconds(50);  // longest wait between two turns
    std::function<absl::Time()> next_turn;         // a wait ends then; called by the loop's thread
    // Ends a wait, in place of the loop's own Wakeup: for callers that are made before the loop or
    // destroyed after it. Outlives the loop.
    Wakeup* wakeup = nullptr;
    // Another way to wait, such as a transport's, which may return early, and how any thread ends
    // such a wait, or the next one. Both or neither; `wakeup` is then not used.
    std::function<void(absl::Duration)> wait;
    std::function<void()> wake;
    Pulse* pulse = nullptr;  // beats at every turn; outlives the loop
  };
  // Starts the thread.
  Loop(Options options, std::function<bool(absl::Time now)> run_once);
  // Stops and joins.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Any thread. The next call of run_once comes at once.
  void Wake();
  // Any thread but the loop's own. After it, no call of run_once is running or will follow.
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
