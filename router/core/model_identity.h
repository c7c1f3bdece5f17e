#pragma once

#include <compare>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {

// Names the weights and the arithmetic that a worker computes with. Two workers give the same
// tokens only if their identities are equal.
struct ModelIdentity {
  std::string fingerprint;  // Hash of weights and configuration, without a slash.
  std::string numerics_id;  // May contain slashes.

  // Returns FINGERPRINT/NUMERICS, the format of `--serve-identity`.
  std::string ToString() const { return absl::StrCat(fingerprint, "/", numerics_id); }
  auto operator<=>(const ModelIdentity& other) const = default;
};

}  // namespace baton
