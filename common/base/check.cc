#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace baton::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << "FATAL " << file << ":" << line << ": " << condition << " does not hold. ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", message_.str().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace baton::internal
