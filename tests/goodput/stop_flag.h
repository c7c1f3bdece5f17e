#pragma once

#include <chrono>

#include "common/base/mutex.h"

namespace baton {

// Set once, by Ctrl-C or by whoever runs a load; threads wait on it instead of sleeping. Any
// thread.
class StopFlag {
 public:
  void Stop() {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.SignalAll();
  }
  bool stopped() {
    MutexLock lock(&mutex_);
    return stopped_;
  }
  // Returns at `when`, or earlier with true once it is set.
  bool WaitUntil(std::chrono::steady_clock::time_point when) {
    MutexLock lock(&mutex_);
    while (!stopped_) {
      const auto left = when - std::chrono::steady_clock::now();
      if (left <= left.zero()) return false;
      changed_.WaitFor(&mutex_, absl::FromChrono(left));
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
