#include "tests/cluster/scrape.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "tests/cluster/captured_log.h"

namespace baton {

absl::StatusOr<std::string> MetricsAddress(const Process& process) {
  ASSIGN_OR_RETURN(const std::string line,
                   process.log().WaitFor(" metrics address=", absl::Seconds(30)));
  return std::string(FieldOf(line, "address"));
}

absl::StatusOr<std::string> ScrapeText(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit = {20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  constexpr absl::string_view kRequest = "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n";
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      send(fd, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) > 0) {
    char bytes[1 << 16];
    for (ssize_t got = 0; (got = recv(fd, bytes, sizeof bytes, 0)) > 0;) {
      answer.append(bytes, static_cast<size_t>(got));
    }
  }
  close(fd);
  const size_t header = answer.find("\r\n\r\n");
  if (!absl::StartsWith(answer, "HTTP/1.1 200 ") || header == answer.npos) {
    return absl::UnavailableError(
        absl::StrCat("no page at ", address, ": '", answer.substr(0, 100), "'"));
  }
  return answer.substr(header + 4);
}

absl::StatusOr<Exposition> Scrape(const Process& process) {
  ASSIGN_OR_RETURN(const std::string address, MetricsAddress(process));
  ASSIGN_OR_RETURN(const std::string text, ScrapeText(address));
  return ParseExposition(text);
}

}  // namespace baton
