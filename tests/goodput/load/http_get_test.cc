#include "tests/goodput/load/http_get.h"

#include <atomic>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

std::atomic<int> signals = 0;

// A server on loopback that answers one request. Before it answers, it interrupts the thread that
// waits for the answer with signals.
class LateServer {
 public:
  explicit LateServer(int interruptions)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, any, sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, any, &bytes), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, interruptions, asker = pthread_self()] {
      const int fd = accept(listener_, nullptr, nullptr);
      char request[4096];
      EXPECT_GT(recv(fd, request, sizeof(request), 0), 0);
      // The client has sent the whole request and now waits for the answer.
      for (int i = 0; i < interruptions; ++i) {
        const int before = signals;
        pthread_kill(asker, SIGUSR1);
        while (signals == before) std::this_thread::yield();
      }
      const absl::string_view answer = "HTTP/1.0 200 OK\r\n\r\nbody";
      EXPECT_EQ(send(fd, answer.data(), answer.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(answer.size()));
      close(fd);
    });
  }
  ~LateServer() {
    thread_.join();
    close(listener_);
  }
  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_, "/metrics"); }

 private:
  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

TEST(HttpGetTest, ASignalDoesNotEndTheWait) {
  struct sigaction count {};
  count.sa_handler = [](int) { ++signals; };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &count, &before), 0);
  {
    const LateServer server(/*interruptions=*/20);
    const auto body = HttpGet(ParseHttpUrl(server.url()).value(), absl::Seconds(30));
    ASSERT_TRUE(body.ok()) << body.status();
    EXPECT_EQ(*body, "body");
  }
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace baton
