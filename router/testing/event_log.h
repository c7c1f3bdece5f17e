#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "router/core/core_events.h"
#include "router/core/request_metrics.h"
#include "router/core/router_core.h"

// Test equipment: a canonical log of a RouterCore, to compare two versions of the core.
namespace baton {

// Holds a line for each event that a core gets and for each action that it asks for, in their
// order. A line holds the kind and the numbers of its event or action: keys of requests, legs,
// workers and streams, positions, tokens, status codes, times and counts. It holds no text, pointer
// or name of a field, so the log stays the same if only words or the structure of the code change.
// The line of an event begins with its time in microseconds since the Unix epoch. Actions follow
// the events that came before them. Not thread-safe.
class EventLog {
 public:
  void Told(const CoreEvent& event, absl::Time now);
  void Asked(const CoreAction& action);
  // Adds the core's counters and the values of its metrics. Call it last.
  void Ended(const RouterCounters& counters, const RequestMetrics& metrics);

  const std::string& text() const { return text_; }
  size_t lines() const { return lines_; }

 private:
  void Add(std::string line);

  std::string text_;
  size_t lines_ = 0;
};

// A RouterCore that keeps a log. It has the same functions with the same meaning, so that a harness
// or the simulator can drive it in place of the core.
class LoggedCore {
 public:
  // `log` outlives the core; null: no log is kept. A core with a log has metrics of its own.
  LoggedCore(RouterCoreOptions options, EventLog* log)
      : core_(WithMetrics(std::move(options), log == nullptr ? nullptr : &metrics_)), log_(log) {}
  ~LoggedCore() {
    if (log_ != nullptr) log_->Ended(core_.counters(), metrics_);
  }

  void Handle(CoreEvent event, absl::Time now) {
    if (log_ != nullptr) log_->Told(event, now);
    core_.Handle(std::move(event), now);
  }
  void RunOnce(absl::Time now) { core_.RunOnce(now); }
  std::vector<CoreAction> TakeActions() {
    std::vector<CoreAction> actions = core_.TakeActions();
    if (log_ != nullptr) {
      for (const CoreAction& action : actions) log_->Asked(action);
    }
    return actions;
  }
  absl::Time NextWake() const { return core_.NextWake(); }
  size_t requests() const { return core_.requests(); }
  size_t legs() const { return core_.legs(); }
  size_t queued() const { return core_.queued(); }
  const RouterCounters& counters() const { return core_.counters(); }

 private:
  static RouterCoreOptions WithMetrics(RouterCoreOptions options, RequestMetrics* metrics) {
    if (metrics != nullptr) options.metrics = metrics;
    return options;
  }

  RequestMetrics metrics_;
  RouterCore core_;
  EventLog* const log_;
};

// Runs `history` with the seeds 1 to `seeds`, each with a log of its own. Returns one line with the
// number of seeds, the number of lines, and a hash over all logs. Writes each log to the file
// NAME-SEED.log of the folder $BATON_LOG_DIR if that variable is set.
std::string HashLogs(const std::string& name, int seeds,
                     const std::function<void(uint64_t seed, EventLog* log)>& history);
// Returns $BATON_LOG_SEEDS, the number of seeds whose logs are wanted; 0 if it is not set.
int LogSeedsWanted();

}  // namespace baton
