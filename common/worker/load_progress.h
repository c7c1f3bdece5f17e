#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace baton {

// Tells people how far a worker's start is: on a terminal as a bar, elsewhere as log lines. What is
// over within kFirstLine (kFirstBar on a terminal) says nothing.
class LoadProgress {
 public:
  static constexpr absl::Duration kFirstLine = absl::Seconds(2);
  static constexpr absl::Duration kBetweenLines = absl::Seconds(1);
  static constexpr absl::Duration kFirstBar = absl::Milliseconds(300);
  static constexpr absl::Duration kBetweenBars = absl::Milliseconds(100);

  struct Now {
    std::string what;  // "weights", "kv_pool"
    uint64_t done_bytes = 0, total_bytes = 0;
  };
  struct Options {
    bool terminal = false;
    std::function<void(const Now&)> log;                    // one line
    std::function<void(absl::string_view)> terminal_write;  // bytes as they are
  };
  LoadProgress(Options options, absl::Time start) : options_(std::move(options)), start_(start) {}

  // Any thread.
  void Set(absl::string_view what, uint64_t done_bytes, uint64_t total_bytes);

  // The other calls come from one thread at a time. Says what is due.
  void Tick(absl::Time now);
  // Takes the bar from the terminal.
  void End();

  // "3.1 of 16.0 GB".
  static std::string Text(const Now& now);
  // A line for a terminal, without its end.
  static std::string Bar(const Now& now);

 private:
  const Options options_;
  const absl::Time start_;
  std::optional<absl::Time> told_;
  bool drawn_ = false;
  Mutex mutex_;
  Now now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
