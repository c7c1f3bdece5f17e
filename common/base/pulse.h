#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace baton {

// Shows that a thread makes progress. The thread calls Beat in each iteration of its loop, and
// several times in a long iteration.
class Pulse {
 public:
  // Any thread; very cheap.
  void Beat() { beats_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> beats_{0};
};

// Watches pulses, which threads beat to show that they make progress, and finds those that have
// stopped. One thread calls Silent repeatedly. Silence counts only while that thread keeps calling,
// so a time for which the whole process was suspended does not count.
class PulseWatch {
 public:
  // A pulse without a beat for longer than `limit` is silent. Call Silent at least four times per
  // `limit`.
  explicit PulseWatch(absl::Duration limit) : limit_(limit) {}

  // `pulse` must outlive the watch.
  void Add(std::string name, const Pulse* pulse) {
    watched_.push_back({.name = std::move(name), .pulse = pulse, .beats = pulse->beats()});
  }
  // Returns the names of the pulses that had no beat for longer than the limit, in the order in
  // which they were added. `now` must not decrease from call to call.
  std::vector<std::string> Silent(absl::Time now);

 private:
  struct Watched {
    std::string name;
    const Pulse* pulse;
    uint64_t beats;
    absl::Duration silent;
  };
  const absl::Duration limit_;
  std::vector<Watched> watched_;
  absl::Time asked_ = absl::InfiniteFuture();
};

}  // namespace baton
