#include "common/base/program.h"

namespace baton {

// By itself, so that a program without absl flags can tell its version.
const absl::string_view kVersion = BATON_VERSION;

}  // namespace baton
