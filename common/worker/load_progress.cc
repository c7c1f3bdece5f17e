#include "common/worker/load_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr absl::string_view kClearLine = "\r\x1b[K";

absl::string_view InWords(absl::string_view what) {
  return what == "kv_pool" ? "taking memory for the KV pool" : "loading weights";
}

}  // namespace

void LoadProgress::Set(absl::string_view what, uint64_t done_bytes, uint64_t total_bytes) {
  MutexLock lock(&mutex_);
  now_.what = std::string(what);
  now_.done_bytes = done_bytes;
  now_.total_bytes = total_bytes;
}

void LoadProgress::Tick(absl::Time now) {
  const absl::Duration first = options_.terminal ? kFirstBar : kFirstLine;
  const absl::Duration between = options_.terminal ? kBetweenBars : kBetweenLines;
  if (now < (told_ ? *told_ + between : start_ + first)) return;
  Now state;
  {
    MutexLock lock(&mutex_);
    state = now_;
  }
  if (state.what.empty()) return;
  // Reports come at fixed intervals after the first one, so that the delays of late calls do not
  // add up. If a whole interval was missed, the intervals start anew.
  told_ = told_ && now < *told_ + 2 * between ? *told_ + between : now;
  if (!options_.terminal) {
    options_.log(state);
    return;
  }
  sampled_ = true;
  options_.terminal_write(absl::StrCat(kClearLine, Bar(state)));
}

void LoadProgress::End() {
  if (sampled_) options_.terminal_write(kClearLine);
  sampled_ = false;
}

std::string LoadProgress::Text(const Now& now) {
  const bool giga = now.total_bytes >= 1'000'000'000;
  const double unit = giga ? 1e9 : 1e6;
  return absl::StrFormat("%.*f of %.*f %s", giga ? 1 : 0,
                         static_cast<double>(now.done_bytes) / unit, giga ? 1 : 0,
                         static_cast<double>(now.total_bytes) / unit, giga ? "GB" : "MB");
}

std::string LoadProgress::Bar(const Now& now) {
  constexpr uint64_t kColumns = 30;
  const uint64_t total = std::max<uint64_t>(now.total_bytes, 1);
  const auto full = static_cast<size_t>(static_cast<double>(std::min(now.done_bytes, total)) /
                                        static_cast<double>(total) * kColumns);
  return absl::StrCat(InWords(now.what), " [", std::string(full, '#'),
                      std::string(kColumns - full, ' '), "] ", Text(now));
}

}  // namespace baton
