#include "kv_transfer/ucx_transport.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

#if !defined(__SANITIZE_THREAD__)
TEST(UcxTransportTest, AFallFromSharedMemoryToTcpIsReported) {
  setenv("UCX_MM_ERROR_HANDLING", "n", 1);
  auto reader = CreateUcxTransport({.tls = "auto"}).value();
  auto owner = CreateUcxTransport({.tls = "auto"}).value();
  unsetenv("UCX_MM_ERROR_HANDLING");
  const TransportMemory theirs = owner->Allocate(4096).value();
  const PeerId peer = reader->Connect(owner->address()).value();
  std::byte target[64];
  bool done = false;
  reader->Read({peer, theirs.key, 0, target, sizeof(target), [&](absl::Status status) {
                  EXPECT_TRUE(status.ok()) << status;
                  done = true;
                }});
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (!done && absl::Now() < end) {
    reader->Progress();
    owner->Progress();
  }
  ASSERT_TRUE(done);
  EXPECT_EQ(reader->Link(peer).value(), "tcp");
}

TEST(UcxTransportTest, TransportsThatAreNotThereAreAStatusInUcxsWords) {
  const auto transport = CreateUcxTransport({.tls = "warp"});
  ASSERT_FALSE(transport.ok());
  EXPECT_TRUE(absl::StrContains(transport.status().message(), "warp")) << transport.status();
  const auto nowhere = CreateUcxTransport({.tls = "tcp", .net_devices = "nowhere0"});
  EXPECT_FALSE(nowhere.ok());
}

TEST(UcxTransportTest, SharedMemoryOfAnotherUserIsNamedAsThat) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  auto owner = CreateUcxTransport({.tls = "shm"}).value();
  auto reader = CreateUcxTransport({.tls = "shm"}).value();
  ASSERT_EQ(seteuid(65534), 0);  // gives up the right to open what belongs to others, too
  const auto peer = reader->Connect(owner->address());
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_FALSE(peer.ok());
  EXPECT_TRUE(absl::StrContains(peer.status().message(),
                                "both workers to run as the same user: else give both "
                                "--kv-transports=tcp"))
      << peer.status();
}

// A socket that has the port on every address, or -1 where it is taken.
int TakePort(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

TEST(UcxTransportTest, ItListensAtAPortOfTheRangeThatIsFree) {
  // Four ports in a row that are free, of which the first and the last will be taken.
  int first = 20000 + getpid() % 1000 * 8, ends[2] = {-1, -1};
  for (;; first += 4) {
    ASSERT_LT(first, 65000);
    int taken[4];
    for (int i = 0; i < 4; ++i) taken[i] = TakePort(first + i);
    const bool all = *std::min_element(taken, taken + 4) >= 0;
    for (const int i : {1, 2}) close(taken[i]);
    ends[0] = taken[0];
    ends[1] = taken[3];
    if (all) break;
    for (const int end : ends) close(end);
  }
  const auto range = [](int from, int to) { return absl::StrCat(from, "-", to); };
  const auto one = CreateUcxTransport({.tls = "tcp", .ports = range(first, first + 3)});
  ASSERT_TRUE(one.ok()) << one.status();
  const auto two = CreateUcxTransport({.tls = "tcp", .ports = range(first, first + 3)});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(TakePort(first + 1), -1);
  EXPECT_EQ(TakePort(first + 2), -1);
  // Now there is none left, which UCX would look for without end.
  const auto three = CreateUcxTransport({.tls = "tcp", .ports = range(first, first + 3)});
  EXPECT_FALSE(three.ok());
  EXPECT_TRUE(absl::StrContains(
      three.status().message(),
      absl::StrCat("every port of --kv-ports ", range(first, first + 3), " is taken")))
      << three.status();
  for (const int end : ends) close(end);
}

TEST(UcxTransportTest, ARangeOfPortsIsTwoOfThemOrMore) {
  for (const char* ports : {"50100", "50100-50100", "50101-50100", "0-5", "a-b", "50100-70000"}) {
    const auto transport = CreateUcxTransport({.tls = "tcp", .ports = ports});
    ASSERT_FALSE(transport.ok()) << ports;
    EXPECT_TRUE(absl::StrContains(transport.status().message(),
                                  absl::StrCat("--kv-ports is '", ports, "'; it takes FIRST-LAST")))
        << transport.status();
  }
}

TEST(UcxTransportTest, OurSignalsStayOurs) {
  auto transport = CreateUcxTransport({.tls = "tcp"}).value();
  for (const int signal : {SIGILL, SIGBUS, SIGFPE}) {
    struct sigaction action {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
#if !defined(__SANITIZE_ADDRESS__)
    EXPECT_EQ(action.sa_handler, SIG_DFL) << signal;
#endif
  }
}
#endif

}  // namespace
}  // namespace baton
