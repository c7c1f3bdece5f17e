#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace baton {

// Shows people the progress of a worker's start: as a bar on a terminal, elsewhere as log lines. A
// start that takes less than kFirstLine (kFirstBar on a terminal) shows nothing.
class LoadProgress {
 public:
  static constexpr absl::Duration kFirstLine = absl::Seconds(2);
  static constexpr absl::Duration kBetweenLines = absl::Seconds(1);
  static constexpr absl::Duration kFirstBar = absl::Milliseconds(300);
  static constexpr absl::Duration kBetweenBars = absl::Milliseconds(100);

  struct Now {
    std::string what;  // "weights" or "kv_pool"
    uint64_t done_bytes = 0, total_bytes = 0;
  };
  struct Options {
    bool terminal = false;
    std::function<void(const Now&)> log;  // writes one log line
    // writes bytes unchanged to the terminal
    std::function<void(absl::string_view)> terminal_write;
  };
  LoadProgress(Options options, absl::Time start) : options_(std::move(options)), start_(start) {}

  // Any thread.
  void Set(absl::string_view what, uint64_t done_bytes, uint64_t total_bytes);

  // Reports the progress if a report is due. Call Tick and End from one thread at a time.
  void Tick(absl::Time now);
  // Removes the bar from the terminal.
  void End();

  // Returns text such as "3.1 of 16.0 GB".
  static std::string Text(const Now& now);
  // Returns a line for a terminal, without its line end.
  static std::string Bar(const Now& now);

 private:
  const Options options_;
  const absl::Time start_;
  std::optional<absl::Time> told_;
  bool sampled_ = false;
  Mutex mutex_;
  Now now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
