#include "common/base/program.h"

namespace baton {

// In a file of its own, so that a program without absl flags can print its version.
const absl::string_view kVersion = BATON_VERSION;

}  // namespace baton
