#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace baton {

// Lets other threads wake one thread. A call of Wake() is never lost: if the thread is not waiting,
// its next wait ends immediately. Several calls before a wait count as one. Wake() enters the
// kernel only if the thread is waiting.
class Wakeup {
 public:
  // Any thread. All that the caller wrote before is visible to the thread after its wait.
  void Wake();

  // Call only from the thread that is to be woken, which is always the same thread. Returns once
  // Wake() has been called since the last wait, or after `longest`, but at most after a day.
  // Returns immediately if `longest` is not positive.
  void WaitFor(absl::Duration longest);

 private:
  enum State : uint32_t { kIdle, kWoken, kWaiting };

  std::atomic<uint32_t> state_ = kIdle;  // the word that the kernel's futex waits on
};

}  // namespace baton
