#include "common/base/random.h"

#include <sys/random.h>

#include "common/base/check.h"

namespace baton {

std::string RandomBytes(int bytes) {
  std::string out(bytes, '\0');
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = getrandom(out.data() + done, out.size() - done, 0);
    BATON_CHECK(got > 0) << "getrandom failed";
    done += static_cast<size_t>(got);
  }
  return out;
}

uint64_t RandomU64() {
  uint64_t value = 0;
  while (value == 0) BATON_CHECK(getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value;
}

}  // namespace baton
