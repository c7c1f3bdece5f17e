#pragma once

#include "common/base/loop.h"
#include "common/base/mutex.h"

namespace baton {

// Stands for a Loop that is made later than those who wake it, and goes before them.
class Wakeup {
 public:
  // `loop` outlives the next Set.
  void Set(Loop* loop) {
    MutexLock lock(&mutex_);
    loop_ = loop;
    if (loop_ != nullptr) loop_->Wake();
  }
  // Any thread.
  void Wake() {
    MutexLock lock(&mutex_);
    if (loop_ != nullptr) loop_->Wake();
  }

 private:
  Mutex mutex_;
  Loop* loop_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace baton
