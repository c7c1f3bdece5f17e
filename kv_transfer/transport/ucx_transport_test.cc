#include "kv_transfer/transport/ucx_transport.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <ucs/sys/sock.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kv_transfer/transport/ended_reads.h"
#include "kv_transfer/transport/ucx_address.h"
#include "kv_transfer/transport/ucx_connection.h"
#include "kv_transfer/transport/ucx_failures.h"
#include "kv_transfer/transport/ucx_own.h"
#include "kv_transfer/transport/ucx_worker.h"

#if UCP_API_VERSION < UCP_VERSION(1, 14)
namespace baton {
namespace {

// If true, the next request to connect that UCX sends ends as if the peer had dropped the
// connection at that moment. From then on this process can't open descriptors.
bool drops_next_request = false;

}  // namespace
}  // namespace baton

// UCX calls this function instead of its own.
extern "C" ucs_status_t ucs_socket_send(int fd, const void* data, size_t length) {
  static const auto ucx = baton::UcxsOwn(&ucs_socket_send, "ucs_socket_send");
  if (!std::exchange(baton::drops_next_request, false)) return ucx(fd, data, length);
  rlimit none;
  getrlimit(RLIMIT_NOFILE, &none);
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  return UCS_ERR_CONNECTION_RESET;
}
#endif

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

// Returns a socket bound to the port on every address, or -1 if the port is taken.
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
  // Finds seven free ports in a row, and keeps the first and the last of them occupied. Two workers
  // later use four of the other five, so that one is left.
  constexpr int kPorts = 7;
  int first = 20000 + getpid() % 1000 * 8, ends[2] = {-1, -1};
  for (;; first += kPorts) {
    ASSERT_LT(first, 65000);
    int taken[kPorts];
    for (int i = 0; i < kPorts; ++i) taken[i] = TakePort(first + i);
    const bool all = *std::min_element(taken, taken + kPorts) >= 0;
    for (int i = 1; i < kPorts - 1; ++i) close(taken[i]);
    ends[0] = taken[0];
    ends[1] = taken[kPorts - 1];
    if (all) break;
    for (const int end : ends) close(end);
  }
  const int last = first + kPorts - 1;
  const auto range = [](int from, int to) { return absl::StrCat(from, "-", to); };
  const auto one = CreateUcxTransport({.tls = "tcp", .ports = range(first, last)});
  ASSERT_TRUE(one.ok()) << one.status();
  const auto two = CreateUcxTransport({.tls = "tcp", .ports = range(first, last)});
  ASSERT_TRUE(two.ok()) << two.status();
  int free = 0;
  for (int port = first + 1; port < last; ++port) {
    if (const int fd = TakePort(port); fd >= 0) {
      ++free;
      close(fd);
    }
  }
  EXPECT_EQ(free, 1);
  // UCX itself would search without end if its whole range of ports is taken. So CreateUcxTransport
  // must find this out first.
  const auto three = CreateUcxTransport({.tls = "tcp", .ports = range(first, last)});
  EXPECT_FALSE(three.ok());
  EXPECT_TRUE(absl::StrContains(
      three.status().message(),
      absl::StrCat("fewer than two ports of --kv-ports ", range(first, last), " are free")))
      << three.status();
  const auto needs_none = CreateUcxTransport({.tls = "shm", .ports = range(first, last)});
  EXPECT_TRUE(needs_none.ok()) << needs_none.status();
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

// Returns a port of this machine's loopback at which nothing listens: this process keeps it bound.
int ClosedPort() {
  static const int taken = TakePort(0);
  return SocketAddress::Of(taken)->port();
}

// Connects `reader` to a peer that claims to be at `address`. Expects that a read from it and a
// note to it end with Unavailable, with `words` in the message.
void ExpectBothEndWith(absl::string_view words, const std::string& address, Transport* reader,
                       Transport* owner) {
  const TransportMemory theirs = owner->Allocate(4096).value();
  const PeerId peer = reader->Connect(address).value();
  std::byte target[64];
  absl::Status read = absl::UnknownError("not done");
  reader->Read({peer, theirs.key, 0, target, sizeof(target),
                [&](absl::Status status) { read = std::move(status); }});
  EXPECT_TRUE(reader->SendNote(peer, "waits").ok());
  EXPECT_FALSE(reader->Link(peer).ok());
  EXPECT_TRUE(reader->Reachable(peer).ok());
  for (const absl::Time end = absl::Now() + absl::Seconds(20);
       absl::IsUnknown(read) && absl::Now() < end;) {
    reader->Progress();
    owner->Progress();
  }
  EXPECT_EQ(read.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(read.message(), words)) << read;
  EXPECT_EQ(reader->SendNote(peer, "too late"), read);
  EXPECT_EQ(reader->Reachable(peer), read);
  absl::Status second;
  reader->Read({peer, theirs.key, 0, target, sizeof(target),
                [&](absl::Status status) { second = std::move(status); }});
  reader->Progress();
  EXPECT_EQ(second, read);
  reader->Disconnect(peer);
}

TEST(UcxTransportTest, APeerWhosePortIsClosedIsNotConnected) {
  auto reader = CreateUcxTransport({.tls = "tcp"}).value();
  auto owner = CreateUcxTransport({.tls = "tcp"}).value();
  UcxAddress address = UnpackUcxAddress(owner->address()).value();
  ASSERT_EQ(address.tcp.size(), 1);
  address.tcp[0].kv = address.tcp[0].kv.WithPort(ClosedPort());
  ExpectBothEndWith(absl::StrCat("can't connect to ", address.tcp[0].kv.ToString(),
                                 ", where the other worker takes KV: Connection refused"),
                    PackUcxAddress(address), reader.get(), owner.get());
  // The failure is not final: with the right address, at which the owner does listen, the same two
  // transports connect.
  const PeerId peer = reader->Connect(owner->address()).value();
  std::string got;
  owner->SetNoteHandler([&](absl::string_view note) { got = std::string(note); });
  EXPECT_TRUE(reader->SendNote(peer, "first").ok());
  for (const absl::Time end = absl::Now() + absl::Seconds(20); got.empty() && absl::Now() < end;) {
    reader->Progress();
    owner->Progress();
  }
  EXPECT_EQ(got, "first");
}

TEST(UcxTransportTest, APeerThatTellsOfOneThatHasEndedIsNotConnected) {
  auto reader = CreateUcxTransport({.tls = "tcp"}).value();
  auto owner = CreateUcxTransport({.tls = "tcp"}).value();
  UcxAddress address = UnpackUcxAddress(owner->address()).value();
  ++address.greeted_as;
  ExpectBothEndWith("another worker listens at", PackUcxAddress(address), reader.get(),
                    owner.get());
}

TEST(UcxTransportTest, ReadsOfAPeerThatIsGreetedEndWithTheConnection) {
  auto reader = CreateUcxTransport({.tls = "tcp"}).value();
  auto owner = CreateUcxTransport({.tls = "tcp"}).value();
  const TransportMemory theirs = owner->Allocate(4096).value();
  const PeerId peer = reader->Connect(owner->address()).value();
  std::byte target[64];
  absl::Status read = absl::UnknownError("not done");
  reader->Read({peer, theirs.key, 0, target, sizeof(target),
                [&](absl::Status status) { read = std::move(status); }});
  reader->Disconnect(peer);
  EXPECT_EQ(read.code(), absl::StatusCode::kUnavailable);
}

// A socket connected to the port at which the transport's UCX listens.
int ConnectToKvPort(const Transport& transport) {
  const SocketAddress address = UnpackUcxAddress(transport.address())->tcp.at(0).kv;
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, address.data(), address.size()), 0) << address.ToString();
  return fd;
}

template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

const std::string kUcxMagic = BytesOf(uint64_t{0xCAFEBABE12345678});

// While an object of this class lives, this process can't open another descriptor, unless it closes
// one.
class NoFreeDescriptors {
 public:
  NoFreeDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    int last = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      last = std::max(last, std::atoi(entry.path().filename().c_str()));
    }
    // A new descriptor gets the lowest free number, so this fills the gaps.
    int number = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (; number < last; number = open("/dev/null", O_RDONLY | O_CLOEXEC)) {
      fillers_.push_back(number);
    }
    close(number);
    rlimit in_use = before_;
    in_use.rlim_cur = static_cast<rlim_t>(number);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &in_use), 0);
  }
  ~NoFreeDescriptors() {
    setrlimit(RLIMIT_NOFILE, &before_);
    for (const int filler : fillers_) close(filler);
  }

 private:
  rlimit before_;
  std::vector<int> fillers_;
};

// A message of UCX's TCP transport.
std::string UcxMessage(uint8_t kind, absl::string_view rest) {
  return absl::StrCat(BytesOf(kind), BytesOf(static_cast<uint32_t>(rest.size())), rest);
}

// The answer to a request to connect.
const std::string kUcxConnected = UcxMessage(32, BytesOf(uint32_t{2}));

// The bytes with which UCX 1.13 connects. The sender claims to listen at `from`.
std::string UcxOpening(const SocketAddress& from) {
  const std::string request =
      absl::StrCat(BytesOf(uint32_t{1}), BytesOf(uint8_t{0}), BytesOf(uint64_t{0}),
                   absl::string_view(reinterpret_cast<const char*>(from.data()), from.size()));
  return absl::StrCat(kUcxMagic, UcxMessage(32, request));
}

void Progress(Transport* one, Transport* other) {
  one->Progress();
  other->Progress();
}

absl::Status ReadOnce(Transport* reader, PeerId peer, Transport* owner,
                      const TransportMemory& theirs) {
  std::byte target[64];
  absl::Status read = absl::UnknownError("not done");
  reader->Read({peer, theirs.key, 0, target, sizeof(target),
                [&](absl::Status status) { read = std::move(status); }});
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (absl::IsUnknown(read) && absl::Now() < end) Progress(reader, owner);
  return read;
}

TEST(UcxTransportTest, GarbageAtTheKvPortIsDropped) {
  constexpr uint32_t kSeed = 1;
  std::mt19937 random(kSeed);
  SCOPED_TRACE(kSeed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  const auto noise = [&](size_t bytes) {
    std::string all(bytes, '\0');
    for (char& one : all) one = static_cast<char>(random());
    return all;
  };
  auto reader = CreateUcxTransport({.tls = "tcp"}).value();
  auto owner = CreateUcxTransport({.tls = "tcp"}).value();
  const TransportMemory theirs = owner->Allocate(4096).value();
  const PeerId peer = reader->Connect(owner->address()).value();
  ASSERT_TRUE(ReadOnce(reader.get(), peer, owner.get(), theirs).ok());
  const std::string opening =
      UcxOpening(UnpackUcxAddress(reader->address())->tcp.at(0).kv.WithPort(ClosedPort()));
  const auto garbage = [&](int kind) -> std::string {
    std::string wrong = opening;
    switch (kind % 6) {
      case 0:
        return absl::StrCat(kUcxMagic, noise(1 + below(300)));
      case 1:
        return noise(1 + below(300));
      case 2:
        return opening.substr(0, 1 + below(opening.size() - 1));
      case 3:
        return absl::StrCat(kUcxMagic, UcxMessage(random(), noise(below(100))));
      case 4:
        return absl::StrCat(kUcxMagic, UcxMessage(32, noise(29)));
      default:
        wrong[below(18)] ^= 1 + below(255);
        return wrong;
    }
  };
  constexpr int kRounds = 60, kAtOnce = 40;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int> sockets;
    for (int i = 0; i < kAtOnce; ++i) {
      sockets.push_back(ConnectToKvPort(i % 4 == 0 ? *reader : *owner));
      const std::string bytes = garbage(round * kAtOnce + i);
      EXPECT_EQ(send(sockets.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
    }
    Progress(reader.get(), owner.get());
    for (const int fd : sockets) {
      char byte;
      EXPECT_LE(recv(fd, &byte, 1, 0), 0) << "the other side answers instead of closing";
      close(fd);
    }
    Progress(reader.get(), owner.get());
  }
  EXPECT_TRUE(ReadOnce(reader.get(), peer, owner.get(), theirs).ok());
  auto late = CreateUcxTransport({.tls = "tcp"}).value();
  const PeerId after = late->Connect(owner->address()).value();
  EXPECT_TRUE(ReadOnce(late.get(), after, owner.get(), theirs).ok());
}

void Send(int fd, const std::string& bytes) {
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
}

// When UCX could not take a connection, it closed its port for good.
TEST(UcxTransportTest, TheKvPortStaysOpenWhenNoDescriptorsAreLeft) {
  auto reader = CreateUcxTransport({.tls = "tcp"}).value();
  auto owner = CreateUcxTransport({.tls = "tcp"}).value();
  const TransportMemory theirs = owner->Allocate(4096).value();
  const PeerId peer = reader->Connect(owner->address()).value();
  ASSERT_TRUE(ReadOnce(reader.get(), peer, owner.get(), theirs).ok());
  const SocketAddress kv = UnpackUcxAddress(owner->address())->tcp.at(0).kv;
  const std::string opening = UcxOpening(UnpackUcxAddress(reader->address())->tcp.at(0).kv);
  constexpr int kRounds = 2, kAtOnce = 40;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int> sockets(kAtOnce);
    for (int& fd : sockets) fd = socket(kv.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    {
      const NoFreeDescriptors none;
      for (const int fd : sockets) {
        ASSERT_EQ(connect(fd, kv.data(), kv.size()), 0);
        Send(fd, opening);
      }
      for (const int fd : sockets) {
        pollfd closed = {fd, POLLIN, 0};
        EXPECT_EQ(poll(&closed, 1, 20'000), 1) << "the connection is not closed";
      }
    }
    for (const int fd : sockets) close(fd);
  }
  EXPECT_TRUE(ReadOnce(reader.get(), peer, owner.get(), theirs).ok());
  auto late = CreateUcxTransport({.tls = "tcp"}).value();
  const PeerId after = late->Connect(owner->address()).value();
  const absl::Status read = ReadOnce(late.get(), after, owner.get(), theirs);
  EXPECT_TRUE(read.ok()) << read;
}

// Ends a connection as the kernel does for a process that was killed.
void Reset(int fd) {
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  close(fd);
}

// The address of the UcxWorker, changed so that it listens at another port.
std::string WithPort(const UcxAddress& address, int port) {
  // Ports are in the network's order.
  const auto bytes = [](int number) { return BytesOf(htons(static_cast<uint16_t>(number))); };
  const std::string changed =
      absl::StrReplaceAll(address.worker, {{bytes(address.tcp.at(0).kv.port()), bytes(port)}});
  EXPECT_NE(changed, address.worker);
  return changed;
}

// A wire-up message of UCX 1.13: its type, an error mode, a number, the ids of both endpoints, and
// the address of the sender. `receiver` is the id of the receiver's endpoint. `sender` is the
// address of a UcxWorker; the one in a message has one byte more, in front of the last three bytes.
std::string UcxWireUp(uint8_t type, uint64_t receiver, std::string sender) {
  sender.insert(sender.size() - 3, 1, '\0');
  return UcxMessage(1, absl::StrCat(BytesOf(type), BytesOf(uint8_t{1}), BytesOf(uint16_t{0}),
                                    BytesOf(uint64_t{3}), BytesOf(receiver), sender));
}
constexpr uint8_t kUcxRequest = 1, kUcxReply = 2, kUcxCheck = 4;
constexpr uint64_t kUnknownYet = 0, kUnknownEndpoint = 0xFFFFF1;

// A transport, and a peer of it that is played by the test, which writes the messages of UCX 1.13.
class Ucx113Test : public ::testing::Test {
 protected:
  void SetUp() override {
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version(&major, &minor, &release);
    if (major != 1 || minor != 13) {
      GTEST_SKIP() << "writes messages of UCX 1.13; this one is " << major << "." << minor;
    }
  }

  // Connects to the KV port of the owner. The peer's UCX claims to listen where that of `peer_`
  // does.
  int Connect() {
    const int fd = ConnectToKvPort(*owner_);
    Send(fd, UcxOpening(address_.tcp.at(0).kv));
    AwaitBytes(fd);
    return fd;
  }
  // Waits until the owner has sent something, and returns it.
  std::string AwaitBytes(int fd) {
    char bytes[4096];
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (absl::Now() < end) {
      const ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got > 0) return std::string(bytes, static_cast<size_t>(got));
      owner_->Progress();
    }
    ADD_FAILURE() << "nothing comes";
    return "";
  }
  // Waits for the reply to a request to connect. Returns the id of the owner's endpoint.
  uint64_t AwaitReply(int fd) {
    constexpr size_t kHeader = 5;  // Kind of the message, and length of the rest.
    for (std::string received; !HasFailure();) {
      received += AwaitBytes(fd);
      for (size_t at = 0; at + kHeader + 12 <= received.size();) {
        const char* const rest = received.data() + at + kHeader;
        uint64_t endpoint = 0;
        std::memcpy(&endpoint, rest + 4, sizeof(endpoint));
        if (received[at] == 1 && *rest == kUcxReply) return endpoint;
        uint32_t length = 0;
        std::memcpy(&length, received.data() + at + 1, sizeof(length));
        at += kHeader + length;
      }
    }
    return 0;
  }
  void ExpectThatTheOwnerServes() {
    auto reader = CreateUcxTransport({.tls = "tcp"}).value();
    const TransportMemory theirs = owner_->Allocate(4096).value();
    const PeerId peer = reader->Connect(owner_->address()).value();
    EXPECT_TRUE(ReadOnce(reader.get(), peer, owner_.get(), theirs).ok());
  }

  const std::unique_ptr<Transport> owner_ = CreateUcxTransport({.tls = "tcp"}).value();
  // Only its address is used.
  const std::unique_ptr<Transport> peer_ = CreateUcxTransport({.tls = "tcp"}).value();
  const UcxAddress address_ = UnpackUcxAddress(peer_->address()).value();
};

// UCX 1.13 ended with SIGSEGV when it read several checks of an endpoint that it had closed, over
// a connection that it could use to answer them.
TEST_F(Ucx113Test, ChecksOfAClosedEndpointMayPileUp) {
  const int fd = Connect();
  const std::string check = UcxWireUp(kUcxCheck, kUnknownEndpoint, address_.worker);
  Send(fd, absl::StrCat(check, check));
  // The owner answers over the same connection, at first with a request to connect.
  AwaitBytes(fd);
  close(fd);
  ExpectThatTheOwnerServes();
}

// UCX 1.13 ended with SIGABRT if the reply to a peer's request still waited for a connection to the
// peer when this connection failed.
TEST_F(Ucx113Test, AReplyToAPeerThatIsGoneIsDropped) {
  // The peer listens at a port that is closed by now. The owner can't reply over the connection of
  // the request, because that one names another port.
  const int fd = Connect();
  Send(fd, UcxWireUp(kUcxRequest, kUnknownYet, WithPort(address_, ClosedPort())));
  ExpectThatTheOwnerServes();
  close(fd);
}

// UCX 1.13 ended with SIGABRT if a connection failed while UCX sent the request that had waited for
// it.
TEST_F(Ucx113Test, ARequestMayMeetAPeerThatGoesAway) {
  const auto worker = UcxWorker::Create({.tls = "tcp"}, [](absl::string_view) {}).value();
  // The peer takes connections at a socket of this test.
  const int listener = TakePort(0);
  ASSERT_EQ(listen(listener, 1), 0);
  EndedReads ended;
  const auto connection =
      UcxConnection::Create(WithPort(address_, SocketAddress::Of(listener)->port()), worker.get(),
                            &ended)
          .value();
  EXPECT_TRUE(connection->SendNote("waits for the connection").ok());
  const int fd = accept(listener, nullptr, nullptr);
  char opening[64];
  while (recv(fd, opening, sizeof(opening), MSG_DONTWAIT) <= 0) ProgressUcx(worker->handle());
  // The answer arrives together with the end of the connection.
  Send(fd, kUcxConnected);
  Reset(fd);
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (connection->failure().ok() && absl::Now() < end) ProgressUcx(worker->handle());
  EXPECT_EQ(connection->failure().code(), absl::StatusCode::kUnavailable);
  while (!connection->gone()) {
    connection->Close();
    ProgressUcx(worker->handle());
  }
  close(listener);
}

// UCX 1.13 ended with SIGABRT if the connection to a reader failed while UCX sent the data of a
// read in several messages.
TEST_F(Ucx113Test, AReaderMayGoAwayWhileItsDataIsSent) {
  const int fd = Connect();
  // Before it replies, the owner will ask whether it may send over this connection too. The answer
  // to that is sent together with the request.
  Send(fd, absl::StrCat(UcxWireUp(kUcxRequest, kUnknownYet, address_.worker), kUcxConnected));
  const uint64_t endpoint = AwaitReply(fd);
  // A read has the address and number of bytes, the owner's endpoint, the number of the read, and a
  // type of memory.
  const TransportMemory memory = owner_->Allocate(size_t{1} << 20).value();
  Send(fd,
       UcxMessage(18, absl::StrCat(BytesOf(memory.data), BytesOf(uint64_t{1} << 20),
                                   BytesOf(endpoint), BytesOf(uint64_t{5}), BytesOf(int32_t{0}))));
  Reset(fd);
  ExpectThatTheOwnerServes();
}

#if UCP_API_VERSION < UCP_VERSION(1, 14)
// UCX 1.13 forgot a connection that the peer dropped while UCX sent its request, if it then could
// not open another socket. Messages for the peer waited for ever.
TEST_F(Ucx113Test, ARequestMayBeDroppedWhenNoDescriptorsAreLeft) {
  const auto worker = UcxWorker::Create({.tls = "tcp"}, [](absl::string_view) {}).value();
  const int listener = TakePort(0);
  ASSERT_EQ(listen(listener, 1), 0);
  EndedReads ended;
  const auto connection =
      UcxConnection::Create(WithPort(address_, SocketAddress::Of(listener)->port()), worker.get(),
                            &ended)
          .value();
  EXPECT_TRUE(connection->SendNote("waits for the connection").ok());
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  drops_next_request = true;
  while (drops_next_request) ProgressUcx(worker->handle());
  setrlimit(RLIMIT_NOFILE, &before);
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (connection->failure().ok() && absl::Now() < end) ProgressUcx(worker->handle());
  EXPECT_EQ(connection->failure().code(), absl::StatusCode::kUnavailable);
  while (!connection->gone()) {
    connection->Close();
    ProgressUcx(worker->handle());
  }
  close(listener);
}
#endif

// Two workers connect, disconnect, read and send notes at random, some thousand times a second. UCX
// 1.13 still ends the process in some of these runs (see README.md).
TEST(UcxTransportTest, RandomConnections) {
  const char* const seed = std::getenv("BATON_UCX_STRESS");
  if (seed == nullptr) GTEST_SKIP() << "BATON_UCX_STRESS names no seed";
  std::mt19937 random(std::atoi(seed));
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  struct Side {
    // Is destroyed after the transport, which may write to it until its own end.
    std::vector<std::byte> target = std::vector<std::byte>(1 << 16);
    std::unique_ptr<Transport> transport = CreateUcxTransport({.tls = "tcp"}).value();
    TransportMemory memory = transport->Allocate(1 << 16).value();
    std::vector<PeerId> peers;
  };
  Side sides[2];
  int connects = 0, right = 0, failed = 0;
  for (const absl::Time end = absl::Now() + absl::Seconds(1); absl::Now() < end;) {
    const size_t i = below(2), what = below(12);
    Side& side = sides[i];
    const Side& other = sides[1 - i];
    const size_t chosen = below(side.peers.size() + 1);
    if (what >= 7) {
      for (size_t n = below(20); n > 0; --n) side.transport->Progress();
    } else if (what < 2 && side.peers.size() < 4) {
      const auto peer = side.transport->Connect(other.transport->address());
      connects += peer.ok();
      if (peer.ok()) side.peers.push_back(*peer);
    } else if (chosen == side.peers.size()) {
      continue;
    } else if (what == 2) {
      side.transport->Disconnect(side.peers[chosen]);
      side.peers.erase(side.peers.begin() + static_cast<ptrdiff_t>(chosen));
    } else if (what < 5) {
      (void)side.transport->SendNote(side.peers[chosen], "note");
    } else {
      side.transport->Read({side.peers[chosen], other.memory.key, 0, side.target.data(),
                            1 + below(60000),
                            [&](absl::Status status) { ++(status.ok() ? right : failed); }});
    }
  }
  std::printf("%d connections, %d reads right, %d failed\n", connects, right, failed);
  EXPECT_GT(right, 0);
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
