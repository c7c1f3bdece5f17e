#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/dial.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/status.h"
#include "common/rpc/worker_identity.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(HostPortTest, TakesNamesAndBothAddressFamilies) {
  for (const char* good : {"127.0.0.1:0", "localhost:50051", "[::1]:1", "router-0.routers:65535"}) {
    EXPECT_TRUE(IsHostPort(good)) << good;
  }
  for (const char* bad :
       {"", ":1", "host", "host:", "host:65536", "host:-1", "::1:80", "http://x:1", "a b:1"}) {
    EXPECT_FALSE(IsHostPort(bad)) << bad;
  }
}

TEST(HostPortTest, KnowsWhatIsEveryAddress) {
  for (const char* any : {"0.0.0.0:0", "0.0.0.0", "[::]:50052", "::", "[::]"})
    EXPECT_TRUE(IsAnyAddress(any)) << any;
  for (const char* one : {"127.0.0.1:0", "[::1]:1", "fd00::5", "node-0:50052", "10.0.0.0", ""})
    EXPECT_FALSE(IsAnyAddress(one)) << one;
}

TEST(WorkerIdentityTest, TellsItsEpochToThoseWhoKnowTheToken) {
  WorkerIdentityService service("secret", 0xfedcba9876543210);
  const auto server = RpcServer::Start({.listen = "127.0.0.1:0", .services = {&service}});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::WorkerIdentity::NewStub(Dial((*server)->address()));
  for (const std::string token : {"secret", "another", ""}) {
    grpc::ClientContext context;
    AddToken(&context, token);
    v1::IdentifyResponse response;
    const grpc::Status status = stub->Identify(&context, {}, &response);
    if (token == "secret") {
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.epoch(), 0xfedcba9876543210);
    } else {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << token;
    }
  }
}

TEST(WorkerIdentityTest, ARequestForAnotherEpochIsRefusedAsUnavailable) {
  EXPECT_TRUE(CheckWorkerEpoch(5, 5).ok());
  const absl::Status status = CheckWorkerEpoch(0, 0xab);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker of epoch 00000000000000ab answers"));
}

TEST(RpcServerTest, ABadListenAddressIsNamed) {
  EXPECT_THAT(RpcServer::Start({.listen = "nowhere"}).status().message(), HasSubstr("'nowhere'"));
}

TEST(RpcServerTest, AnAddressInUseIsUnavailable) {
  const auto first = RpcServer::Start({.listen = "127.0.0.1:0"});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = RpcServer::Start({.listen = (*first)->address()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(second.status().message()),
      StartsWith(absl::StrCat("can't listen on ", (*first)->address(), ": port ",
                              PortOf((*first)->address()), " is taken by another program")));
}

// A service that tells every caller from which address its connection comes.
class Mirror : public v1::Inference::CallbackService {
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    response->add_models()->set_name(context->peer());
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

TEST(RpcServerTest, AnOldConnectionIsLeftByNewCallsOfWhichNoneFails) {
  Mirror mirror;
  const auto server = RpcServer::Start(
      {.listen = "127.0.0.1:0", .services = {&mirror}, .connection_age = absl::Milliseconds(50)});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = Dial((*server)->address());
  grpc::ClientContext watching;  // the RPC starts on the first connection and stays on it
  const auto watch = grpc::health::v1::Health::NewStub(channel)->Watch(&watching, {});
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  const auto stub = v1::Inference::NewStub(channel);
  std::set<std::string> connections;
  while (connections.size() < 4) {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    const grpc::Status status = stub->ListModels(&context, {}, &models);
    ASSERT_TRUE(status.ok()) << status.error_message();
    connections.insert(models.models(0).name());
  }
  (*server)->SetServing("", false);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), response.NOT_SERVING);
  watching.TryCancel();
  watch->Finish();
}

// A busy machine may take a while to answer a new connection. If the client gave up early, a live
// peer would look dead.
TEST(DialTest, AServerThatIsSlowToAnswerIsWaitedFor) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto channel = Dial(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
  channel->GetState(true);
  // The TCP connection exists, but the server has not sent a byte. The channel must go on
  // connecting for 400 ms.
  const auto later = std::chrono::system_clock::now() + std::chrono::milliseconds(400);
  while (channel->GetState(true) != GRPC_CHANNEL_CONNECTING) {
    ASSERT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_IDLE, later));
  }
  EXPECT_FALSE(channel->WaitForStateChange(GRPC_CHANNEL_CONNECTING, later));
  close(listener);
}

TEST(AttachTokenTest, IsWhatCanBeSentAndNeverEmptyByMistake) {
  EXPECT_EQ(*AttachToken(""), "");
  EXPECT_EQ(*AttachToken("secret~1"), "secret~1");
  const absl::Status newline = AttachToken("secret\n").status();
  EXPECT_EQ(newline.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(newline.message(), HasSubstr("--attach-token"));
  EXPECT_THAT(newline.message(), HasSubstr("character 7 of 7 has code 10"));
  EXPECT_THAT(newline.message(), Not(HasSubstr("secret")));
  setenv("BATON_ATTACH_TOKEN", "other", 1);
  EXPECT_EQ(*AttachToken(""), "other");
  EXPECT_EQ(*AttachToken("mine"), "mine");
  setenv("BATON_ATTACH_TOKEN", "a b", 1);
  EXPECT_THAT(AttachToken("").status().message(), HasSubstr("BATON_ATTACH_TOKEN takes"));
  setenv("BATON_ATTACH_TOKEN", "", 1);
  EXPECT_THAT(AttachToken("").status().message(), HasSubstr("set but empty"));
  unsetenv("BATON_ATTACH_TOKEN");
}

TEST(StatusTest, CodeAndMessageSurviveTheWayThereAndBack) {
  const absl::Status status = absl::ResourceExhaustedError("queue of 8 is full");
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  EXPECT_TRUE(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())).ok());
}

}  // namespace
}  // namespace baton
