#include "common/up/start_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

constexpr size_t kMostWhyBytes = 240;

std::string Shortened(const std::string& why) {
  if (why.size() <= kMostWhyBytes) return why;
  size_t end = kMostWhyBytes;
  while (end > 0 && (static_cast<unsigned char>(why[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(why.substr(0, end), "...");
}

}  // namespace

std::string WaitingLine(const std::vector<Missing>& missing, absl::Duration waited) {
  const std::string names =
      absl::StrJoin(missing, ", ", [](std::string* out, const Missing& one) { *out += one.name; });
  std::string whys;
  for (const Missing& one : missing) {
    absl::StrAppend(&whys, whys.empty() ? "" : "; ",
                    missing.size() > 1 ? absl::StrCat(one.name, ": ") : "", Shortened(one.why));
  }
  return absl::StrCat("waiting for ", names, " (", absl::ToInt64Seconds(waited), " s): ", whys);
}

std::optional<std::string> StartProgress::Line(const std::vector<Missing>& missing,
                                               absl::Time now) {
  if (missing.empty() || now < next_) return std::nullopt;
  next_ = now + kPace;
  const std::string text = WaitingLine(missing, absl::ZeroDuration());
  if (text == shown_ && now - shown_at_ < kSilence) return std::nullopt;
  shown_ = text;
  shown_at_ = now;
  return WaitingLine(missing, now - begin_);
}

}  // namespace baton
