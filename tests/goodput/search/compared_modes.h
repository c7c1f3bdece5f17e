#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// One side of a comparison.
struct ComparedSide {
  std::string name;      // of the mode, or what the user calls an endpoint
  std::string endpoint;  // host:port; empty: that of --endpoint
  std::string mode;      // to ask for; empty: the router's own
};

// "disaggregated,colocated,auto", or "old=127.0.0.1:1,new=127.0.0.1:2": names of modes are asked of
// the router as such, other names only name their endpoint. InvalidArgument says which word can't
// be used.
absl::StatusOr<std::vector<ComparedSide>> ParseComparedSides(absl::string_view text);

}  // namespace baton
