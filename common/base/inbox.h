#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "common/base/mutex.h"

namespace baton {

// A bounded queue with many writers and one reader: how other threads reach the state of a loop.
template <typename T>
class Inbox {
 public:
  explicit Inbox(size_t capacity) : capacity_(capacity) {}

  // Any thread. False when full: the message was not taken, and the sender says what that means.
  bool Push(T message) {
    MutexLock lock(&mutex_);
    if (messages_.size() >= capacity_) return false;
    messages_.push_back(std::move(message));
    return true;
  }

  // Any thread. For messages that must not be lost and are bounded by something else (one end per
  // sequence, say): beyond the capacity too.
  void PushAlways(T message) {
    MutexLock lock(&mutex_);
    messages_.push_back(std::move(message));
  }

  // The reader. Everything that has arrived, oldest first.
  std::vector<T> TakeAll() {
    std::vector<T> taken;
    MutexLock lock(&mutex_);
    taken.swap(messages_);
    return taken;
  }

 private:
  const size_t capacity_;
  Mutex mutex_;
  std::vector<T> messages_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
