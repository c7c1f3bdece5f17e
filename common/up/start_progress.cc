#include "common/up/start_progress.h"

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr size_t kMaxBytes = 100;  // length of a line without its time

std::string Shortened(const std::string& text) {
  if (text.size() <= kMaxBytes) return text;
  size_t end = kMaxBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

}  // namespace

std::string WaitingLine(const std::vector<Missing>& missing, absl::Duration waited) {
  std::string line;
  size_t told = 0;
  for (const Missing& one : missing) {
    const std::string part = absl::StrCat(one.name, one.why.empty() ? "" : ": ", one.why);
    if (told > 0 && line.size() + 2 + part.size() > kMaxBytes) break;
    line =
        told == 0 ? Shortened(absl::StrCat("waiting for ", part)) : absl::StrCat(line, "; ", part);
    ++told;
  }
  if (told < missing.size()) absl::StrAppend(&line, "; ", missing.size() - told, " more");
  return absl::StrCat(line, " (", absl::ToInt64Seconds(waited), " s)");
}

std::optional<std::string> StartProgress::Line(const std::vector<Missing>& missing,
                                               absl::Time now) {
  if (missing.empty() || now < next_) return std::nullopt;
  next_ = now + pace_;
  return WaitingLine(missing, now - begin_);
}

}  // namespace baton
