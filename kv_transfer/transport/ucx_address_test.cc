#include "kv_transfer/transport/ucx_address.h"

#include <set>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "gtest/gtest.h"

namespace baton {
namespace {

SocketAddress At(const char* host, int port) {
  sockaddr_storage storage{};
  if (inet_pton(AF_INET, host, &reinterpret_cast<sockaddr_in*>(&storage)->sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else {
    inet_pton(AF_INET6, host, &reinterpret_cast<sockaddr_in6*>(&storage)->sin6_addr);
    storage.ss_family = AF_INET6;
  }
  return SocketAddress::From(storage)->WithPort(port);
}

UcxAddress Worker(std::initializer_list<const char*> hosts) {
  UcxAddress address;
  address.worker = "the worker's bytes";
  address.boot_id = "one machine";
  address.ipc_namespace = 1;
  address.process_namespace = 2;
  address.network_namespace = 3;
  address.greeted_as = 4;
  for (const char* host : hosts) address.tcp.push_back({At(host, 50100), At(host, 50101)});
  return address;
}

TEST(UcxAddressTest, ComesOutAsItWentIn) {
  UcxAddress address = Worker({"192.168.10.1", "fd00::1"});
  address.posix = true;
  const UcxAddress other = UnpackUcxAddress(PackUcxAddress(address)).value();
  EXPECT_EQ(other.worker, address.worker);
  EXPECT_EQ(other.boot_id, address.boot_id);
  EXPECT_EQ(other.ipc_namespace, 1);
  EXPECT_EQ(other.process_namespace, 2);
  EXPECT_EQ(other.network_namespace, 3);
  EXPECT_EQ(other.greeted_as, 4);
  EXPECT_FALSE(other.sysv);
  EXPECT_TRUE(other.posix);
  ASSERT_EQ(other.tcp.size(), 2);
  EXPECT_EQ(other.tcp[0].kv.ToString(), "192.168.10.1:50100");
  EXPECT_EQ(other.tcp[1].greeter.ToString(), "[fd00::1]:50101");
}

TEST(UcxAddressTest, OtherBytesAreRefused) {
  const std::string bytes = PackUcxAddress(Worker({"192.168.10.1"}));
  for (size_t kept = 0; kept < bytes.size(); ++kept) {
    EXPECT_FALSE(UnpackUcxAddress(bytes.substr(0, kept)).ok()) << kept;
  }
  EXPECT_FALSE(UnpackUcxAddress(bytes + "x").ok());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string other = bytes;
    other[i] ^= 1;
    EXPECT_FALSE(UnpackUcxAddress(other).ok()) << i;
  }
}

TEST(TcpWaysTest, BetweenMachinesEveryInterfaceLeadsToEveryOtherOfItsKind) {
  const UcxAddress own = Worker({"192.168.10.1", "fd00::1", "127.0.0.1"});
  UcxAddress peer = Worker({"10.0.0.2", "192.168.10.2", "127.0.0.1"});
  peer.boot_id = "another machine";
  const std::vector<TcpWay> ways = TcpWays(own, peer);
  ASSERT_EQ(ways.size(), 2);
  for (const TcpWay& way : ways) EXPECT_EQ(way.own_kv.ToString(), "192.168.10.1:50100");
  EXPECT_EQ(ways[0].peer.kv.ToString(), "10.0.0.2:50100");
  EXPECT_EQ(ways[1].peer.kv.ToString(), "192.168.10.2:50100");
}

TEST(TcpWaysTest, LoopbackLeadsOnlyToTheSameNetwork) {
  const UcxAddress own = Worker({"127.0.0.1"});
  UcxAddress peer = own;
  EXPECT_EQ(TcpWays(own, peer).size(), 1);
  peer.network_namespace = 30;
  EXPECT_TRUE(TcpWays(own, peer).empty());
}

TEST(TcpWaysTest, ThereAreNoneBetweenWorkersThatShareMemory) {
  UcxAddress own = Worker({"192.168.10.1"}), peer = Worker({"192.168.10.2"});
  EXPECT_EQ(TcpWays(own, peer).size(), 1);
  own.sysv = own.posix = peer.posix = true;
  EXPECT_TRUE(TcpWays(own, peer).empty());
  peer.process_namespace = 20;  // Only posix needs the same process namespace.
  EXPECT_EQ(TcpWays(own, peer).size(), 1);
  peer.sysv = true;
  EXPECT_TRUE(TcpWays(own, peer).empty());
  peer.ipc_namespace = 10;
  EXPECT_EQ(TcpWays(own, peer).size(), 1);
}

TEST(TcpWaysTest, ThereAreNotManyHoweverManyInterfacesThereAre) {
  const UcxAddress own = Worker({"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"});
  EXPECT_EQ(TcpWays(own, own).size(), 16);
}

// Returns a worker with `count` interfaces: 10.0.0.1 and following.
UcxAddress WorkerOfManyInterfaces(int count) {
  UcxAddress address = Worker({});
  for (int i = 1; i <= count; ++i) {
    const std::string host = "10.0.0." + std::to_string(i);
    address.tcp.push_back({At(host.c_str(), 50100), At(host.c_str(), 50101)});
  }
  return address;
}

TEST(TcpWaysTest, TheFirstOnesHaveSeveralInterfacesOfEachSide) {
  std::set<std::string> here, there;
  for (const TcpWay& way : TcpWays(WorkerOfManyInterfaces(20), WorkerOfManyInterfaces(20))) {
    here.insert(way.own_kv.ToString());
    there.insert(way.peer.kv.ToString());
  }
  EXPECT_EQ(here.size(), 5);
  EXPECT_EQ(there.size(), 6);
  EXPECT_EQ(TcpWays(WorkerOfManyInterfaces(2), WorkerOfManyInterfaces(7)).size(), 14);
  EXPECT_EQ(TcpWays(WorkerOfManyInterfaces(7), WorkerOfManyInterfaces(2)).size(), 14);
  EXPECT_TRUE(TcpWays(Worker({}), WorkerOfManyInterfaces(1)).empty());
  EXPECT_TRUE(TcpWays(Worker({}), Worker({})).empty());
}

TEST(UcxAddressTest, OneOfManyInterfacesIsTaken) {
  const auto other = UnpackUcxAddress(PackUcxAddress(WorkerOfManyInterfaces(100)));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->tcp.size(), 64);
}

}  // namespace
}  // namespace baton
