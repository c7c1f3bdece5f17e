#include "kernels/device/emulated/emulated_handle.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>

#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<int> OpenFileOf(const EmulatedHandle& handle) {
  const std::string path = absl::StrCat("/proc/", handle.process, "/fd/", handle.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file >= 0) return file;
  return absl::FailedPreconditionError(absl::StrCat("process ", handle.process,
                                                    ", which exported this handle, can't be "
                                                    "reached: ",
                                                    strerror(errno)));
}

}  // namespace baton
