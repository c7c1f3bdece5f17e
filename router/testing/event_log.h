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

// Holds a line for each event that a core gets and for each action that it asks for, in order. A
// line holds the kind and the numbers of an event or action: keys of requests, legs, workers and
// streams, positions, tokens, status codes, times and counts. It holds no text, pointer or field
// name, so the log stays the same if only words or the structure of the code change. The line of an
// event begins with its time in microseconds since the Unix epoch. The actions that an event causes
// follow its line. Not thread-safe.
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

// A RouterCore that writes a log. It has the same functions as RouterCore, so that a harness or the
// simulator can use it instead.
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
  std::map<std::string, int> KeepersOf(absl::Span<const BlockName> prompt) {
    return core_.KeepersOf(prompt);
  }

 private:
  static RouterCoreOptions WithMetrics(RouterCoreOptions options, RequestMetrics* metrics) {
    if (metrics != nullptr) options.metrics = metrics;
    return options;
  }

  RequestMetrics metrics_;
  RouterCore core_;
  EventLog* const log_;
};

// Runs the test scenario `history` with each of the seeds 1 to `seeds`, and gives each run a log of
// its own. Returns one line with the number of seeds, the number of log lines, and a hash of all
// logs. If the variable $BATON_LOG_DIR is set, writes each log to the file NAME-SEED.log in that
// folder.
std::string HashLogs(const std::string& name, int seeds,
                     const std::function<void(uint64_t seed, EventLog* log)>& history);
// Returns the value of $BATON_LOG_SEEDS, the number of seeds whose logs are to be hashed; 0 if the
// variable is not set.
int LogSeedsWanted();

}  // namespace baton
