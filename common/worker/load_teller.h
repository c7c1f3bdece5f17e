#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/base/loop.h"
#include "common/worker/load_progress.h"

namespace baton {

// Reports the progress of this process's start on standard error, as long as this object lives. It
// shows a bar if standard error is a terminal and logs are text, and otherwise writes log lines
// `loading`. It has its own thread, so reports go on while the disk stalls.
class LoadTeller {
 public:
  LoadTeller();
  ~LoadTeller() { Stop(); }

  // Sets the progress, like LoadProgress::Set. Any thread.
  void Set(absl::string_view what, uint64_t done_bytes, uint64_t total_bytes) {
    progress_.Set(what, done_bytes, total_bytes);
  }
  // Ends the reports and removes the bar. May be called more than once.
  void Stop();

 private:
  LoadProgress progress_;
  Loop loop_;
};

}  // namespace baton
