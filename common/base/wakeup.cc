#include "common/base/wakeup.h"

#include <algorithm>
#include <cerrno>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/time/time.h"

namespace baton {
namespace {

// Calls futex(2) on a word that only threads of this process use.
long Futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* deadline) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation | FUTEX_PRIVATE_FLAG,
                 value, deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

// Returns the time after `longest` on the monotonic clock.
timespec DeadlineAfter(absl::Duration longest) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::ToTimespec(absl::DurationFromTimespec(now) + std::min(longest, absl::Hours(24)));
}

}  // namespace

void Wakeup::Wake() {
  if (state_.exchange(kWoken) == kWaiting) Futex(&state_, FUTEX_WAKE, 1, nullptr);
}

void Wakeup::WaitFor(absl::Duration longest) {
  uint32_t state = kIdle;
  if (longest > absl::ZeroDuration() && state_.compare_exchange_strong(state, kWaiting)) {
    const timespec deadline = DeadlineAfter(longest);
    // A signal, or the wake-up of an earlier user of this memory, may end the wait early.
    while (state_ == kWaiting &&
           (Futex(&state_, FUTEX_WAIT_BITSET, kWaiting, &deadline) == 0 || errno != ETIMEDOUT)) {
    }
  }
  state_.exchange(kIdle);
}

}  // namespace baton
