#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/base/loop.h"
#include "common/worker/load_progress.h"

namespace baton {

// Tells how far the start of this process is while it lives, with a thread of its own, so that a
// disk that stands still is seen as well: on standard error, as a bar where that is a terminal and
// logs are text, else as log lines `loading`.
class LoadTeller {
 public:
  LoadTeller();
  ~LoadTeller() { Stop(); }

  // As LoadProgress::Set. Any thread.
  void Set(absl::string_view what, uint64_t done_bytes, uint64_t total_bytes) {
    progress_.Set(what, done_bytes, total_bytes);
  }
  // Says nothing more, and takes the bar away. Any number of times.
  void Stop();

 private:
  LoadProgress progress_;
  Loop loop_;
};

}  // namespace baton
