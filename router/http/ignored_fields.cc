#include "router/http/ignored_fields.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace baton {
namespace {

constexpr size_t kMaxIgnoredNameBytes = 64, kMaxIgnoredHeaderBytes = 1024;

}  // namespace

void AddIgnoredField(absl::string_view name, IgnoredFields* ignored) {
  ++ignored->count;
  if (ignored->names.size() == IgnoredFields::kMaxNames) return;
  // A name without letters still has to show in the header.
  ignored->names.emplace_back(name.empty() ? "\"\"" : name.substr(0, kMaxIgnoredNameBytes));
}

std::string IgnoredFieldsHeader(const IgnoredFields& ignored) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string value;
  for (size_t i = 0; i < std::min(ignored.names.size(), IgnoredFields::kMaxNames); ++i) {
    std::string name = value.empty() ? "" : ",";
    for (const char c : ignored.names[i]) {
      const auto byte = static_cast<unsigned char>(c);
      if (absl::ascii_isgraph(byte) && byte != ',' && byte != '%') {
        name.push_back(c);
      } else {
        name.push_back('%');
        name.push_back(kDigits[byte >> 4]);
        name.push_back(kDigits[byte & 15]);
      }
    }
    if (value.size() + name.size() > kMaxIgnoredHeaderBytes) break;
    value += name;
  }
  return value;
}

}  // namespace baton
