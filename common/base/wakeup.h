#pragma once

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace baton {

// Lets other threads wake one thread. A call of Wake() is never lost: if the thread is not waiting,
// its next wait ends immediately. Several calls before a wait count as one.
class Wakeup {
 public:
  // Any thread.
  void Wake() {
    MutexLock lock(&mutex_);
    woken_ = true;
    changed_.Signal();
  }

  // Call only from the thread that is to be woken, which is always the same thread. Returns once
  // Wake() has been called since the last wait, or after `longest`. Returns immediately if
  // `longest` is not positive.
  void WaitFor(absl::Duration longest) {
    MutexLock lock(&mutex_);
    if (!woken_ && longest > absl::ZeroDuration()) changed_.WaitFor(&mutex_, longest);
    woken_ = false;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
