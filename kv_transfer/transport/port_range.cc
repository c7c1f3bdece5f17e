#include "kv_transfer/transport/port_range.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {

absl::StatusOr<PortRange> PortRange::Parse(const std::string& text) {
  if (text.empty()) return PortRange{};
  const std::pair<std::string, std::string> ends = absl::StrSplit(text, absl::MaxSplits('-', 1));
  PortRange range;
  if (!absl::SimpleAtoi(ends.first, &range.first) || !absl::SimpleAtoi(ends.second, &range.last) ||
      range.first < 1 || range.last > 65535 || range.last <= range.first) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--kv-ports is '", text,
        "'; it takes FIRST-LAST, from 1 to 65535 and at least two of them, such as 50100-50115: a "
        "worker takes two on each network interface, and a port stays taken for "
        "a minute after its worker was killed"));
  }
  return range;
}

absl::Status PortRange::Taken() const {
  return absl::UnavailableError(absl::StrCat(
      "fewer than two ports of --kv-ports ", first, "-", last,
      " are free on this machine, as `ss -tan` shows, and a worker takes two on each network "
      "interface: give more of them (a port stays taken for a minute after its worker was "
      "killed)"));
}

}  // namespace baton
