#include "common/base/listen_check.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ListenCheckTest, SaysWhichOfTheReasonsItIsAndWhatToDo) {
  const auto of = [](int error) {
    return std::string(ListenError("10.0.0.9:80", error).message());
  };
  EXPECT_THAT(of(EACCES), AllOf(HasSubstr("can't listen on 10.0.0.9:80: port 80 needs a right"),
                                HasSubstr("take a port from ")));
  EXPECT_THAT(of(EADDRINUSE), AllOf(HasSubstr("port 80 is taken by another program"),
                                    HasSubstr("stop it, or take another port")));
  EXPECT_THAT(of(EADDRNOTAVAIL),
              AllOf(HasSubstr("10.0.0.9 is not an address of this machine; take one that")));
  EXPECT_THAT(of(ENETDOWN), HasSubstr("Network is down"));
}

TEST(ListenCheckTest, TriesTheAddressItself) {
  EXPECT_TRUE(CheckListen("127.0.0.1:0").ok()) << CheckListen("127.0.0.1:0");
  EXPECT_TRUE(CheckListen("0.0.0.0:0").ok());
  EXPECT_EQ(CheckListen("127.0.0.1").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(CheckListen("192.0.2.1:0").message()),
              HasSubstr("192.0.2.1 is not an address of this machine"));
  EXPECT_THAT(std::string(CheckListen("no.such.name.invalid:0").message()),
              HasSubstr("the name no.such.name.invalid can't be resolved here"));
}

TEST(ListenCheckTest, FindsATakenPort) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const std::string taken = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  EXPECT_THAT(std::string(CheckListen(taken).message()), HasSubstr("is taken by another program"));
  close(fd);
  EXPECT_TRUE(CheckListen(taken).ok());
}

// Returns whether a client can connect to a port of an address of this machine.
bool Connects(const std::string& address, int port) {
  sockaddr_storage to{};
  socklen_t bytes = sizeof(sockaddr_in);
  auto* const ipv4 = reinterpret_cast<sockaddr_in*>(&to);
  auto* const ipv6 = reinterpret_cast<sockaddr_in6*>(&to);
  if (inet_pton(AF_INET, address.c_str(), &ipv4->sin_addr) == 1) {
    to.ss_family = AF_INET;
    ipv4->sin_port = htons(static_cast<uint16_t>(port));
  } else {
    to.ss_family = AF_INET6;
    bytes = sizeof(sockaddr_in6);
    inet_pton(AF_INET6, address.c_str(), &ipv6->sin6_addr);
    ipv6->sin6_port = htons(static_cast<uint16_t>(port));
  }
  const int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&to), bytes) == 0;
  close(fd);
  return connected;
}

TEST(OpenListenersTest, TakesConnectionsOfBothFamiliesWhereItListensOnAllAddresses) {
  const bool ipv6 = CheckListen("[::1]:0").ok();
  for (const char* all : {"0.0.0.0:0", "[::]:0"}) {
    const auto listeners = OpenListeners(all);
    if (!listeners.ok()) continue;  // [::] on a machine without IPv6
    const int port = PortOfSocket(listeners->front());
    EXPECT_GT(port, 0);
    EXPECT_TRUE(Connects("127.0.0.1", port)) << all;
    if (ipv6) {
      EXPECT_TRUE(Connects("::1", port)) << all;
    }
    for (const int fd : *listeners) close(fd);
  }
}

TEST(OpenListenersTest, ANameListensOnOnePortAtAllItsAddresses) {
  const auto listeners = OpenListeners("localhost:0");
  ASSERT_TRUE(listeners.ok()) << listeners.status();
  for (const int fd : *listeners) EXPECT_EQ(PortOfSocket(fd), PortOfSocket(listeners->front()));
  const std::string taken = absl::StrCat("localhost:", PortOfSocket(listeners->front()));
  EXPECT_THAT(std::string(OpenListeners(taken).status().message()),
              HasSubstr("is taken by another program"));
  for (const int fd : *listeners) close(fd);
  EXPECT_EQ(OpenListeners("localhost").status().code(), absl::StatusCode::kInvalidArgument);
}

// Returns true if this system lets every process bind port 80.
bool Port80IsOpenToAll() {
  std::ifstream file("/proc/sys/net/ipv4/ip_unprivileged_port_start");
  int start = 1024;
  file >> start;
  return start <= 80;
}

// The check runs in a child process, which first drops its root rights.
TEST(ListenCheckTest, APortThatNeedsRightsIsNotToldAsTaken) {
  EXPECT_EXIT(
      {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) std::exit(1);
        const absl::Status status = CheckListen("127.0.0.1:80");
        std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
        std::exit(0);
      },
      testing::ExitedWithCode(0),
      Port80IsOpenToAll()
          ? ""
          : "can't listen on 127.0.0.1:80: port 80 needs a right that this process lacks");
}

}  // namespace
}  // namespace baton
