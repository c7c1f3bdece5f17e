#include "router/http/http_exchange.h"

#include "absl/strings/match.h"

namespace baton {

absl::string_view HttpHead::Get(absl::string_view name) const {
  for (const auto& [field, value] : fields) {
    if (absl::EqualsIgnoreCase(field, name)) return value;
  }
  return "";
}

bool HttpHead::Has(absl::string_view name) const {
  for (const auto& [field, value] : fields) {
    if (absl::EqualsIgnoreCase(field, name)) return true;
  }
  return false;
}

}  // namespace baton
