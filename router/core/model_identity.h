#pragma once

#include <compare>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {

// Which weights and which arithmetic a worker computes with. Two workers give the same tokens only
// if their identities are equal.
struct ModelIdentity {
  std::string fingerprint;  // of weights and configuration; without a slash
  std::string numerics_id;  // may hold slashes

  // FINGERPRINT/NUMERICS, as `--serve-identity` takes it.
  std::string ToString() const { return absl::StrCat(fingerprint, "/", numerics_id); }
  auto operator<=>(const ModelIdentity& other) const = default;
};

}  // namespace baton
