#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// One of the systems that are compared: a mode, or an endpoint that the user has named.
struct ComparedSide {
  std::string name;  // Name of the mode, or the user's name for an endpoint.
  // HOST:PORT of a router, or a URL; empty: the value of --openai or --endpoint.
  std::string endpoint;
  std::string mode;  // Mode to ask for; empty: the router's default.
};

// Parses "disaggregated,colocated,auto" or "old=127.0.0.1:1,new=127.0.0.1:2". If a name is a
// mode's, requests ask for that mode; other names only label their endpoint. An InvalidArgument
// contains the invalid word.
absl::StatusOr<std::vector<ComparedSide>> ParseComparedSides(absl::string_view text);

}  // namespace baton
