#include "common/rpc/connections.h"

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/host_port.h"
#include "common/base/listen_check.h"
#include "common/base/steady_time.h"
#include "common/rpc/one_request_call.h"
#include "common/rpc/rpc_server.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr char kEcho[] = "/test.Echo/Echo";

// A service that answers each request with itself.
class EchoService final : public OneRequestService {
 public:
  EchoService(Connections* connections, absl::Duration limit)
      : OneRequestService(connections, limit) {
    AddMethod(kEcho,
              [this](grpc::CallbackServerContext* context) { return new EchoCall(this, context); });
  }

 private:
  class EchoCall final : public OneRequestCall {
   public:
    EchoCall(OneRequestService* service, grpc::CallbackServerContext* context)
        : OneRequestCall(service, context) {}

   private:
    void OnRequest(const grpc::ByteBuffer& request) override {
      answer_ = request;
      StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
    }
    void EndWithoutRequest(const absl::Status& status) override {
      Finish({static_cast<grpc::StatusCode>(status.code()), std::string(status.message())});
    }
    void OnDone() override {
      OneRequestCall::OnDone();
      delete this;
    }
    grpc::ByteBuffer answer_;
  };
};

// A client that writes HTTP/2 frames by itself, so that it can break the rules (RFC 9113).
class RawClient {
 public:
  explicit RawClient(int port) : RawClient(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port) {}
  RawClient(int fd, int port) : fd_(fd) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Send(const std::string& bytes) { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void Begin() { Send(absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Frame(4, 0, 0, ""))); }
  // Begins an RPC, and sends no request.
  void BeginCall(const std::string& method = kEcho, const std::string& timeout = "1H") {
    next_stream_ += 2;
    Send(Frame(
        1, 4, next_stream_,
        absl::StrCat(Header(":method", "POST"), Header(":scheme", "http"), Header(":path", method),
                     Header(":authority", "test"), Header("te", "trailers"),
                     Header("content-type", "application/grpc"), Header("grpc-timeout", timeout))));
  }
  // Cancels the RPC that it began last.
  void CancelCall() { Send(Frame(3, 0, next_stream_, std::string("\0\0\0\x8", 4))); }
  // Reads until the server closes the connection, but not longer than `limit`. Returns whether it
  // was closed.
  bool Closed(absl::Duration limit) {
    const absl::Time until = SteadyNow() + limit;
    char bytes[4096];
    while (true) {
      pollfd waits = {fd_, POLLIN, 0};
      const absl::Duration left = until - SteadyNow();
      if (left <= absl::ZeroDuration()) return false;
      if (poll(&waits, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0) continue;
      if (recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

 private:
  static std::string Frame(char type, char flags, uint32_t stream, const std::string& payload) {
    std::string frame;
    for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
    frame += type;
    frame += flags;
    for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
    return frame + payload;
  }
  static std::string Header(const std::string& name, const std::string& value) {
    std::string header(1, '\0');  // a literal that is not indexed (RFC 7541, section 6.2.2)
    for (const std::string& text : {name, value}) {
      header += static_cast<char>(text.size());
      header += text;
    }
    return header;
  }

  const int fd_;
  uint32_t next_stream_ = static_cast<uint32_t>(-1);
};

class ConnectionsTest : public ::testing::Test {
 protected:
  void Start(ConnectionLimits limits, absl::Duration request_limit = absl::Seconds(60)) {
    server_ = nullptr;  // one of an earlier call, which uses the objects below
    connections_ = std::make_unique<Connections>(limits);
    service_ = std::make_unique<EchoService>(connections_.get(), request_limit);
    auto server = RpcServer::Start(
        {.listen = "127.0.0.1:0", .services = {service_.get()}, .connections = connections_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  int port() const { return PortOf(server_->address()); }
  // A channel with a connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  // Waits until the counters are as wanted.
  void WaitFor(const std::function<bool(const ConnectionCounters&)>& wanted) {
    const absl::Time until = SteadyNow() + absl::Seconds(30);
    while (!wanted(connections_->counters())) {
      ASSERT_LT(SteadyNow(), until) << "open " << connections_->counters().open;
      poll(nullptr, 0, 1);
    }
  }
  static grpc::Status Check(const std::shared_ptr<grpc::Channel>& channel, bool wait = false) {
    grpc::ClientContext context;
    context.set_wait_for_ready(wait);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    grpc::health::v1::HealthCheckResponse response;
    return grpc::health::v1::Health::NewStub(channel)->Check(&context, {}, &response);
  }

  std::unique_ptr<Connections> connections_;
  std::unique_ptr<EchoService> service_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(ConnectionsTest, AConnectionAboveTheLimitIsRefusedUntilAnotherOneEnds) {
  Start({.connections = 2});
  auto first = NewChannel(), second = NewChannel();
  EXPECT_TRUE(Check(first).ok());
  EXPECT_TRUE(Check(second).ok());
  EXPECT_EQ(connections_->counters().open, 2);
  EXPECT_EQ(Check(NewChannel()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(connections_->counters().too_many, 1u);
  EXPECT_TRUE(Check(first).ok());
  first = nullptr;
  WaitFor([](const ConnectionCounters& counters) { return counters.open == 1; });
  EXPECT_TRUE(Check(NewChannel()).ok());
}

TEST_F(ConnectionsTest, EachAddressHasItsOwnLimit) {
  Connections connections({.connections = 3, .per_address = 1});
  const auto descriptor = [] { return open("/dev/null", O_RDONLY | O_CLOEXEC); };
  EXPECT_EQ(connections.Enter(1, "ipv4:10.0.0.1", 5000, descriptor()),
            Connections::Verdict::kTaken);
  EXPECT_EQ(connections.Enter(2, "ipv4:10.0.0.1", 5001, -1),
            Connections::Verdict::kTooManyOfOneAddress);
  EXPECT_EQ(connections.Enter(3, "ipv4:10.0.0.2", 5000, descriptor()),
            Connections::Verdict::kTaken);
  connections.Leave(1);
  EXPECT_EQ(connections.Enter(4, "ipv4:10.0.0.1", 5002, descriptor()),
            Connections::Verdict::kTaken);
  EXPECT_EQ(connections.counters().of_one, 1u);
  EXPECT_EQ(connections.counters().open, 2);
}

TEST_F(ConnectionsTest, AClientThatSaysNothingIsClosed) {
  Start({.handshake = absl::Milliseconds(200)});
  RawClient silent(port());
  EXPECT_TRUE(silent.Closed(absl::Seconds(20)));
  WaitFor([](const ConnectionCounters& counters) { return counters.open == 0; });
}

// Takes all descriptors that this process has left.
class AllDescriptors {
 public:
  AllDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    few.rlim_cur = 256;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) taken_.push_back(fd);
    EXPECT_EQ(errno, EMFILE);
  }
  ~AllDescriptors() {
    for (const int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

TEST(DescriptorLimitTest, IsRaisedAsFarAsItMayBe) {
  rlimit before{}, after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  RaiseDescriptorLimit();
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
}

// gRPC 1.51 would never accept again.
TEST_F(ConnectionsTest, AcceptsAgainAfterDescriptorsRanOut) {
  Start({});
  const auto before = NewChannel();  // stays open, so that it gives no descriptor back
  EXPECT_TRUE(Check(before).ok());
  {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const AllDescriptors none_left;
    RawClient refused(fd, port());
    EXPECT_TRUE(refused.Closed(absl::Seconds(20)));
  }
  EXPECT_GE(connections_->counters().no_descriptor, 1u);
  EXPECT_TRUE(Check(NewChannel()).ok());
}

// Methods that wait for a request, of a service of ours and of those that every server has.
constexpr const char* kMethods[] = {kEcho, "/grpc.health.v1.Health/Check",
                                    "/grpc.health.v1.Health/Watch"};
constexpr char kReflect[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

TEST_F(ConnectionsTest, AConnectionThatCancelsTooMuchIsCut) {
  for (const char* method : {kMethods[0], kMethods[1], kMethods[2], kReflect}) {
    SCOPED_TRACE(method);
    Start({.cancels_per_second = 20});
    const auto other = NewChannel();
    EXPECT_TRUE(Check(other).ok());
    RawClient rude(port());
    rude.Begin();
    for (int i = 0; i < 1000 && connections_->counters().cut == 0; ++i) {
      rude.BeginCall(method);
      rude.CancelCall();
    }
    EXPECT_TRUE(rude.Closed(absl::Seconds(20)));
    EXPECT_EQ(connections_->counters().cut, 1u);
    EXPECT_TRUE(Check(other).ok());
  }
}

TEST_F(ConnectionsTest, AConnectionThatComesAfterTheEndIsEndedToo) {
  Connections connections({});
  int ends[2][2];
  char byte;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]), 0);
    EXPECT_EQ(connections.Enter(i, "ipv4:10.0.0.1", 5000 + i, ends[i][0]),
              Connections::Verdict::kTaken);
    if (i == 0) {
      EXPECT_EQ(recv(ends[0][1], &byte, 1, MSG_DONTWAIT), -1);
      connections.EndAll();
    }
    EXPECT_EQ(recv(ends[i][1], &byte, 1, MSG_DONTWAIT), 0) << i;
    close(ends[i][1]);
  }
}

TEST_F(ConnectionsTest, CancelsAreCountedBySecond) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Connections connections({.cancels_per_second = 3});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, ends[0]);
  absl::Time now = absl::UnixEpoch();
  for (int second = 0; second < 5; ++second) {
    for (int i = 0; i < 3; ++i) connections.RpcCancelled("ipv4:10.0.0.1:5000", now);
    now += absl::Seconds(1);
  }
  connections.RpcCancelled("ipv4:10.0.0.2:5000", now);  // there is no such connection
  EXPECT_EQ(connections.counters().cut, 0u);
  for (int i = 0; i < 4; ++i) connections.RpcCancelled("ipv4:10.0.0.1:5000", now);
  EXPECT_EQ(connections.counters().cut, 1u);
  char byte;
  EXPECT_EQ(recv(ends[1], &byte, 1, MSG_DONTWAIT), 0);
  close(ends[1]);
}

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

  int client, server;
};

TEST_F(ConnectionsTest, AConnectionWhoseMessageIsTooLongIsCutBeforeAllOfItIsThere) {
  constexpr absl::string_view kPeer = "ipv4:10.0.0.1:5000";
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
  connections.MessageAwaited(kPeer);
  for (int i = 0; i < 100; ++i) {
    connections.MessageAwaited(kPeer);
    tcp.Move(50 << 10);
    connections.MessageCame(kPeer, 50 << 10);
    ASSERT_FALSE(cut()) << i;
  }
  tcp.Move(1000 << 10);
  EXPECT_FALSE(cut());
  tcp.Move(100 << 10);
  EXPECT_TRUE(cut());
  char byte;
  EXPECT_EQ(recv(tcp.server, &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(ConnectionsTest, WhatAConnectionSendsBesidesMessagesDoesNotCutIt) {
  constexpr absl::string_view kPeer = "ipv4:10.0.0.1:5000";
  TcpPair tcp;
  Connections connections({.unfinished_bytes = 1 << 20});
  connections.Enter(1, "ipv4:10.0.0.1", 5000, fcntl(tcp.server, F_DUPFD_CLOEXEC, 0));
  absl::Time now = absl::UnixEpoch();
  connections.MessageAwaited(kPeer);
  for (int second = 0; second < 60; ++second) {
    tcp.Move(100 << 10);
    connections.CutIfUnfinished(now);
    now += absl::Seconds(1);
  }
  EXPECT_EQ(connections.counters().cut, 0u);
  // A message that has ended without coming is no longer held.
  for (int i = 0; i < 10; ++i) {
    tcp.Move(900 << 10);
    connections.CutIfUnfinished(now);
    connections.MessageCame(kPeer, 0);
    connections.MessageAwaited(kPeer);
  }
  EXPECT_EQ(connections.counters().cut, 0u);
}

TEST_F(ConnectionsTest, AConnectionWithTooManyOpenRpcsIsCut) {
  for (const char* method : kMethods) {
    SCOPED_TRACE(method);
    Start({.streams = 30});
    RawClient rude(port());
    rude.Begin();
    for (int i = 0; i < 31; ++i) rude.BeginCall(method);
    EXPECT_TRUE(rude.Closed(absl::Seconds(20)));
    EXPECT_EQ(connections_->counters().cut, 1u);
    EXPECT_TRUE(Check(NewChannel()).ok());
  }
}

// More RPCs one after the other than may be open at once.
TEST_F(ConnectionsTest, RpcsThatHaveEndedDoNotCount) {
  Start({.streams = 100, .cancels_per_second = 0});
  const auto channel = NewChannel();
  const auto health = grpc::health::v1::Health::NewStub(channel);
  const auto unknown = v1::Inference::NewStub(channel);  // the server does not have it
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(Check(channel).ok());
    grpc::ClientContext context, other;
    grpc::health::v1::HealthCheckResponse response;
    const auto watch = health->Watch(&context, {});
    ASSERT_TRUE(watch->Read(&response));
    context.TryCancel();
    watch->Finish();
    v1::ListModelsResponse models;
    const grpc::Status status = unknown->ListModels(&other, {}, &models);
    ASSERT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(connections_->counters().cut, 0u);
}

// An RPC of a client that decides when it sends its request.
class SlowCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit SlowCall(grpc::GenericStub* stub) {
    stub->PrepareBidiStreamingCall(&context_, kEcho, {}, this);
    AddHold();
    StartRead(&answer_);
    StartCall();
  }
  void SendRequest(const std::string& text) {
    const grpc::Slice bytes(text);
    request_ = grpc::ByteBuffer(&bytes, 1);
    StartWriteLast(&request_, grpc::WriteOptions());
    RemoveHold();
  }
  void SendNothing() { RemoveHold(); }
  // Waits for the end of the RPC.
  grpc::Status End() {
    MutexLock lock(&mutex_);
    while (!ended_) changed_.Wait(&mutex_);
    return status_;
  }
  size_t answer_bytes() const { return answer_.Length(); }
  void Cancel() { context_.TryCancel(); }

 private:
  void OnDone(const grpc::Status& status) override {
    MutexLock lock(&mutex_);
    status_ = status;
    ended_ = true;
    changed_.SignalAll();
  }

  grpc::ClientContext context_;
  grpc::ByteBuffer request_, answer_;
  Mutex mutex_;
  CondVar changed_;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(ConnectionsTest, AnRpcWhoseRequestDoesNotComeEnds) {
  Start({}, absl::Seconds(60));
  grpc::GenericStub stub(NewChannel());
  SlowCall silent(&stub), slow(&stub);
  slow.SendRequest("hello");
  EXPECT_TRUE(slow.End().ok());
  EXPECT_EQ(slow.answer_bytes(), 5u);
  service_->EndWithoutRequests(SteadyNow() + absl::Seconds(61));
  silent.SendNothing();
  const grpc::Status status = silent.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("the request did not come within 1m"));
}

// A few kilobytes may be gigabytes when they are decompressed.
TEST_F(ConnectionsTest, ACompressedRequestIsRefused) {
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    Start({});
    grpc::ChannelArguments arguments;
    arguments.SetCompressionAlgorithm(algorithm);
    grpc::GenericStub stub(grpc::CreateCustomChannel(
        server_->address(), grpc::InsecureChannelCredentials(), arguments));
    SlowCall call(&stub);
    call.SendRequest(std::string(1 << 20, 'a'));
    const grpc::Status status = call.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(), HasSubstr("is disabled"));
    EXPECT_EQ(call.answer_bytes(), 0u);
  }
}

// Deadlines that are shorter than the time for which a client's clock may be ahead are no excuse.
TEST_F(ConnectionsTest, CancelsBeforeAShortDeadlineCount) {
  for (const char* timeout : {"50m", "1m"}) {
    SCOPED_TRACE(timeout);
    Start({.cancels_per_second = 20});
    RawClient rude(port());
    rude.Begin();
    for (int i = 0; i < 1000 && connections_->counters().cut == 0; ++i) {
      rude.BeginCall(kEcho, timeout);
      rude.CancelCall();
    }
    EXPECT_TRUE(rude.Closed(absl::Seconds(20)));
    EXPECT_EQ(connections_->counters().cut, 1u);
  }
}

// At most sixteen requests are read from a connection at the same time. More silent RPCs than that
// keep the connection's other RPCs waiting, but no other connection.
TEST_F(ConnectionsTest, FewRequestsOfAConnectionAreReadAtATime) {
  Start({}, absl::Seconds(60));
  grpc::GenericStub stub(NewChannel()), other(NewChannel());
  std::vector<std::unique_ptr<SlowCall>> calls;
  for (int i = 0; i < 40; ++i) calls.push_back(std::make_unique<SlowCall>(&stub));
  SlowCall elsewhere(&other);
  elsewhere.SendRequest("elsewhere");
  EXPECT_TRUE(elsewhere.End().ok());
  for (int i = 39; i >= 20; --i) calls[i]->SendRequest("text");  // the first ones stay silent
  for (int i = 0; i < 20; ++i) {
    calls[i]->Cancel();
    calls[i]->SendNothing();
    EXPECT_EQ(calls[i]->End().error_code(), grpc::StatusCode::CANCELLED) << i;
  }
  for (int i = 20; i < 40; ++i) {
    EXPECT_TRUE(calls[i]->End().ok()) << i;
    EXPECT_EQ(calls[i]->answer_bytes(), 4u);
  }
}

}  // namespace
}  // namespace baton
