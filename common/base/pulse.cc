#include "common/base/pulse.h"

#include <algorithm>

namespace baton {

std::vector<std::string> PulseWatch::Silent(absl::Time now) {
  const absl::Duration since = std::clamp(now - asked_, absl::ZeroDuration(), limit_ / 4);
  asked_ = now;
  std::vector<std::string> silent;
  for (Watched& watched : watched_) {
    const uint64_t beats = watched.pulse->beats();
    watched.silent = beats == watched.beats ? watched.silent + since : absl::ZeroDuration();
    watched.beats = beats;
    if (watched.silent > limit_) silent.push_back(watched.name);
  }
  return silent;
}

}  // namespace baton
