#include "router/core/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace baton {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    Stop stop{.text = std::move(text)};
    stop.border.assign(stop.text.size() + 1, 0);
    size_t k = 0;
    for (size_t i = 1; i < stop.text.size(); ++i) {
      while (k > 0 && stop.text[i] != stop.text[k]) k = stop.border[k];
      if (stop.text[i] == stop.text[k]) ++k;
      stop.border[i + 1] = k;
    }
    stops_.push_back(std::move(stop));
  }
}

bool StopMatcher::Feed(absl::string_view text, std::string* certain, bool may_match) {
  size_t hold = held_.size();
  held_.append(text.data(), text.size());
  for (size_t i = hold; i < held_.size(); ++i) {
    hold = 0;
    for (Stop& stop : stops_) {
      while (stop.length > 0 && held_[i] != stop.text[stop.length]) {
        stop.length = stop.border[stop.length];
      }
      if (held_[i] == stop.text[stop.length]) ++stop.length;
      if (stop.length == stop.text.size()) {
        if (may_match && stop.length > matched_.size()) matched_ = stop.text;
        if (!may_match) stop.length = stop.border[stop.length];
      }
      hold = std::max(hold, stop.length);
    }
    if (!matched_.empty()) {
      certain->append(held_, 0, i + 1 - matched_.size());
      held_.clear();
      return true;
    }
  }
  certain->append(held_, 0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  return false;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace baton
