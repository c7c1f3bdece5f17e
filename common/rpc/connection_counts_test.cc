#include "common/rpc/connection_counts.h"

#include <sys/socket.h>
#include <unistd.h>

#include "common/rpc/connections.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using Verdict = ConnectionCounts::Verdict;

TEST(ConnectionCountsTest, LimitsOfAllAndOfOneAddress) {
  ConnectionCounts counts(3, 2);
  EXPECT_EQ(counts.Enter("ipv4:10.0.0.1"), Verdict::kTaken);
  EXPECT_EQ(counts.Enter("ipv4:10.0.0.1"), Verdict::kTaken);
  EXPECT_EQ(counts.Enter("ipv4:10.0.0.1"), Verdict::kTooManyOfOneAddress);
  EXPECT_EQ(counts.Enter("ipv4:10.0.0.2"), Verdict::kTaken);
  EXPECT_EQ(counts.Enter("ipv4:10.0.0.3"), Verdict::kTooMany);
  counts.Leave("ipv4:10.0.0.1");
  EXPECT_EQ(counts.Enter("ipv4:10.0.0.1"), Verdict::kTaken);
  counts.NoDescriptor();
  const ConnectionCounters counters = counts.counters();
  EXPECT_EQ(counters.open, 3);
  EXPECT_EQ(counters.accepted, 4u);
  EXPECT_EQ(counters.too_many, 1u);
  EXPECT_EQ(counters.of_one, 1u);
  EXPECT_EQ(counters.no_descriptor, 1u);
}

TEST(ConnectionCountsTest, ConnectionsOfGrpcShareThemWithOtherServers) {
  ConnectionCounts counts(2, 0);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  {
    Connections connections({.connections = 1}, &counts);
    EXPECT_EQ(counts.Enter("ipv4:10.0.0.1"), Verdict::kTaken);
    EXPECT_EQ(connections.Enter(1, "ipv4:10.0.0.1", 5000, ends[0]), Verdict::kTaken);
    EXPECT_EQ(counts.Enter("ipv4:10.0.0.1"), Verdict::kTooMany);
    EXPECT_EQ(connections.counters().open, 2);
    EXPECT_EQ(connections.counters().too_many, 1u);
    EXPECT_EQ(connections.open(), 1u);
  }
  EXPECT_EQ(counts.counters().open, 1);
  close(ends[1]);
}

}  // namespace
}  // namespace baton
