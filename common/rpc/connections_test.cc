#include "common/rpc/connections.h"

#include <cerrno>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/listen_check.h"
#include "gtest/gtest.h"

// Tests of Connections alone. connections_over_grpc_test.cc has those with a server.
namespace baton {
namespace {

// A TCP connection on loopback. `server` is the end that a server has accepted.
struct TcpPair {
  TcpPair() {
    const int listener = OpenListeners("127.0.0.1:0").value()[0];
    sockaddr_in address{};
    socklen_t length = sizeof address;
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), length), 0);
    server = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
  }
  ~TcpPair() {
    close(client);
    close(server);
  }
  // Sends bytes from the client, and reads them at the server.
  void Move(size_t bytes) {
    char chunk[1024] = {};
    for (; bytes > 0; bytes -= sizeof chunk) {
      ASSERT_EQ(send(client, chunk, sizeof chunk, MSG_NOSIGNAL), sizeof chunk);
      ASSERT_EQ(recv(server, chunk, sizeof chunk, MSG_WAITALL), sizeof chunk);
    }
  }
  // Returns whether the connection has ended, for the server and the client.
  bool Ended() const {
    const auto ended = [](int fd) {
      char byte;
      const ssize_t read = recv(fd, &byte, 1, MSG_DONTWAIT);
      return read == 0 || (read < 0 && errno != EAGAIN);
    };
    return ended(server) && ended(client);
  }

  int client, server;
};

TEST(ConnectionsTest, AConnectionThatComesAfterTheEndIsEndedToo) {
  Connections connections({});
  int ends[2][2];
  char byte;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]), 0);
    EXPECT_EQ(connections.Enter(i + 1, "ipv4:10.0.0.1", 5000 + i, ends[i][0]),
              Connections::Verdict::kTaken);
    if (i == 0) {
      EXPECT_EQ(recv(ends[0][1], &byte, 1, MSG_DONTWAIT), -1);
      connections.EndAll();
    }
    EXPECT_EQ(recv(ends[i][1], &byte, 1, MSG_DONTWAIT), 0) << i;
    close(ends[i][1]);
  }
}

TEST(ConnectionsTest, CancelsAreCountedBySecond) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Connections connections({.cancels_per_second = 3});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, ends[0]);
  absl::Time now = absl::UnixEpoch();
  for (int second = 0; second < 5; ++second) {
    for (int i = 0; i < 3; ++i) connections.RpcCancelled(1, now);
    now += absl::Seconds(1);
  }
  connections.RpcCancelled(2, now);  // there is no such connection
  EXPECT_EQ(connections.counters().cut, 0u);
  for (int i = 0; i < 4; ++i) connections.RpcCancelled(1, now);
  EXPECT_EQ(connections.counters().cut, 1u);
  char byte;
  EXPECT_EQ(recv(ends[1], &byte, 1, MSG_DONTWAIT), 0);
  close(ends[1]);
}

// A connection may have the port of one that has ended while RPCs of that one are still open.
TEST(ConnectionsTest, RpcsOfAConnectionThatHasEndedDoNotCountForTheNextOneOfItsPeer) {
  Connections connections({.streams = 10, .cancels_per_second = 3});
  std::vector<int> clients;
  const auto enter = [&](uint64_t key) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    connections.Enter(key, "ipv4:10.0.0.1", 5000, ends[0]);
    clients.push_back(ends[1]);
  };
  enter(1);
  const int limit = connections.limits().cut_above();
  for (int i = 0; i < limit; ++i) EXPECT_EQ(connections.RpcBegins("ipv4:10.0.0.1:5000"), 1u);
  enter(2);
  connections.Leave(1);
  for (int i = 0; i < limit; ++i) connections.RpcEnds(1);
  for (int i = 0; i < 10; ++i) connections.RpcCancelled(1, absl::UnixEpoch());
  for (int i = 0; i < limit; ++i) EXPECT_EQ(connections.RpcBegins("ipv4:10.0.0.1:5000"), 2u);
  EXPECT_EQ(connections.counters().cut, 0u);
  connections.RpcBegins("ipv4:10.0.0.1:5000");
  EXPECT_EQ(connections.counters().cut, 1u);
  connections.Leave(2);
  EXPECT_EQ(connections.RpcBegins("ipv4:10.0.0.1:5000"), 0u);
  for (const int client : clients) close(client);
}

// gRPC cancels the RPCs of a connection that has ended.
TEST(ConnectionsTest, AClientThatGoesAwayWithManyRpcsIsNotTakenForARudeOne) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Connections connections({.cancels_per_second = 3});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, ends[0]);
  close(ends[1]);
  for (int i = 0; i < 10; ++i) {
    connections.RpcCancelled(1, absl::UnixEpoch());
  }
  EXPECT_EQ(connections.counters().cut, 0u);
}

TEST(ConnectionsTest, AConnectionWhoseMessageIsTooLongIsCutBeforeAllOfItIsThere) {
  TcpPair tcp;
  Connections connections({.unfinished_bytes = 1 << 20});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, fcntl(tcp.server, F_DUPFD_CLOEXEC, 0));
  const absl::Time now = absl::UnixEpoch();
  const auto cut = [&] {
    connections.CutIfUnfinished(now);
    return connections.counters().cut > 0;
  };
  tcp.Move(3 << 20);
  EXPECT_FALSE(cut()) << "no message is awaited";
  // One RPC's message does not come, and those of many others do.
  connections.MessageAwaited(1);
  for (int i = 0; i < 100; ++i) {
    const Connections::Awaited message = connections.MessageAwaited(1);
    tcp.Move(50 << 10);
    connections.MessageCame(message, 50 << 10);
    ASSERT_FALSE(cut()) << i;
  }
  tcp.Move(1000 << 10);
  EXPECT_FALSE(cut());
  tcp.Move(100 << 10);
  EXPECT_TRUE(cut());
  EXPECT_TRUE(tcp.Ended());
}

TEST(ConnectionsTest, WhatAConnectionSendsBesidesMessagesDoesNotCutIt) {
  TcpPair tcp;
  Connections connections({.unfinished_bytes = 1 << 20});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, fcntl(tcp.server, F_DUPFD_CLOEXEC, 0));
  absl::Time now = absl::UnixEpoch();
  Connections::Awaited message = connections.MessageAwaited(1);
  for (int second = 0; second < 60; ++second) {
    tcp.Move(32 << 10);
    connections.CutIfUnfinished(now);
    now += absl::Seconds(1);
  }
  EXPECT_EQ(connections.counters().cut, 0u);
  // A message that has ended without coming is no longer held.
  for (int i = 0; i < 10; ++i) {
    tcp.Move(900 << 10);
    connections.CutIfUnfinished(now);
    connections.MessageCame(message, 0);
    message = connections.MessageAwaited(1);
  }
  EXPECT_EQ(connections.counters().cut, 0u);
}

// When a connection is cut, the kernel may hold bytes that would begin many more RPCs. The server
// must not read them.
TEST(ConnectionsTest, NothingIsReadFromAConnectionThatWasCut) {
  TcpPair tcp;
  Connections connections({.cancels_per_second = 1});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, fcntl(tcp.server, F_DUPFD_CLOEXEC, 0));
  const std::string bytes(10000, 'x');
  ASSERT_EQ(send(tcp.client, bytes.data(), bytes.size(), MSG_NOSIGNAL), 10000);
  for (int i = 0; i < 2; ++i) connections.RpcCancelled(1, absl::UnixEpoch());
  EXPECT_EQ(connections.counters().cut, 1u);
  EXPECT_TRUE(tcp.Ended());
}

TEST(ConnectionsTest, AMessageThatComesSlowlyCountsToo) {
  TcpPair tcp;
  Connections connections({.unfinished_bytes = 2 << 20});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, fcntl(tcp.server, F_DUPFD_CLOEXEC, 0));
  absl::Time now = absl::UnixEpoch();
  connections.MessageAwaited(1);
  for (int second = 0; second < 60 && connections.counters().cut == 0; ++second) {
    tcp.Move(100 << 10);
    connections.CutIfUnfinished(now);
    now += absl::Seconds(1);
  }
  EXPECT_EQ(connections.counters().cut, 1u);
}

// On a proxy's connection, there may always be some message that is still coming. Messages that
// were broken off must not add up there.
TEST(ConnectionsTest, MessagesThatWereBrokenOffCountOnlyAsLongAsOlderOnesAreComing) {
  TcpPair tcp;
  Connections connections({.unfinished_bytes = 8 << 20});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, fcntl(tcp.server, F_DUPFD_CLOEXEC, 0));
  absl::Time now = absl::UnixEpoch();
  const auto second = [&] {
    tcp.Move(500 << 10);
    connections.CutIfUnfinished(now);
    now += absl::Seconds(1);
  };
  Connections::Awaited message = connections.MessageAwaited(1);
  for (int i = 0; i < 60; ++i) {
    const Connections::Awaited next = connections.MessageAwaited(1);
    second();
    ASSERT_EQ(connections.counters().cut, 0u) << i;
    connections.MessageCame(message, 0);
    message = next;
  }
  // While one and the same message is coming, the bytes of messages that are broken off might be
  // its own.
  for (int i = 0; i < 60 && connections.counters().cut == 0; ++i) {
    const Connections::Awaited other = connections.MessageAwaited(1);
    second();
    connections.MessageCame(other, 0);
  }
  EXPECT_EQ(connections.counters().cut, 1u);
}

// gRPC may have read much of a message before the server knows of its RPC.
TEST(ConnectionsTest, BytesThatCameBeforeTheirRpcWasKnownCount) {
  TcpPair tcp;
  Connections connections({.unfinished_bytes = 1 << 20});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, fcntl(tcp.server, F_DUPFD_CLOEXEC, 0));
  const absl::Time now = absl::UnixEpoch();
  const Connections::Awaited first = connections.MessageAwaited(1);
  tcp.Move(900 << 10);
  connections.CutIfUnfinished(now);
  connections.MessageAwaited(1);
  connections.MessageCame(first, 0);
  EXPECT_EQ(connections.UnfinishedBytes(1), 900u << 10);
  tcp.Move(200 << 10);
  connections.CutIfUnfinished(now);
  EXPECT_EQ(connections.counters().cut, 1u);
}

TEST(ConnectionsTest, OfAllConnectionsTheLargestOfTheLargestAddressIsCut) {
  TcpPair one, two, other;
  Connections connections({.unfinished_bytes = 0, .all_unfinished_bytes = 3 << 20});
  const auto enter = [&](uint64_t key, const std::string& address, int port, const TcpPair& tcp) {
    connections.Enter(key, address, port, fcntl(tcp.server, F_DUPFD_CLOEXEC, 0));
    return connections.MessageAwaited(key);
  };
  enter(1, "ipv4:10.0.0.1", 5000, one);
  const Connections::Awaited second = enter(2, "ipv4:10.0.0.1", 5001, two);
  enter(3, "ipv4:10.0.0.2", 5000, other);
  const absl::Time now = absl::UnixEpoch();
  two.Move(900 << 10);
  one.Move(800 << 10);
  other.Move(1300 << 10);
  connections.CutIfUnfinished(now);
  EXPECT_EQ(connections.counters().cut, 0u);
  one.Move(300 << 10);
  connections.CutIfUnfinished(now);
  EXPECT_EQ(connections.counters().cut, 1u);
  EXPECT_TRUE(one.Ended())
      << "it has less than the other address, but its own address has the most";
  // A connection that was cut no longer counts, nor does a message that has come.
  other.Move(700 << 10);
  connections.CutIfUnfinished(now);
  EXPECT_EQ(connections.counters().cut, 1u);
  connections.MessageCame(second, 900 << 10);
  other.Move(1000 << 10);
  connections.CutIfUnfinished(now);
  EXPECT_EQ(connections.counters().cut, 1u);
  other.Move(200 << 10);
  connections.CutIfUnfinished(now);
  EXPECT_EQ(connections.counters().cut, 2u);
  EXPECT_TRUE(other.Ended());
  EXPECT_FALSE(two.Ended());
}

TEST(ConnectionsTest, RpcsThatStayOpenCountAsThoseWithoutRequest) {
  TcpPair one, other;
  Connections connections({.all_without_request = 10});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, fcntl(one.server, F_DUPFD_CLOEXEC, 0));
  connections.Enter(2, "ipv4:10.0.0.2", 5000, fcntl(other.server, F_DUPFD_CLOEXEC, 0));
  for (int i = 0; i < 6; ++i) connections.StaysOpen(1);
  for (int i = 0; i < 100; ++i) {
    connections.StaysOpen(2);
    connections.NoLongerStaysOpen(2);
  }
  for (int i = 0; i < 4; ++i) connections.MessageAwaited(2);
  EXPECT_EQ(connections.counters().cut, 0u);
  connections.MessageAwaited(2);
  EXPECT_EQ(connections.counters().cut, 1u);
  EXPECT_TRUE(one.Ended());
  // After a connection was cut, its RPCs no longer count.
  for (int i = 0; i < 6; ++i) connections.NoLongerStaysOpen(1);
  for (int i = 0; i < 5; ++i) connections.StaysOpen(2);
  EXPECT_EQ(connections.counters().cut, 1u);
  connections.StaysOpen(2);
  EXPECT_EQ(connections.counters().cut, 2u);
  EXPECT_TRUE(other.Ended());
}

TEST(ConnectionsTest, RpcsWithoutRequestOfAllConnectionsAreLimited) {
  TcpPair one, two, other;
  Connections connections({.all_without_request = 10});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, fcntl(one.server, F_DUPFD_CLOEXEC, 0));
  connections.Enter(2, "ipv4:10.0.0.1", 5001, fcntl(two.server, F_DUPFD_CLOEXEC, 0));
  connections.Enter(3, "ipv4:10.0.0.2", 5000, fcntl(other.server, F_DUPFD_CLOEXEC, 0));
  const auto begin = [&](uint64_t key, int rpcs) {
    std::vector<Connections::Awaited> awaited;
    for (int i = 0; i < rpcs; ++i) awaited.push_back(connections.MessageAwaited(key));
    return awaited;
  };
  const std::vector<Connections::Awaited> first = begin(1, 3), second = begin(2, 3);
  for (int i = 0; i < 100; ++i) connections.MessageCame(connections.MessageAwaited(2), 100);
  begin(3, 4);
  EXPECT_EQ(connections.counters().cut, 0u);
  begin(3, 1);  // The first address has 6 of 11, on two connections.
  EXPECT_EQ(connections.counters().cut, 1u);
  EXPECT_TRUE(two.Ended()) << "of two with as many, it is the newer one";
  // The RPCs of a connection that was cut no longer count, and it does not matter that they end.
  for (const Connections::Awaited& each : second) connections.MessageCame(each, 0);
  begin(1, 2);
  EXPECT_EQ(connections.counters().cut, 1u);
  // The RPCs of a connection that has ended do not count either.
  connections.Leave(1);
  for (const Connections::Awaited& each : first) connections.MessageCame(each, 0);
  begin(3, 5);
  EXPECT_EQ(connections.counters().cut, 1u);
  begin(3, 1);
  EXPECT_EQ(connections.counters().cut, 2u);
  EXPECT_TRUE(other.Ended());
  EXPECT_FALSE(one.Ended());
}

}  // namespace
}  // namespace baton
