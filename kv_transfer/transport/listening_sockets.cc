#include "kv_transfer/transport/listening_sockets.h"

#include <filesystem>

#include <sys/stat.h>

#include "absl/strings/numbers.h"

namespace baton {

std::map<uint64_t, ListeningSocket> ListeningSockets() {
  std::map<uint64_t, ListeningSocket> sockets;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    int fd = -1;
    struct stat about;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &fd) || fstat(fd, &about) != 0 ||
        !S_ISSOCK(about.st_mode)) {
      continue;
    }
    int listens = 0;
    socklen_t bytes = sizeof(listens);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0) continue;
    const auto address = SocketAddress::Of(fd);
    if (address) sockets.emplace(about.st_ino, ListeningSocket{fd, *address});
  }
  return sockets;
}

}  // namespace baton
