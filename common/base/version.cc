#include "common/base/program.h"

namespace baton {

// The version has a file of its own, so that a program without absl flags can print it.
const absl::string_view kVersion = BATON_VERSION;

}  // namespace baton
