#include "kv_transfer/transport/tcp_greetings.h"

#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_transfer/transport/byte_packer.h"
#include "kv_transfer/transport/tcp_connecting.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Returns a loopback address that no other process uses. Other tests of this machine connect to
// ports of 127.0.0.1 that were closed a moment ago, and such a port may be a listener's here by
// now.
std::string OwnHost(int number) {
  const int pid = getpid();
  return absl::StrCat("127.", 64 * number + (pid >> 16) % 64, ".", (pid >> 8) % 256, ".",
                      pid % 256);
}

const std::string kHost = OwnHost(1);
const std::string kOtherHost = OwnHost(2);

SocketAddress At(const std::string& host, int port) {
  sockaddr_storage storage{};
  auto* const address = reinterpret_cast<sockaddr_in*>(&storage);
  address->sin_family = AF_INET;
  address->sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host.c_str(), &address->sin_addr);
  return *SocketAddress::From(storage);
}

SocketAddress LoopbackOfIpv6() {
  sockaddr_storage storage{};
  auto* const address = reinterpret_cast<sockaddr_in6*>(&storage);
  address->sin6_family = AF_INET6;
  address->sin6_addr = in6addr_loopback;
  return *SocketAddress::From(storage);
}

// A listening socket. Stands for the one at which a worker's UCX takes connections.
class Listener {
 public:
  explicit Listener(const std::string& host = kHost, int backlog = 64)
      : Listener(At(host, 0), backlog) {}
  explicit Listener(const SocketAddress& any, int backlog = 64)
      : fd_(socket(any.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    EXPECT_EQ(bind(fd_, any.data(), any.size()), 0);
    EXPECT_EQ(listen(fd_, backlog), 0);
  }
  ~Listener() { Close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  SocketAddress address() const { return *SocketAddress::Of(fd_); }
  bool was_reached() const {
    pollfd event = {fd_, POLLIN, 0};
    return poll(&event, 1, 0) == 1;
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// Returns an address at which nothing listens any more.
SocketAddress Closed(const std::string& host = kHost) { return Listener(host).address(); }

// Fills a listener's backlog with connections that it never accepts. From then on the kernel drops
// requests for further connections, as a firewall does.
class Full {
 public:
  Full() : listener_(kHost, 0) {
    for (int waiting = 0; waiting == 0;) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      fds_.push_back(fd);
      const SocketAddress to = listener_.address();
      (void)!connect(fd, to.data(), to.size());
      pollfd event = {fd, POLLOUT, 0};
      waiting = poll(&event, 1, 100) == 0;
    }
  }
  ~Full() {
    for (const int fd : fds_) close(fd);
  }
  SocketAddress address() const { return listener_.address(); }

 private:
  Listener listener_;
  std::vector<int> fds_;
};

// Two workers: `asking_` asks whether it and `asked_` can connect to each other. Time stands still
// unless a test changes it.
class TcpGreetingsTest : public testing::Test {
 protected:
  std::unique_ptr<TcpGreetings> Greetings(const SocketAddress& kv) {
    return TcpGreetings::Listen({kv}, {}).value();
  }
  // Asks over `ways`, which are pairs of addresses of the two workers. Drives both workers until
  // there is an outcome.
  absl::Status Ask(const std::vector<TcpWay>& ways) {
    outcome_.reset();
    asking_->Ask(asked_->id(), ways, now_, [this](absl::Status status) { outcome_ = status; });
    return Outcome();
  }
  absl::Status Outcome() {
    while (!outcome_) {
      asking_->Progress(now_);
      asked_->Progress(now_);
      if (!outcome_ && !Happens()) return absl::InternalError("nothing happens any more");
    }
    return *outcome_;
  }
  // Waits until either worker has something to do. Returns false if nothing happens within 300 ms.
  bool Happens() {
    pollfd events[] = {{asking_->fd(), POLLIN, 0}, {asked_->fd(), POLLIN, 0}};
    return poll(events, 2, 300) > 0;
  }
  TcpWay Way() const { return {own_.address(), asked_->places()[0]}; }

  absl::Time now_ = absl::UnixEpoch();
  Listener own_, peers_;
  std::unique_ptr<TcpGreetings> asking_ = Greetings(own_.address());
  std::unique_ptr<TcpGreetings> asked_ = Greetings(peers_.address());
  std::optional<absl::Status> outcome_;
};

TEST_F(TcpGreetingsTest, IsOkWhereEachReachesTheOther) {
  EXPECT_TRUE(Ask({Way()}).ok());
  EXPECT_TRUE(own_.was_reached());
  EXPECT_TRUE(peers_.was_reached());
  EXPECT_FALSE(asking_->busy());
}

TEST_F(TcpGreetingsTest, GoesOverIpv6) {
  const SocketAddress any = LoopbackOfIpv6();
  const Socket probe(socket(any.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(probe.fd(), any.data(), any.size()) != 0) GTEST_SKIP() << "there is no IPv6 here";
  const Listener own(LoopbackOfIpv6()), peers(LoopbackOfIpv6());
  asked_ = Greetings(peers.address());
  EXPECT_TRUE(Ask({{own.address(), asked_->places()[0]}}).ok());
  EXPECT_TRUE(own.was_reached());
  EXPECT_TRUE(peers.was_reached());
}

TEST_F(TcpGreetingsTest, NamesThePortOfThePeerThatIsClosed) {
  TcpWay way = Way();
  peers_.Close();
  const absl::Status status = Ask({way});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            absl::StrCat("can't connect to ", way.peer.kv.ToString(),
                         ", where the other worker takes KV: Connection refused: unless it has "
                         "ended or hangs, open --kv-ports there"));
}

TEST_F(TcpGreetingsTest, NamesTheOwnPortThatThePeerFindsClosed) {
  const TcpWay way = Way();
  own_.Close();
  const absl::Status status = Ask({way});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            absl::StrCat("the other worker can't connect back to ", way.own_kv.ToString(),
                         ", where this one takes KV: Connection refused: open --kv-ports here for "
                         "the other worker"));
}

TEST_F(TcpGreetingsTest, NamesTheGreeterThatIsClosed) {
  TcpWay way = Way();
  way.peer.greeter = Closed();
  EXPECT_THAT(Ask({way}).message(),
              AllOf(HasSubstr(absl::StrCat("can't ask ", way.peer.greeter.ToString())),
                    HasSubstr("Connection refused")));
}

TEST_F(TcpGreetingsTest, AConnectionThatIsDroppedOnTheWayThereEndsAtTheDeadline) {
  const Full full;
  TcpWay way = Way();
  way.peer.kv = full.address();
  EXPECT_EQ(Ask({way}).code(), absl::StatusCode::kInternal);  // no outcome yet
  now_ += TcpGreetings::kAskFor;
  EXPECT_THAT(Outcome().message(),
              HasSubstr(absl::StrCat("can't connect to ", full.address().ToString(),
                                     ", where the other worker takes KV: no answer in 3s")));
}

TEST_F(TcpGreetingsTest, AConnectionThatIsDroppedOnTheWayBackIsAnsweredInTime) {
  const Full full;
  TcpWay way = Way();
  way.own_kv = full.address();
  EXPECT_EQ(Ask({way}).code(), absl::StatusCode::kInternal);
  now_ += TcpGreetings::kAnswerWithin;
  ASSERT_LT(TcpGreetings::kAnswerWithin, TcpGreetings::kAskFor);
  EXPECT_THAT(Outcome().message(),
              HasSubstr(absl::StrCat("can't connect back to ", full.address().ToString(),
                                     ", where this one takes KV: no answer in 2s")));
}

TEST_F(TcpGreetingsTest, AGreeterThatSaysNothingEndsAtTheDeadline) {
  const Listener silent;
  TcpWay way = Way();
  way.peer.greeter = silent.address();
  EXPECT_EQ(Ask({way}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(asking_->deadline(), now_ + TcpGreetings::kAskFor);
  now_ = asking_->deadline();
  EXPECT_THAT(Outcome().message(),
              HasSubstr("reaches this one: no answer in 3s: unless it has ended or hangs"));
}

TEST_F(TcpGreetingsTest, AnotherWorkerAtThePortIsNotTakenForThePeer) {
  const auto successor = Greetings(peers_.address());
  TcpWay way = Way();
  way.peer.greeter = successor->places()[0].greeter;
  std::swap(asking_, asked_);  // The question carries an id that differs from the successor's.
  std::optional<absl::Status> outcome;
  asking_->Ask(asked_->id(), {way}, now_, [&](absl::Status status) { outcome = status; });
  for (int i = 0; i < 100 && !outcome; ++i) {
    asking_->Progress(now_);
    successor->Progress(now_);
    pollfd events[] = {{asking_->fd(), POLLIN, 0}, {successor->fd(), POLLIN, 0}};
    poll(events, 2, 1000);
  }
  ASSERT_TRUE(outcome);
  EXPECT_THAT(outcome->message(), HasSubstr("another worker listens at"));
  EXPECT_FALSE(own_.was_reached());
}

TEST_F(TcpGreetingsTest, OneWayThatWorksIsEnough) {
  TcpWay closed = Way();
  closed.own_kv = Closed();
  closed.peer.kv = Closed();
  EXPECT_TRUE(Ask({closed, Way()}).ok());
  EXPECT_FALSE(Ask({closed, closed}).ok());
}

TEST_F(TcpGreetingsTest, AQuestionThatIsForgottenHasNoOutcome) {
  const uint64_t question =
      asking_->Ask(asked_->id(), {Way()}, now_, [](absl::Status) { FAIL() << "it was forgotten"; });
  asking_->Progress(now_);
  asking_->Forget(question);
  while (Happens()) {
    asking_->Progress(now_);
    asked_->Progress(now_);
  }
  EXPECT_FALSE(asking_->busy());
  EXPECT_FALSE(asked_->busy());
}

// A client that does not follow the protocol.
class Stranger {
 public:
  Stranger(const SocketAddress& to, const std::string& from = kHost)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress any = At(from, 0);
    EXPECT_EQ(bind(fd_, any.data(), any.size()), 0);
    EXPECT_EQ(connect(fd_, to.data(), to.size()), 0);
  }
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Stranger() {
    if (fd_ >= 0) close(fd_);
  }
  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Returns the bytes that have arrived, nullopt if the connection is open but silent, or "" if it
  // is closed.
  std::optional<std::string> Received() {
    char bytes[512];
    const ssize_t got = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) return std::string(bytes, got);
    return got < 0 && errno == EAGAIN ? std::nullopt : std::optional<std::string>("");
  }

 private:
  int fd_;
};

std::string QuestionBytes(uint64_t id, const SocketAddress& kv) {
  BytePacker out;
  out.Put<uint32_t>(0xBA706001);
  out.Put<uint64_t>(id);
  kv.Pack(&out);
  return out.Take();
}

TEST_F(TcpGreetingsTest, NobodyHasItConnectToAnotherHost) {
  const Listener victim(kOtherHost);
  Stranger stranger(asked_->places()[0].greeter);
  stranger.Send(QuestionBytes(asked_->id(), victim.address()));
  while (Happens()) {
    asked_->Progress(now_);
    if (asked_->deadline() > now_ + TcpGreetings::kAnswerWithin) break;
    if (stranger.Received()) break;
  }
  EXPECT_FALSE(victim.was_reached());
}

TEST_F(TcpGreetingsTest, APeerBehindATranslatedAddressIsTold) {
  TcpWay way = Way();
  Stranger stranger(way.peer.greeter, kOtherHost);
  stranger.Send(QuestionBytes(asked_->id(), own_.address()));
  std::optional<std::string> received;
  while (!received && Happens()) {
    asked_->Progress(now_);
    received = stranger.Received();
  }
  ASSERT_TRUE(received);
  EXPECT_THAT(*received, HasSubstr(kOtherHost));
  EXPECT_FALSE(own_.was_reached());
}

TEST_F(TcpGreetingsTest, WhatIsNoQuestionIsClosed) {
  const std::string question = QuestionBytes(asked_->id(), own_.address());
  for (std::string bytes :
       {std::string(4096, 'x'), std::string(question.size(), 'x'), question + "more",
        question.substr(0, 12) + '\x05' + question.substr(13)}) {
    Stranger stranger(asked_->places()[0].greeter);
    stranger.Send(bytes);
    std::optional<std::string> received;
    while (!received && Happens()) {
      asked_->Progress(now_);
      received = stranger.Received();
    }
    EXPECT_EQ(received, "") << bytes.size();
  }
  EXPECT_FALSE(own_.was_reached());
  EXPECT_FALSE(asked_->busy());
}

TEST_F(TcpGreetingsTest, SilentStrangersHoldFewSocketsForAShortWhile) {
  std::vector<Stranger> strangers;
  for (int i = 0; i < TcpGreetings::kAnswersOfOneHost + 3; ++i) {
    strangers.emplace_back(asked_->places()[0].greeter);
    asked_->Progress(now_);
  }
  const auto closed = [&] {
    int count = 0;
    for (Stranger& stranger : strangers) count += stranger.Received().has_value();
    return count;
  };
  EXPECT_EQ(closed(), 3);
  // The strangers, clients from one host, hold as many connections as one host may have. A client
  // from another host is still accepted.
  Stranger other(asked_->places()[0].greeter, kOtherHost);
  asked_->Progress(now_);
  EXPECT_EQ(other.Received(), std::nullopt);
  EXPECT_EQ(asked_->deadline(), now_ + TcpGreetings::kAnswerWithin);
  now_ = asked_->deadline();
  EXPECT_TRUE(asked_->Progress(now_));
  EXPECT_EQ(closed(), static_cast<int>(strangers.size()));
  EXPECT_FALSE(asked_->busy());
}

TEST_F(TcpGreetingsTest, ListensAtAPortOfTheRangeThatIsFree) {
  // Find a taken port followed by a free one. Other programs may take the free one, so several
  // pairs are tried.
  std::optional<Listener> first;
  int port = 65535;
  for (int tries = 0; tries < 50; ++tries) {
    first.emplace();
    port = first->address().port();
    if (port == 65535) continue;
    const SocketAddress second = first->address().WithPort(port + 1);
    const Socket probe(socket(second.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(probe.fd(), second.data(), second.size()) == 0) break;
    port = 65535;
  }
  ASSERT_LT(port, 65535);
  const auto at_the_second = TcpGreetings::Listen({first->address()}, {port, port + 1});
  ASSERT_TRUE(at_the_second.ok()) << at_the_second.status();
  EXPECT_EQ((*at_the_second)->places()[0].greeter.port(), port + 1);
  const auto nowhere = TcpGreetings::Listen({first->address()}, {port, port + 1});
  EXPECT_EQ(nowhere.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(nowhere.status().message(),
              HasSubstr(absl::StrCat("--kv-ports ", port, "-", port + 1)));
}

// While an object of this class lives, this process can't open another descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

TEST_F(TcpGreetingsTest, WithoutFreeDescriptorsTheAnswerIsUnavailable) {
  // In the scope of NoDescriptors, the process can't open descriptors. But the sanitizer opens a
  // pipe when code uses a member of the test, which has virtual functions. So that scope uses only
  // these local variables.
  TcpGreetings& asking = *asking_;
  const std::vector<TcpWay> ways = {Way()};
  const std::vector<SocketAddress> kv = {own_.address()};
  const uint64_t peer = asked_->id();
  const absl::Time now = now_;
  std::optional<absl::Status> outcome;
  absl::Status listening;
  {
    const NoDescriptors none;
    asking.Ask(peer, ways, now, [&](absl::Status status) { outcome = std::move(status); });
    asking.Progress(now + TcpGreetings::kAskFor);
    listening = TcpGreetings::Listen(kv, {}).status();
  }
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(outcome->message(), HasSubstr("Too many open files"));
  EXPECT_THAT(listening.message(), HasSubstr("Too many open files"));
  EXPECT_TRUE(Ask({Way()}).ok());
}

TEST_F(TcpGreetingsTest, AConnectionThatCannotBeWatchedHasFailed) {
  const TcpConnecting connecting(/*events=*/-1, nullptr, peers_.address());
  EXPECT_TRUE(connecting.failed());
  EXPECT_EQ(connecting.why(), "Bad file descriptor");
}

}  // namespace
}  // namespace baton
