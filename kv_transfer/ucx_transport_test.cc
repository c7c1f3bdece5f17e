#include "kv_transfer/ucx_transport.h"

#include <csignal>
#include <cstdlib>

#include "absl/strings/match.h"
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
