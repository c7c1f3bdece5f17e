#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace baton {

// Shows that a thread gets on: it beats once a turn, and between the parts of a long one.
class Pulse {
 public:
  // Any thread; costs next to nothing.
  void Beat() { beats_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> beats_{0};
};

// Tells which pulses have stopped. One thread asks, again and again. Silence counts only while it
// is asked: a process that was suspended blames nobody for the time in which nothing ran.
class PulseWatch {
 public:
  // A pulse without a beat for longer than `limit` is silent. Ask at least every quarter of it.
  explicit PulseWatch(absl::Duration limit) : limit_(limit) {}

  // `pulse` outlives the watch.
  void Add(std::string name, const Pulse* pulse) {
    watched_.push_back({.name = std::move(name), .pulse = pulse, .beats = pulse->beats()});
  }
  // The names of the silent ones, in the order they were added. `now` never goes back.
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
