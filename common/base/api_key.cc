#include "common/base/api_key.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::string> ApiKeyFromEnvironment(const char* variable) {
  const char* const value = std::getenv(variable);
  std::string key = value == nullptr ? "" : value;
  const bool fits = std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (fits) return key;
  return absl::InvalidArgumentError(
      absl::StrCat("$", variable,
                   " holds a space, a line end or another character that no header can hold; set "
                   "it to the key alone"));
}

}  // namespace baton
