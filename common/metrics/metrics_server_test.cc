#include "common/metrics/metrics_server.h"

#include <atomic>
#include <random>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/host_port.h"

namespace baton {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A client's connection to which a test writes raw bytes.
class Client {
 public:
  explicit Client(const std::string& address)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~Client() { close(fd_); }
  bool connected() const { return connected_; }
  bool Say(absl::string_view bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  void SayNoMore() { shutdown(fd_, SHUT_WR); }
  // Returns all bytes until the server closes the connection, or "TIMEOUT".
  std::string Hear(absl::Duration limit = absl::Seconds(20)) {
    std::string heard;
    const absl::Time until = absl::Now() + limit;
    while (true) {
      pollfd wait = {fd_, POLLIN, 0};
      const int ms = static_cast<int>(absl::ToInt64Milliseconds(until - absl::Now()));
      if (ms <= 0 || poll(&wait, 1, ms) <= 0) return "TIMEOUT";
      char buffer[4096];
      const ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
      if (size <= 0) return heard;
      heard.append(buffer, static_cast<size_t>(size));
    }
  }

 private:
  const int fd_;
  bool connected_ = false;
};

std::unique_ptr<MetricsServer> Serve(
    MetricsServer::Options options = {},
    std::function<std::string()> text = [] { return "a_total 1\n"; }) {
  options.listen = "127.0.0.1:0";
  auto server = MetricsServer::Listen(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status();
  (*server)->Serve(std::move(text));
  return *std::move(server);
}

std::string Ask(const MetricsServer& server, absl::string_view request) {
  Client client(server.address());
  EXPECT_TRUE(client.Say(request));
  return client.Hear();
}

TEST(MetricsServerTest, GivesThePage) {
  std::atomic<int> asked = 0;
  const auto server = Serve({}, [&] { return absl::StrCat("a_total ", ++asked, "\n"); });
  EXPECT_GT(PortOf(server->address()), 0);
  const std::string answer = Ask(*server, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 10\r\n"));
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\na_total 1\n")) << answer;
  EXPECT_TRUE(absl::EndsWith(Ask(*server, "GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "a_total 2\n"));
}

TEST(MetricsServerTest, WhoComesBeforeItServesWaits) {
  auto server = MetricsServer::Listen({.listen = "127.0.0.1:0"});
  ASSERT_TRUE(server.ok()) << server.status();
  Client early((*server)->address());
  EXPECT_TRUE(early.connected());
  EXPECT_TRUE(early.Say("GET /metrics HTTP/1.1\r\n\r\n"));
  (*server)->Serve([] { return "a_total 1\n"; });
  EXPECT_THAT(early.Hear(), StartsWith("HTTP/1.1 200 "));
  // This destroys the first server. The new server is destroyed without a call of Serve().
  server = MetricsServer::Listen({.listen = "127.0.0.1:0"});
}

TEST(MetricsServerTest, HeadGivesTheSizeAlone) {
  const auto server = Serve();
  const std::string answer = Ask(*server, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 10\r\n"));
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\n")) << answer;
}

TEST(MetricsServerTest, LargePagesArriveWhole) {
  const std::string page(3 << 20, 'x');
  const auto server = Serve({}, [&] { return page; });
  EXPECT_TRUE(absl::EndsWith(Ask(*server, "GET /metrics HTTP/1.1\r\n\r\n"), "\r\n\r\n" + page));
}

TEST(MetricsServerTest, WhatIsNotThePageIsRefusedByName) {
  const auto server = Serve();
  EXPECT_THAT(Ask(*server, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(*server, "GET /metrics/ HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  const std::string put = Ask(*server, "PUT /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(put, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(put, HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_THAT(Ask(*server, "GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Ask(*server, "GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Ask(*server,
                  absl::StrCat("GET /metrics HTTP/1.1\r\nX: ", std::string(9000, 'x'), "\r\n\r\n")),
              StartsWith("HTTP/1.1 431 "));
}

TEST(MetricsServerTest, HostileBytesDoNoHarm) {
  const auto server = Serve({.time_limit = absl::Seconds(2)});
  for (const absl::string_view bytes :
       {absl::string_view("\0\0\0\0\r\n\r\n", 8), absl::string_view("GET\r\n\r\n"),
        absl::string_view("GET /metrics HTTP/9.9\r\n\r\n"),
        absl::string_view("GET /metrics HTTP/1.1\r\n: x\r\n\r\n"),
        absl::string_view("GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: "
                          "3\r\n\r\nabc"),
        absl::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")}) {
    EXPECT_THAT(Ask(*server, bytes), StartsWith("HTTP/1.1 4")) << bytes;
  }
  std::mt19937 random(7);
  const std::string words[] = {"GET ",
                               "/metrics",
                               " HTTP/1.1",
                               "\r\n",
                               "\r",
                               "\n",
                               ":",
                               "Host",
                               "0",
                               std::string(1, '\0'),
                               "\xff",
                               "Content-Length: ",
                               "99999999999999999999"};
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (uint32_t n = random() % 20; n > 0; --n) bytes += words[random() % std::size(words)];
    Client client(server->address());
    client.Say(bytes);
    client.SayNoMore();
    EXPECT_NE(client.Hear(), "TIMEOUT") << "round " << round;
  }
  EXPECT_THAT(Ask(*server, "GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST(MetricsServerTest, ConnectionsThatSayNothingKeepNobodyOut) {
  const auto server = Serve({.max_connections = 2, .time_limit = absl::Hours(1)});
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 4; ++i) {
    silent.push_back(std::make_unique<Client>(server->address()));
    ASSERT_TRUE(silent.back()->connected());
    silent.back()->Say("GET /metr");
  }
  EXPECT_THAT(Ask(*server, "GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(silent[i]->Hear(), "");
}

TEST(MetricsServerTest, AConnectionThatSaysNothingIsClosedInTime) {
  const auto server = Serve({.time_limit = absl::Milliseconds(200)});
  Client silent(server->address());
  silent.Say("GET /metr");
  EXPECT_EQ(silent.Hear(), "");
}

TEST(MetricsServerTest, AReaderThatDoesNotReadIsCut) {
  const std::string page(32 << 20, 'x');
  const auto server =
      Serve({.max_connections = 1, .time_limit = absl::Milliseconds(200)}, [&] { return page; });
  Client stuck(server->address());
  stuck.Say("GET /metrics HTTP/1.1\r\n\r\n");
  const std::string next = Ask(*server, "GET /nothing HTTP/1.1\r\n\r\n");
  EXPECT_THAT(next, StartsWith("HTTP/1.1 404 "));
}

TEST(MetricsServerTest, EndsWhileConnectionsAreOpen) {
  auto server = Serve();
  Client half(server->address()), idle(server->address());
  half.Say("GET /metrics HT");
  // When this request is answered, the server has also accepted the two connections made before it.
  Ask(*server, "GET /metrics HTTP/1.1\r\n\r\n");
  server = nullptr;
  EXPECT_EQ(half.Hear(), "");
  EXPECT_EQ(idle.Hear(), "");
}

TEST(MetricsServerTest, AnAddressThatCannotBeUsedIsNamed) {
  for (const char* bad : {"9100", ":9100", "host:", "host:65536", "::1:80", "http://x:1"}) {
    const auto server = MetricsServer::Listen({.listen = bad});
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(server.status().message(), HasSubstr(absl::StrCat("'", bad, "'")));
  }
  const auto first = Serve();
  const auto second = MetricsServer::Listen({.listen = first->address()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(),
              HasSubstr(absl::StrCat("can't listen on ", first->address(), ": port ")));
  const auto foreign = MetricsServer::Listen({.listen = "192.0.2.1:0"});
  EXPECT_EQ(foreign.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(foreign.status().message(), HasSubstr("192.0.2.1:0"));
}

TEST(MetricsServerTest, ListensOnIpv6Too) {
  const auto server = MetricsServer::Listen({.listen = "[::1]:0"});
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here: " << server.status();
  EXPECT_THAT((*server)->address(), StartsWith("[::1]:"));
}

}  // namespace
}  // namespace baton
