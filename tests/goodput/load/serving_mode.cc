#include "tests/goodput/load/serving_mode.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

constexpr absl::string_view kPrefix = "SERVING_MODE_";

}  // namespace

absl::StatusOr<v1::ServingMode> ServingModeOf(absl::string_view name) {
  if (name.empty()) return v1::SERVING_MODE_UNSPECIFIED;
  v1::ServingMode mode = v1::SERVING_MODE_UNSPECIFIED;
  v1::ServingMode_Parse(absl::StrCat(kPrefix, absl::AsciiStrToUpper(name)), &mode);
  if (mode == v1::SERVING_MODE_UNSPECIFIED || NameOf(mode) != name) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode '", name, "' does not exist; the modes are disaggregated, colocated and auto"));
  }
  return mode;
}

std::string NameOf(v1::ServingMode mode) {
  if (mode == v1::SERVING_MODE_UNSPECIFIED) return "";
  const std::string name = v1::ServingMode_Name(mode);
  return absl::AsciiStrToLower(absl::StripPrefix(name, kPrefix));
}

}  // namespace baton
