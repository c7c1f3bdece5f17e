#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Names of fields that a request has and that this server does not know.
struct IgnoredFields {
  static constexpr size_t kMaxNames = 16;
  std::vector<std::string> names;  // The first ones, shortened, in the order of the request.
  size_t count = 0;                // All of them.
};

// Adds the name of a field that is not known.
void AddIgnoredField(absl::string_view name, IgnoredFields* ignored);
// Returns the value of the header x-baton-ignored-fields: the names with commas between them, in
// printable ASCII, where %XX stands for other bytes. At most 16 names and 1 KiB. Empty if there are
// none.
std::string IgnoredFieldsHeader(const IgnoredFields& ignored);

}  // namespace baton
