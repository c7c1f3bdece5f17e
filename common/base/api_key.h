#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton {

// The variable from which our clients take the key for a router.
inline constexpr char kApiKeyVariable[] = "BATON_API_KEY";

// Returns the API key in an environment variable, which a client sends to a server; "" if the
// variable is not set, or empty. Returns InvalidArgument if no header can hold the key. The error
// names the variable, but not the key, because messages are logged.
absl::StatusOr<std::string> ApiKeyFromEnvironment(const char* variable);

}  // namespace baton
