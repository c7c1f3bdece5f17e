#pragma once

#include <algorithm>
#include <chrono>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace baton {

// A flag that is set once, by Ctrl-C or by the code that runs a load. Threads wait for this flag
// where they would otherwise sleep. Any thread.
class StopFlag {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr Time kForever = Time::max();

  void Stop() {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.SignalAll();
  }
  bool stopped() {
    MutexLock lock(&mutex_);
    return stopped_;
  }
  // Makes the threads that wait in WaitUntil call their `done` again.
  void Notify() {
    MutexLock lock(&mutex_);
    changed_.SignalAll();
  }
  // Returns when the time `when` has come, the flag is set or `done()` is true. `done` must not
  // block.
  void WaitUntil(
      Time when, absl::FunctionRef<bool()> done = [] { return false; }) {
    MutexLock lock(&mutex_);
    while (!stopped_ && !done()) {
      const auto left = when - std::chrono::steady_clock::now();
      if (left <= left.zero()) return;
      // The wait is at most one hour, because an infinite time would overflow the clock.
      changed_.WaitFor(&mutex_, std::min(absl::FromChrono(left), absl::Hours(1)));
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
