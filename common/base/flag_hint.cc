#include "common/base/flag_hint.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace baton {
namespace {

// Returns the number of letters to insert, delete, replace or swap to turn `a` into `b`.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t k = 0; k <= b.size(); ++k) cost[0][k] = k;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t k = 1; k <= b.size(); ++k) {
      cost[i][k] = std::min({cost[i - 1][k] + 1, cost[i][k - 1] + 1,
                             cost[i - 1][k - 1] + (a[i - 1] == b[k - 1] ? 0 : 1)});
      if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1]) {
        cost[i][k] = std::min(cost[i][k], cost[i - 2][k - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

// True if the flag's type is T or std::optional<T>.
template <typename T>
bool IsOf(const absl::CommandLineFlag& flag) {
  return flag.IsOfType<T>() || flag.IsOfType<std::optional<T>>();
}

template <typename T>
std::string WholeNumber() {
  return absl::StrCat("it takes a whole number from ", std::numeric_limits<T>::min(), " to ",
                      std::numeric_limits<T>::max());
}

}  // namespace

std::string ValueHint(const absl::CommandLineFlag& flag, absl::string_view flag_text,
                      absl::string_view value, absl::string_view why) {
  if (flag.IsOfType<absl::Duration>()) {
    double number = 0;
    if (absl::SimpleAtod(value, &number)) {
      return absl::StrCat("a time has a unit, such as ", flag_text, "=", value,
                          "s (also ms, m, h)");
    }
    return absl::StrCat("it takes a time with its unit, such as ", flag_text,
                        "=45s (also ms, m, h)");
  }
  if (IsOf<bool>(flag)) return "it takes true or false";
  if (IsOf<int32_t>(flag)) return WholeNumber<int32_t>();
  if (IsOf<uint32_t>(flag)) return WholeNumber<uint32_t>();
  if (IsOf<int64_t>(flag)) return WholeNumber<int64_t>();
  if (IsOf<uint64_t>(flag)) return WholeNumber<uint64_t>();
  if (IsOf<double>(flag) || IsOf<float>(flag)) return "it takes a number, such as 0.5";
  // `why` is "Illegal value 'x' specified for flag 'y'; REASON". Only our own flag types give a
  // reason.
  const size_t reason = why.rfind("'; ");
  return reason == why.npos ? "" : std::string(why.substr(reason + 3));
}

std::string ClosestName(absl::string_view typed, const std::vector<std::string>& names) {
  std::string closest;
  size_t min = std::max<size_t>(1, typed.size() / 4) + 1;
  for (const std::string& name : names) {
    // A part of a name counts as close, even if it is many letters away: "kv-byte" for "kv-bytes",
    // or "batch" for "max-batch".
    const bool part = typed.size() >= 4 && absl::StrContains(name, typed);
    const size_t distance = part ? 1 : EditDistance(typed, name);
    if (distance < min) {
      min = distance;
      closest = name;
    }
  }
  return closest;
}

}  // namespace baton
