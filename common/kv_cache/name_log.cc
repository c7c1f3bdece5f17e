#include "common/kv_cache/name_log.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton {

void NameLog::BeginTurn(absl::Time now) {
  MutexLock lock(&mutex_);
  now_ = now;
}

uint64_t NameLog::Count(bool* tell) {
  const uint64_t number = ++last_;
  if (turns_.empty() || turns_.back().time != now_) {
    turns_.push_back({number, now_});
    if (turns_.size() > kMaxTurns) turns_.pop_front();
  }
  *tell = !told_ && on_change_;
  told_ = true;
  return number;
}

uint64_t NameLog::Add(const BlockName& name, const BlockName& parent) {
  bool tell = false;
  uint64_t number = 0;
  {
    MutexLock lock(&mutex_);
    number = Count(&tell);
    names_.emplace_hint(names_.end(), number, NameChanges::Addition{name, parent});
  }
  if (tell) on_change_();
  return number;
}

void NameLog::Remove(uint64_t number, const BlockName& name) {
  bool tell = false;
  {
    MutexLock lock(&mutex_);
    BATON_CHECK(names_.erase(number) == 1) << "change " << number << " added no name that is left";
    removals_.push_back({Count(&tell), name});
    if (removals_.size() > max_removals_) {
      dropped_ = removals_.front().number;
      removals_.pop_front();
    }
  }
  if (tell) on_change_();
}

std::optional<NameChanges> NameLog::Next(Cursor* reader, size_t max) {
  MutexLock lock(&mutex_);
  told_ = false;
  if (reader->last == last_) return std::nullopt;
  // A reader that is still being told all names does not need the removals before it began: it was
  // not told the names that they removed.
  uint64_t removed = std::max(reader->last, reader->begun);
  if (reader->last == 0 || removed < dropped_) {
    *reader = {.begun = last_};
    removed = last_;
  }
  const bool told_all = reader->last < reader->begun;
  NameChanges changes{.after = reader->last,
                      .last = last_,
                      .since = told_all ? absl::InfiniteFuture() : TimeOf(reader->last + 1)};
  auto addition = names_.upper_bound(reader->last);
  auto removal = std::upper_bound(removals_.begin(), removals_.end(), removed,
                                  [](uint64_t n, const Removal& one) { return n < one.number; });
  for (size_t taken = 0; addition != names_.end() || removal != removals_.end(); ++taken) {
    const bool adds = removal == removals_.end() ||
                      (addition != names_.end() && addition->first < removal->number);
    if (taken == max) {
      changes.last = (adds ? addition->first : removal->number) - 1;
      changes.more = true;
      break;
    }
    if (adds) {
      changes.added.push_back(addition++->second);
    } else {
      changes.removed.push_back(removal++->name);
    }
  }
  reader->last = changes.last;
  return changes;
}

uint64_t NameLog::last() const {
  MutexLock lock(&mutex_);
  return last_;
}

absl::Time NameLog::TimeOf(uint64_t number) const {
  if (turns_.empty()) return now_;
  const auto later = std::upper_bound(turns_.begin(), turns_.end(), number,
                                      [](uint64_t n, const Turn& turn) { return n < turn.first; });
  return later == turns_.begin() ? later->time : std::prev(later)->time;
}

}  // namespace baton
