#include "common/base/byte_size.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

constexpr absl::string_view kPrefixes = "kmgtp";
constexpr size_t kMaxFractionDigits = 18;

// Returns how many bytes one `unit`, in lower case, stands for, or 0 for an unknown unit.
uint64_t UnitBytes(absl::string_view unit) {
  absl::ConsumeSuffix(&unit, "b");
  if (unit.empty()) return 1;
  const bool binary = absl::ConsumeSuffix(&unit, "i");
  if (unit.size() != 1) return 0;
  const size_t power = kPrefixes.find(unit[0]);
  if (power == kPrefixes.npos) return 0;
  uint64_t bytes = 1;
  for (size_t i = 0; i <= power; ++i) bytes *= binary ? 1024 : 1000;
  return bytes;
}

}  // namespace

absl::StatusOr<uint64_t> ParseByteSize(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("'", absl::CHexEscape(text.substr(0, 100)),
                   "' is not a size; it takes bytes, or a number with a unit such as 4Gi or 4GiB "
                   "(4 x 2^30 bytes), 4G or 4GB (4 x 10^9)"));
  const std::string lower = absl::AsciiStrToLower(text);
  size_t at = 0;
  unsigned __int128 value = 0, fraction = 0, fraction_scale = 1;
  const auto digit = [&] { return at < lower.size() && absl::ascii_isdigit(lower[at]); };
  for (; digit(); ++at) {
    value = 10 * value + (lower[at] - '0');
    if (value > UINT64_MAX) return bad;
  }
  if (at == 0) return bad;
  if (at < lower.size() && lower[at] == '.') {
    const size_t first = ++at;
    for (; digit(); ++at) {
      fraction = 10 * fraction + (lower[at] - '0');
      fraction_scale *= 10;
    }
    if (at == first || at - first > kMaxFractionDigits) return bad;
  }
  const absl::string_view unit = absl::string_view(lower).substr(at);
  const uint64_t unit_bytes = UnitBytes(unit);
  // A fraction of a byte is refused as a mistake of the user.
  if (unit_bytes == 0 || (fraction_scale > 1 && unit_bytes == 1)) return bad;
  value = value * unit_bytes + fraction * unit_bytes / fraction_scale;
  if (value > UINT64_MAX) return bad;
  return static_cast<uint64_t>(value);
}

std::string ByteSizeText(uint64_t bytes) {
  std::string shortest = absl::StrCat(bytes);
  for (const bool binary : {true, false}) {
    uint64_t unit = 1;
    for (const char prefix : absl::string_view("KMGTP")) {
      unit *= binary ? 1024 : 1000;
      if (bytes == 0 || bytes % unit != 0) break;
      std::string text = absl::StrCat(bytes / unit, std::string(1, prefix), binary ? "i" : "");
      if (text.size() < shortest.size()) shortest = std::move(text);
    }
  }
  return shortest;
}

std::string RoundedBytes(uint64_t bytes) {
  if (bytes >= 1'000'000'000) return absl::StrFormat("%.1f GB", static_cast<double>(bytes) / 1e9);
  if (bytes >= 1'000'000) return absl::StrFormat("%.0f MB", static_cast<double>(bytes) / 1e6);
  return absl::StrFormat("%.0f kB", static_cast<double>(bytes) / 1e3);
}

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error) {
  const absl::StatusOr<uint64_t> bytes = ParseByteSize(text);
  if (bytes.ok()) {
    size->bytes = *bytes;
    return true;
  }
  *error = std::string(bytes.status().message());
  return false;
}

std::string AbslUnparseFlag(const ByteSize& size) { return ByteSizeText(size.bytes); }

}  // namespace baton
