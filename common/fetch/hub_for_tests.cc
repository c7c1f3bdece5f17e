#include "common/fetch/hub_for_tests.h"

#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace baton {

HubForTests::HubForTests(std::function<HubAnswer(const HubRequest&)> answer)
    : answer_(std::move(answer)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  BATON_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  BATON_CHECK(listen(listener_, 16) == 0);
  BATON_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

HubForTests::~HubForTests() {
  shutdown(listener_, SHUT_RDWR);  // makes accept() return
  thread_.join();
  close(listener_);
}

std::string HubForTests::address() const { return absl::StrCat("http://127.0.0.1:", port_); }

std::vector<HubRequest> HubForTests::requests() const {
  MutexLock lock(&mutex_);
  return requests_;
}

void HubForTests::Run() {
  for (int connection; (connection = accept(listener_, nullptr, nullptr)) >= 0;) {
    std::string head;
    char bytes[4096];
    for (ssize_t got;
         !absl::StrContains(head, "\r\n\r\n") && (got = read(connection, bytes, sizeof bytes)) > 0;)
      head.append(bytes, got);
    HubRequest request;
    for (absl::string_view line : absl::StrSplit(head, "\r\n")) {
      if (request.target.empty()) {
        const std::vector<std::string> words = absl::StrSplit(line, ' ');
        if (words.size() == 3) request.target = words[1];
      } else if (absl::ConsumePrefix(&line, "Range: ")) {
        request.range = std::string(line);
      } else if (absl::ConsumePrefix(&line, "Authorization: ")) {
        request.authorization = std::string(line);
      }
    }
    {
      MutexLock lock(&mutex_);
      requests_.push_back(request);
    }
    const HubAnswer answer = answer_(request);
    std::string text = absl::StrCat("HTTP/1.1 ", answer.status, " x\r\nConnection: close\r\n",
                                    "Content-Length: ", answer.body.size(), "\r\n");
    for (const auto& [name, value] : answer.headers)
      absl::StrAppend(&text, name, ": ", value, "\r\n");
    absl::StrAppend(&text, "\r\n",
                    answer.cut_after < 0 ? answer.body : answer.body.substr(0, answer.cut_after));
    for (absl::string_view rest = text; !rest.empty();) {
      const ssize_t sent = send(connection, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      rest.remove_prefix(sent);
    }
    close(connection);
  }
}

}  // namespace baton
