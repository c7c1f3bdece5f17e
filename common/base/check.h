#pragma once

#include <sstream>

namespace baton::internal {

// Collects the message of a broken invariant. At the end of the statement, prints the message and
// aborts the process.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

struct CheckVoidify {
  void operator&(std::ostream&) {}
};

}  // namespace baton::internal

// Aborts the process immediately, with file, line and the streamed values, when `condition` is
// false. For broken invariants only: a failure that the outside world can cause is returned as a
// status.
#define BATON_CHECK(condition)                      \
  (condition) ? (void)0                             \
              : ::baton::internal::CheckVoidify() & \
                    ::baton::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
