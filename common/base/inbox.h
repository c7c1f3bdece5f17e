#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "common/base/mutex.h"

namespace baton {

// A bounded queue with many writers and one reader. Other threads use it to send messages to the
// thread that owns a loop's state.
template <typename T>
class Inbox {
 public:
  explicit Inbox(size_t capacity) : capacity_(capacity) {}

  // Any thread. Returns false, and drops the message, when the queue is full. The sender decides
  // what to do then.
  bool Push(T message) {
    MutexLock lock(&mutex_);
    if (messages_.size() >= capacity_) return false;
    messages_.push_back(std::move(message));
    return true;
  }

  // Any thread. Adds the message even when the queue is full. Use it only for messages that must
  // not be lost and whose number is bounded elsewhere, such as one message at the end of each
  // sequence.
  void PushAlways(T message) {
    MutexLock lock(&mutex_);
    messages_.push_back(std::move(message));
  }

  // Reader thread. Returns all messages that have arrived, oldest first.
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
