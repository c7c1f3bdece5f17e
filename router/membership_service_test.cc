#include "router/membership_service.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "baton/v1/membership.grpc.pb.h"
#include "common/base/log.h"
#include "common/rpc/dial.h"
#include "common/rpc/limits.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/worker_identity.h"
#include "router/router_server_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class MembershipServiceTest : public RouterServerFixture {};

TEST_F(MembershipServiceTest, OnlyWhoKnowsTheTokenMayAttach) {
  RouterServer::Options options;
  options.token = "secret";
  options.core.pair_wait = absl::ZeroDuration();
  StartRouter(options);
  const auto membership = v1::Membership::NewStub(channel_);
  const auto attach = [&](const std::string& token, const v1::WorkerReport& first) {
    grpc::ClientContext context;
    AddToken(&context, token);
    const auto stream = membership->Attach(&context);
    stream->Write(first);
    v1::RouterCommand command;
    while (stream->Read(&command)) {
    }
    return stream->Finish();
  };
  v1::WorkerReport report;
  EXPECT_EQ(attach("", report).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(attach("wrong", report).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(attach("secret", report).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  report.mutable_registration()->set_address("nowhere");
  EXPECT_THAT(attach("secret", report).error_message(), HasSubstr("'nowhere'"));
  // The router can connect to this address, which is its own. So it goes on and checks the protocol
  // version.
  report.mutable_registration()->set_address(router_->address());
  report.mutable_registration()->set_protocol_version(99);
  EXPECT_EQ(attach("secret", report).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  const GenerateOutcome outcome = Generate(Ask("Hello", 3));
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("no worker is attached"));
}

TEST_F(MembershipServiceTest, CacheChangesOfAWorkerReachTheIndexAndTheStreamGoesOn) {
  RouterServer::Options options;
  options.core.prefix_index_bytes = 1 << 20;
  StartRouter(options);
  FakeWorkers::Options workers;
  workers.cached_blocks = 3;
  StartWorkers(workers);
  // Each message adds a name. The router reads a message only after the one before it was taken.
  while (router_->request_metrics().prefix_index_names.value() < 3) workers_->AwaitLoadReport();
  EXPECT_TRUE(Generate(Ask("Hello", 3)).status.ok());
}

TEST_F(MembershipServiceTest, AMessageOfAWorkerThatIsTooLongIsRefused) {
  StartRouter();
  const auto membership = v1::Membership::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = membership->Attach(&context);
  v1::WorkerReport report;
  report.mutable_registration()->set_model(std::string(kMaxReportBytes, 'm'));
  stream->Write(report);
  v1::RouterCommand command;
  EXPECT_FALSE(stream->Read(&command));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("bytes; at most 1048576"));
}

TEST_F(MembershipServiceTest, AMessageOfAWorkerThatIsNotOneEndsTheStreamWithAReason) {
  StartRouter();
  v1::WorkerReport report;
  report.mutable_registration()->set_address("127.0.0.1:50052");
  const std::string bytes = report.SerializeAsString();
  const grpc::Status status =
      SendRaw("/baton.v1.Membership/Attach", bytes.substr(0, bytes.size() - 1));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("is not a valid baton.v1.WorkerReport"));
}

TEST_F(MembershipServiceTest, AnAddressThatIsTooLongIsRefusedAndNotRepeated) {
  StartRouter();
  v1::WorkerReport report;
  report.mutable_registration()->set_address(std::string(100'000, 'a') + ":1");
  const grpc::Status status = SendRaw("/baton.v1.Membership/Attach", report.SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "a worker registered with an address of 100002 bytes; an address has at most 300");
  // A name of DNS has at most 253 characters.
  report.mutable_registration()->set_address(std::string(253, 'a') + ":0");
  EXPECT_THAT(SendRaw("/baton.v1.Membership/Attach", report.SerializeAsString()).error_message(),
              HasSubstr("aaa:0'; it takes HOST:PORT"));
}

// Each warning is remembered for a minute, and a worker may name any address.
TEST_F(MembershipServiceTest, OfManyDifferentRefusalsNotAllAreLogged) {
  StartRouter();
  ::testing::internal::CaptureStderr();
  SetLogLevel(Severity::kInfo);
  for (size_t i = 0; i < MembershipService::kMaxWarnings + 5; ++i) {
    v1::WorkerReport report;
    // No program listens at these addresses, which are all of this machine.
    report.mutable_registration()->set_address(absl::StrCat("127.1.", i / 100, ".", i % 100, ":1"));
    grpc::Status status;
    do {
      // A client knows of the end of its stream a little earlier than the router.
      status = SendRaw("/baton.v1.Membership/Attach", report.SerializeAsString());
    } while (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << status.error_message();
  }
  SetLogLevel(Severity::kError);
  const std::string log = ::testing::internal::GetCapturedStderr();
  size_t refusals = 0;
  for (size_t at = log.find("attach_refused"); at != log.npos;
       at = log.find("attach_refused", at + 1)) {
    ++refusals;
  }
  EXPECT_EQ(refusals, MembershipService::kMaxWarnings);
}

TEST_F(MembershipServiceTest, AttachStreamsCountForTheirConnection) {
  RouterServer::Options options;
  options.connections.cancels_per_second = 20;
  StartRouter(options);
  const auto membership = v1::Membership::NewStub(channel_);
  // A client whose deadline passes cancels its RPC.
  for (int i = 0; i < 10'000 && router_->connections().cut == 0; ++i) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(3)));
    const auto stream = membership->Attach(&context);
    v1::RouterCommand command;
    EXPECT_FALSE(stream->Read(&command));
    stream->Finish();
  }
  EXPECT_GE(router_->connections().cut, 1u);
}

// The streams may reach the service in any order, so any of them may be the one that is refused.
TEST_F(MembershipServiceTest, AConnectionHasFewAttachStreams) {
  StartRouter();
  const auto membership = v1::Membership::NewStub(channel_);
  grpc::ClientContext contexts[5];
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (grpc::ClientContext& context : contexts) {
    threads.emplace_back([&] {
      const auto stream = membership->Attach(&context);
      v1::RouterCommand command;
      EXPECT_FALSE(stream->Read(&command));
      const grpc::Status status = stream->Finish();
      if (status.error_code() == grpc::StatusCode::CANCELLED) return;
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_THAT(status.error_message(), HasSubstr("has 4 Attach streams already"));
      ++refused;
      for (grpc::ClientContext& other : contexts) other.TryCancel();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 1);
}

TEST_F(MembershipServiceTest, AnAttachStreamWithoutARegistrationEnds) {
  RouterServer::Options options;
  options.limits.request_limit = absl::Milliseconds(50);
  options.hang_limit = absl::Milliseconds(200);
  StartRouter(options);
  const auto membership = v1::Membership::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = membership->Attach(&context);
  v1::RouterCommand command;
  EXPECT_FALSE(stream->Read(&command));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("no registration came within 50ms"));
}

// A worker that has an attach token refuses every call without it. So a router without the token
// could not use this worker.
TEST_F(MembershipServiceTest, AWorkerWithATokenIsRefusedByARouterWithout) {
  StartRouter();
  const auto membership = v1::Membership::NewStub(channel_);
  grpc::ClientContext context;
  AddToken(&context, "secret");
  const auto stream = membership->Attach(&context);
  stream->Write(v1::WorkerReport());
  v1::RouterCommand command;
  EXPECT_FALSE(stream->Read(&command));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("this router has none: give both the same --attach-token"));
}

// The router cannot reach two workers: one listens only on the loopback address of another machine,
// the other is behind a firewall.
TEST_F(MembershipServiceTest, AWorkerThatTheRouterCannotCallIsRefusedAndToldWhatToDo) {
  RouterServer::Options options;
  options.connect_limit = absl::Milliseconds(300);
  StartRouter(options);
  // The first socket never listens. The second one accepts connections and sends nothing.
  int sockets[2], ports[2];
  for (int i = 0; i < 2; ++i) {
    sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    ASSERT_EQ(bind(sockets[i], reinterpret_cast<const sockaddr*>(&address), size), 0);
    ASSERT_EQ(getsockname(sockets[i], reinterpret_cast<sockaddr*>(&address), &size), 0);
    ports[i] = ntohs(address.sin_port);
  }
  ASSERT_EQ(listen(sockets[1], 8), 0);
  const auto membership = v1::Membership::NewStub(channel_);
  ::testing::internal::CaptureStderr();
  SetLogLevel(Severity::kInfo);
  for (const int i : {0, 0, 1, 0}) {
    v1::WorkerReport report;
    v1::Registration& worker = *report.mutable_registration();
    worker.set_role(v1::WORKER_ROLE_DECODE);
    worker.set_address(absl::StrCat("127.0.0.1:", ports[i]));
    grpc::ClientContext context;
    const auto stream = membership->Attach(&context);
    stream->Write(report);
    v1::RouterCommand command;
    EXPECT_FALSE(stream->Read(&command));
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(),
                HasSubstr(absl::StrCat("the router can't reach this worker at 127.0.0.1:", ports[i],
                                       " (", i == 0 ? "no such host" : "no answer in 300ms")));
    EXPECT_THAT(status.error_message(), HasSubstr("--advertise"));
  }
  SetLogLevel(Severity::kError);
  const std::string log = ::testing::internal::GetCapturedStderr();
  int refusals = 0;
  for (size_t at = log.find("attach_refused"); at != log.npos;
       at = log.find("attach_refused", at + 1))
    ++refusals;
  EXPECT_EQ(refusals, 2) << log;  // Another attempt of the same worker is not logged again.
  for (const int one : sockets) close(one);
}

// The address that a worker registers must lead to this very worker, not to another one, to a
// worker with another token, or to another kind of server. One router may see another machine's
// worker at the same loopback address.
TEST_F(MembershipServiceTest, AWorkerAtWhoseAddressAnotherProcessAnswersIsRefused) {
  RouterServer::Options options;
  options.token = "secret";
  StartRouter(options);
  WorkerIdentityService right("secret", 7), other("secret", 8), no_secret("another", 7);
  const auto serve = [](std::vector<grpc::Service*> services) {
    return RpcServer::Start({.listen = "127.0.0.1:0", .services = std::move(services)}).value();
  };
  const auto right_server = serve({&right}), other_server = serve({&other}),
             no_secret_server = serve({&no_secret}), no_worker = serve({});
  const auto membership = v1::Membership::NewStub(channel_);
  // Attaches a worker at the address of `server`, and returns the status with which the stream
  // ended. Cancels the stream itself once the router has taken the worker.
  const auto attach = [&](const RpcServer& server, int protocol_version) {
    v1::WorkerReport report;
    v1::Registration& worker = *report.mutable_registration();
    worker.set_role(v1::WORKER_ROLE_DECODE);
    worker.set_address(server.address());
    worker.set_epoch(7);
    worker.set_protocol_version(static_cast<uint32_t>(protocol_version));
    worker.set_block_tokens(16);
    worker.set_total_blocks(100);
    worker.set_context_tokens(100);
    worker.set_max_batch(1);
    grpc::ClientContext context;
    AddToken(&context, "secret");
    const auto stream = membership->Attach(&context);
    stream->Write(report);
    v1::RouterCommand command;
    while (stream->Read(&command)) context.TryCancel();
    return stream->Finish();
  };
  EXPECT_EQ(attach(*right_server, kProtocolVersion).error_code(), grpc::StatusCode::CANCELLED);
  grpc::Status status = attach(*other_server, kProtocolVersion);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              HasSubstr(absl::StrCat("does not reach this worker at ", other_server->address(),
                                     ": another worker (epoch 0000000000000008) answers")));
  EXPECT_THAT(status.error_message(), HasSubstr("--advertise"));
  status = attach(*no_secret_server, kProtocolVersion);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("with another attach token"));
  status = attach(*no_worker, kProtocolVersion);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("the program that answers there is not a worker"));
  // A worker of an older version may lack the service by which workers identify themselves, as
  // `no_worker` does. The message must name its protocol version.
  status = attach(*no_worker, kProtocolVersion - 1);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("protocol ", kProtocolVersion - 1)));
}

// A worker goes away while the router asks which process answers at its address. No process ever
// answers there. The stream ends without waiting for the time limit of that call, and so does the
// router's shutdown.
TEST_F(MembershipServiceTest, AWorkerMayLeaveWhileTheRouterAsksWhoAnswers) {
  RouterServer::Options options;
  options.connect_limit = absl::Hours(1);
  StartRouter(options);
  const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(silent, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(listen(silent, 8), 0);
  const auto membership = v1::Membership::NewStub(channel_);
  for (const bool worker_leaves : {true, false}) {
    v1::WorkerReport report;
    report.mutable_registration()->set_address(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
    grpc::ClientContext context;
    const auto stream = membership->Attach(&context);
    stream->Write(report);
    // The router has connected to the address of the worker, so it is asking which process answers
    // there.
    const int asking = accept4(silent, nullptr, nullptr, SOCK_CLOEXEC);
    ASSERT_GE(asking, 0);
    if (worker_leaves) {
      context.TryCancel();
    } else {
      router_->Shutdown(absl::ZeroDuration());
    }
    v1::RouterCommand command;
    EXPECT_FALSE(stream->Read(&command));
    EXPECT_EQ(stream->Finish().error_code(),
              worker_leaves ? grpc::StatusCode::CANCELLED : grpc::StatusCode::UNAVAILABLE);
    close(asking);
  }
  close(silent);
}

}  // namespace
}  // namespace baton
