#include <cerrno>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <ifaddrs.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/host_port.h"
#include "common/base/steady_time.h"
#include "common/rpc/connections.h"
#include "common/rpc/limits.h"
#include "common/rpc/one_request_call.h"
#include "common/rpc/rpc_server.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"

// Tests of the limits of connections with a gRPC server, and of OneRequestCall, which tells of its
// RPCs.
namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr char kEcho[] = "/test.Echo/Echo";
constexpr absl::Duration kPatience = absl::Seconds(20);

// A service that answers each request with itself, at once or when it is told to.
class EchoService final : public OneRequestService {
 public:
  EchoService(Connections* connections, absl::Duration limit)
      : OneRequestService(connections, limit) {
    AddMethod(kEcho,
              [this](grpc::CallbackServerContext* context) { return new EchoCall(this, context); });
  }

  // From now on requests are not answered, until Answer() is called.
  void Hold() {
    MutexLock lock(&mutex_);
    hold_ = true;
  }
  void Answer() {
    MutexLock lock(&mutex_);
    hold_ = false;
    for (EchoCall* call : std::exchange(held_, {})) call->Answer();
  }
  // Waits until so many requests are held. Returns false if that takes too long.
  bool AwaitHeld(size_t requests) {
    const absl::Time until = SteadyNow() + kPatience;
    MutexLock lock(&mutex_);
    while (held_.size() < requests && SteadyNow() < until) {
      changed_.WaitFor(&mutex_, until - SteadyNow());
    }
    return held_.size() >= requests;
  }
  // Waits for the next RPC that ends without its request, and returns why. Returns OK if that takes
  // too long.
  absl::Status AwaitEndWithoutRequest() {
    const absl::Time until = SteadyNow() + kPatience;
    MutexLock lock(&mutex_);
    while (without_request_.empty() && SteadyNow() < until) {
      changed_.WaitFor(&mutex_, until - SteadyNow());
    }
    if (without_request_.empty()) return absl::OkStatus();
    absl::Status status = without_request_.front();
    without_request_.pop_front();
    return status;
  }

 private:
  class EchoCall final : public OneRequestCall {
   public:
    EchoCall(EchoService* service, grpc::CallbackServerContext* context)
        : OneRequestCall(service, context), service_(service) {}
    void Answer() { StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK); }

   private:
    void OnRequest(const grpc::ByteBuffer& request) override {
      answer_ = request;
      MutexLock lock(&service_->mutex_);
      if (!service_->hold_) return Answer();
      service_->held_.push_back(this);
      service_->changed_.SignalAll();
    }
    void EndWithoutRequest(const absl::Status& status) override {
      Finish({static_cast<grpc::StatusCode>(status.code()), std::string(status.message())});
      MutexLock lock(&service_->mutex_);
      service_->without_request_.push_back(status);
      service_->changed_.SignalAll();
    }
    void OnDone() override {
      OneRequestCall::OnDone();
      delete this;
    }
    EchoService* const service_;
    grpc::ByteBuffer answer_;
  };

  Mutex mutex_;
  CondVar changed_;
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<EchoCall*> held_ ABSL_GUARDED_BY(mutex_);
  std::deque<absl::Status> without_request_ ABSL_GUARDED_BY(mutex_);
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
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    EXPECT_TRUE(connected_);
  }
  explicit RawClient(sockaddr_in6 address) : fd_(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
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
  // Sends a part of the request of the RPC that it began last. The whole request has `bytes`. With
  // `last`, the client sends nothing more for this RPC.
  void SendRequest(size_t bytes, size_t part, bool last) {
    std::string message(1, '\0');
    for (const int shift : {24, 16, 8, 0}) message += static_cast<char>(bytes >> shift);
    Send(Frame(0, last ? 1 : 0, next_stream_, message + std::string(part, 'x')));
  }
  // Ends its side of the RPC that it began last, and sends no request.
  void EndRequests() { Send(Frame(0, 1, next_stream_, "")); }
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
  bool connected_ = false;
  uint32_t next_stream_ = static_cast<uint32_t>(-1);
};

class ConnectionsOverGrpcTest : public ::testing::Test {
 protected:
  void Start(ConnectionLimits limits, absl::Duration request_limit = absl::Seconds(60),
             size_t max_message_bytes = kMaxMessageBytes,
             const std::string& listen = "127.0.0.1:0") {
    server_ = nullptr;  // one of an earlier call, which uses the objects below
    connections_ = std::make_unique<Connections>(limits);
    service_ = std::make_unique<EchoService>(connections_.get(), request_limit);
    auto server = RpcServer::Start({.listen = listen,
                                    .services = {service_.get()},
                                    .connections = connections_.get(),
                                    .max_message_bytes = max_message_bytes});
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

TEST_F(ConnectionsOverGrpcTest, AConnectionAboveTheLimitIsRefusedUntilAnotherOneEnds) {
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

TEST_F(ConnectionsOverGrpcTest, EachAddressHasItsOwnLimit) {
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

TEST_F(ConnectionsOverGrpcTest, AClientThatSaysNothingIsClosed) {
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
TEST_F(ConnectionsOverGrpcTest, AcceptsAgainAfterDescriptorsRanOut) {
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

TEST_F(ConnectionsOverGrpcTest, AConnectionThatCancelsTooMuchIsCut) {
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

TEST_F(ConnectionsOverGrpcTest, AConnectionWithTooManyOpenRpcsIsCut) {
  for (const char* method : kMethods) {
    SCOPED_TRACE(method);
    Start({.streams = 30});
    RawClient rude(port());
    rude.Begin();
    for (int i = 0; i <= connections_->limits().cut_above(); ++i) rude.BeginCall(method);
    EXPECT_TRUE(rude.Closed(absl::Seconds(20)));
    EXPECT_EQ(connections_->counters().cut, 1u);
    EXPECT_TRUE(Check(NewChannel()).ok());
  }
}

// More RPCs one after the other than may be open at once.
TEST_F(ConnectionsOverGrpcTest, RpcsThatHaveEndedDoNotCount) {
  Start({.streams = 10, .cancels_per_second = 0});
  const auto channel = NewChannel();
  const auto health = grpc::health::v1::Health::NewStub(channel);
  const auto unknown = v1::Inference::NewStub(channel);  // the server does not have it
  for (int i = 0; i <= connections_->limits().cut_above(); ++i) {
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

TEST_F(ConnectionsOverGrpcTest, WatchesOfAllConnectionsAreLimited) {
  constexpr int kLimit = 300;
  Start({.cancels_per_second = 0, .all_without_request = kLimit});
  const auto polite = NewChannel();
  const auto health = grpc::health::v1::Health::NewStub(NewChannel());
  std::deque<grpc::ClientContext> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<grpc::health::v1::HealthCheckResponse>>> watches;
  const auto watch = [&] {
    grpc::health::v1::HealthCheckResponse response;
    contexts.emplace_back().set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    watches.push_back(health->Watch(&contexts.back(), {}));
    return watches.back()->Read(&response);
  };
  // Watches that have ended do not count. The server hears of their end later than the client.
  for (int i = 0; i < 2 * kLimit; ++i) {
    ASSERT_TRUE(watch()) << i;
    contexts.back().TryCancel();
    watches.back()->Finish();
  }
  EXPECT_EQ(connections_->counters().cut, 0u);
  watches.clear();
  int begun = 0;
  while (begun <= kLimit && watch()) ++begun;
  WaitFor([](const ConnectionCounters& counters) { return counters.cut == 1; });
  for (const auto& each : watches) {
    EXPECT_EQ(each->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_TRUE(Check(polite).ok());
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
  bool ended() {
    MutexLock lock(&mutex_);
    return ended_;
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

// For gRPC and for the client, an RPC that was cancelled has ended. The server may still need some
// time for it.
TEST_F(ConnectionsOverGrpcTest,
       AClientThatKeepsToTheLimitMayReplaceItsRpcsBeforeTheServerHasEndedThem) {
  constexpr int kStreams = 100;
  Start({.streams = kStreams, .cancels_per_second = 0});
  service_->Hold();
  grpc::GenericStub stub(NewChannel());
  const auto replace = [&] {
    std::vector<std::unique_ptr<SlowCall>> calls;
    for (int i = 0; i < kStreams; ++i) calls.push_back(std::make_unique<SlowCall>(&stub));
    for (const auto& call : calls) call->SendRequest("text");
    return calls;
  };
  const int rounds = connections_->limits().cut_above() / kStreams;
  ASSERT_GE(rounds, 2);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const auto calls = replace();
    EXPECT_TRUE(service_->AwaitHeld((round + 1) * kStreams));
    for (const auto& call : calls) call->Cancel();
    for (const auto& call : calls) {
      EXPECT_EQ(call->End().error_code(), grpc::StatusCode::CANCELLED) << round;
    }
  }
  EXPECT_EQ(connections_->counters().cut, 0u);
  // A client that goes on would fill the memory.
  const auto calls = replace();
  WaitFor([](const ConnectionCounters& counters) { return counters.cut == 1; });
  service_->Answer();
  for (const auto& call : calls) call->End();
}

TEST_F(ConnectionsOverGrpcTest, AnRpcWithoutARequestEndsWithWhatHasHappened) {
  constexpr size_t kMax = 1000;
  Start({}, absl::Seconds(60), kMax);
  RawClient client(port());
  client.Begin();
  const auto expect = [&](absl::StatusCode code, const std::string& message) {
    const absl::Status status = service_->AwaitEndWithoutRequest();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  client.BeginCall();
  client.SendRequest(500, 100, false);
  client.CancelCall();
  expect(absl::StatusCode::kCancelled, "the client cancelled before the request");
  client.BeginCall(kEcho, "50m");
  client.SendRequest(500, 100, false);
  expect(absl::StatusCode::kDeadlineExceeded, "the deadline passed before the request");
  client.BeginCall();
  client.EndRequests();
  expect(absl::StatusCode::kInvalidArgument, "the call ended before its request came");
  client.BeginCall();
  client.SendRequest(500, 100, true);
  expect(absl::StatusCode::kInvalidArgument, "the call ended before its request came");
  for (const bool last : {true, false}) {
    client.BeginCall();
    client.SendRequest(2000, 2000, last);
    expect(absl::StatusCode::kResourceExhausted, "the request has more than 1000 bytes");
  }
  // Requests that are not read yet: four others do not come.
  for (int i = 0; i < 8; ++i) client.BeginCall();
  client.CancelCall();
  expect(absl::StatusCode::kCancelled, "the client cancelled before the request");
  client.BeginCall(kEcho, "50m");
  expect(absl::StatusCode::kDeadlineExceeded, "the deadline passed before the request");
}

TEST_F(ConnectionsOverGrpcTest, AnRpcWhoseRequestDoesNotComeEnds) {
  Start({}, absl::Seconds(60));
  grpc::GenericStub stub(NewChannel());
  SlowCall silent(&stub), slow(&stub);
  slow.SendRequest("hello");
  EXPECT_TRUE(slow.End().ok());
  EXPECT_EQ(slow.answer_bytes(), 5u);
  silent.SendNothing();
  // The server may hear of this call later than of the other one.
  while (!silent.ended()) {
    service_->EndWithoutRequests(SteadyNow() + absl::Seconds(61));
    poll(nullptr, 0, 1);
  }
  const grpc::Status status = silent.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("the request did not come within 1m"));
}

// A few kilobytes may be gigabytes when they are decompressed.
TEST_F(ConnectionsOverGrpcTest, ACompressedRequestIsRefused) {
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
    EXPECT_EQ(service_->AwaitEndWithoutRequest().code(), absl::StatusCode::kUnimplemented);
  }
}

// Deadlines that are shorter than the time for which a client's clock may be ahead are no excuse.
TEST_F(ConnectionsOverGrpcTest, CancelsBeforeAShortDeadlineCount) {
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

// gRPC rounds the time that is left up: 100.001 seconds become 101, and 1,001 seconds become 1,010.
TEST(IsAtDeadlineTest, AllowsForRounding) {
  const absl::Time began = absl::UnixEpoch();
  const auto at_deadline = [&](absl::Duration told, absl::Duration cancelled) {
    return IsAtDeadline(began, began + told, began + cancelled);
  };
  EXPECT_TRUE(at_deadline(absl::Seconds(101), absl::Milliseconds(100'001)));
  EXPECT_TRUE(at_deadline(absl::Seconds(1010), absl::Seconds(1001)));
  EXPECT_TRUE(at_deadline(absl::Hours(3), absl::Hours(3) - absl::Seconds(99)));
  EXPECT_TRUE(at_deadline(absl::Milliseconds(10'100), absl::Milliseconds(10'001)));
  EXPECT_TRUE(at_deadline(absl::Seconds(5), absl::Seconds(6)));
  EXPECT_FALSE(at_deadline(absl::Seconds(101), absl::Milliseconds(99'800)));
  EXPECT_FALSE(at_deadline(absl::Hours(3), absl::Hours(2.9)));
  EXPECT_FALSE(at_deadline(absl::Seconds(5), absl::Milliseconds(4800)));
  EXPECT_FALSE(at_deadline(absl::Milliseconds(40), absl::Milliseconds(29)));
  EXPECT_TRUE(at_deadline(absl::Milliseconds(40), absl::Milliseconds(31)));
  EXPECT_FALSE(at_deadline(absl::InfiniteDuration(), absl::Hours(1000)));
}

// At most four requests are read from a connection at the same time. More silent RPCs than that
// keep the connection's other RPCs waiting for about a second, but no other connection.
TEST_F(ConnectionsOverGrpcTest, FewRequestsOfAConnectionAreReadAtATime) {
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

TEST_F(ConnectionsOverGrpcTest, RequestsThatDoNotComeKeepOthersWaitingOnlyForSeconds) {
  Start({}, absl::Hours(1));
  grpc::GenericStub stub(NewChannel());
  std::vector<std::unique_ptr<SlowCall>> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(std::make_unique<SlowCall>(&stub));
  SlowCall call(&stub);
  call.SendRequest("text");
  absl::Time now = SteadyNow();
  const auto ends_in_time = [&](SlowCall* one) {
    for (int second = 0; second < 60 && !one->ended(); ++second) {
      now += absl::Seconds(1);
      service_->EndWithoutRequests(now);
      poll(nullptr, 0, 10);
    }
    return one->ended();
  };
  EXPECT_TRUE(ends_in_time(&call));
  // A request that comes late is still answered.
  silent[0]->SendRequest("hello");
  EXPECT_TRUE(ends_in_time(silent[0].get()));
  EXPECT_EQ(silent[0]->answer_bytes(), 5u);
  for (int i = 1; i < 40; ++i) {
    silent[i]->Cancel();
    silent[i]->SendNothing();
    EXPECT_EQ(silent[i]->End().error_code(), grpc::StatusCode::CANCELLED) << i;
  }
  for (SlowCall* one : {&call, silent[0].get()}) {
    one->Cancel();
    one->End();
  }
}

// gRPC names a link-local address together with the interface, and RPCs count for a connection by
// that name.
TEST_F(ConnectionsOverGrpcTest, AClientWithALinkLocalAddressIsCutToo) {
  sockaddr_in6 address{};
  ifaddrs* all = nullptr;
  ASSERT_EQ(getifaddrs(&all), 0);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET6) continue;
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(*one->ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) && in6.sin6_scope_id != 0) address = in6;
  }
  freeifaddrs(all);
  if (address.sin6_scope_id == 0) GTEST_SKIP() << "this machine has no link-local address";
  Start({.cancels_per_second = 20}, absl::Seconds(60), kMaxMessageBytes, "[::]:0");
  address.sin6_port = htons(static_cast<uint16_t>(port()));
  RawClient rude(address);
  if (!rude.connected()) GTEST_SKIP() << "this machine does not reach its own address";
  rude.Begin();
  for (int i = 0; i < 30; ++i) {
    rude.BeginCall();
    rude.CancelCall();
  }
  EXPECT_TRUE(rude.Closed(absl::Seconds(20)));
  EXPECT_EQ(connections_->counters().cut, 1u);
}

}  // namespace
}  // namespace baton
