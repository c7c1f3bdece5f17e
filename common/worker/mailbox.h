#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "common/base/inbox.h"

namespace baton {

// Brings messages from other threads to the loop of a worker's core. A mailbox has no bound of its
// own: the core bounds the number of jobs, and so the number of messages about jobs. Routers, which
// are trusted, send one order to forget for a job that failed.
template <typename Message>
class Mailbox {
 public:
  // `wake` is called after each message. An empty `wake` is allowed and not called.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Any thread.
  void Send(Message message) {
    inbox_.PushAlways(std::move(message));
    if (wake_) wake_();
  }
  // Loop thread. Returns all messages that have arrived, oldest first.
  std::vector<Message> TakeAll() { return inbox_.TakeAll(); }

 private:
  Inbox<Message> inbox_{0};
  const std::function<void()> wake_;
};

}  // namespace baton
