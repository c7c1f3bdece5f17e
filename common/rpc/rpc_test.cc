#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/steady_time.h"
#include "common/rpc/dial.h"
#include "common/rpc/reflection_service.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/status.h"
#include "common/rpc/worker_identity.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
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

TEST(WorkerIdentityTest, ARequestForAnotherEpochIsRefusedAsAborted) {
  EXPECT_TRUE(CheckWorkerEpoch(5, 5).ok());
  const absl::Status status = CheckWorkerEpoch(0, 0xab);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
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

TEST(RpcServerTest, HealthIsThatOfTheNamedService) {
  using Response = grpc::health::v1::HealthCheckResponse;
  Mirror mirror;
  const auto server = RpcServer::Start({.listen = "127.0.0.1:0", .services = {&mirror}});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = grpc::health::v1::Health::NewStub(Dial((*server)->address()));
  const auto check = [&](const std::string& service) -> std::string {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    Response response;
    const grpc::Status status = stub->Check(&context, request, &response);
    return status.ok() ? Response::ServingStatus_Name(response.status()) : status.error_message();
  };
  EXPECT_EQ(check(""), "SERVING");
  EXPECT_EQ(check("a.B"), "this server has no such service");
  EXPECT_EQ(check(std::string(5000, 'x')), "the health check has 5003 bytes, limit 4096");
  // A client that watches is told of each change, and of the end.
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("a.B");
  const auto watch = stub->Watch(&context, request);
  Response response;
  for (const char* expected : {"SERVICE_UNKNOWN", "SERVING", "NOT_SERVING", "SERVING"}) {
    ASSERT_TRUE(watch->Read(&response));
    EXPECT_EQ(Response::ServingStatus_Name(response.status()), expected);
    (*server)->SetServing("a.B", response.status() != Response::SERVING);
  }
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), Response::NOT_SERVING);
  EXPECT_EQ(check("a.B"), "NOT_SERVING");
  EXPECT_EQ(check(""), "SERVING");
  std::thread ends([&] { (*server)->Shutdown(absl::InfiniteDuration()); });
  EXPECT_FALSE(watch->Read(&response)) << response.status();
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  ends.join();
}

using ReflectionRequest = grpc::reflection::v1alpha::ServerReflectionRequest;
using ReflectionResponse = grpc::reflection::v1alpha::ServerReflectionResponse;

// A stream of server reflection.
class Reflection {
 public:
  explicit Reflection(const std::shared_ptr<grpc::Channel>& channel,
                      const char* version = "v1alpha")
      : stub_(channel) {
    call_ = stub_.PrepareCall(
        &context_,
        absl::StrCat("/grpc.reflection.", version, ".ServerReflection/ServerReflectionInfo"),
        &queue_);
    call_->StartCall(nullptr);
    Wait();
  }
  // Sends a request and reads its response. Returns false if the stream has ended.
  bool Ask(const ReflectionRequest& request, ReflectionResponse* response) {
    call_->Write(request, nullptr);
    if (!Wait()) return false;
    call_->Read(response, nullptr);
    return Wait();
  }
  grpc::Status End() {
    call_->WritesDone(nullptr);
    Wait();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Wait();
    return status;
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::TemplatedGenericStub<ReflectionRequest, ReflectionResponse> stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<ReflectionRequest, ReflectionResponse>> call_;
};

TEST(ReflectionServiceTest, DescribesServicesFilesAndSymbols) {
  Mirror mirror;
  const auto server = RpcServer::Start(
      {.listen = "127.0.0.1:0", .services = {&mirror}, .names = {"baton.v1.Inference"}});
  ASSERT_TRUE(server.ok()) << server.status();
  for (const char* version : {"v1alpha", "v1"}) {
    Reflection stream(Dial((*server)->address()), version);
    ReflectionRequest request;
    ReflectionResponse response;
    request.set_host("here");
    request.set_list_services("");
    ASSERT_TRUE(stream.Ask(request, &response));
    EXPECT_EQ(response.valid_host(), "here");
    EXPECT_EQ(response.original_request().host(), "here");
    std::vector<std::string> names;
    for (const auto& service : response.list_services_response().service()) {
      names.push_back(service.name());
    }
    EXPECT_THAT(names, testing::ElementsAre("baton.v1.Inference", "grpc.health.v1.Health",
                                            "grpc.reflection.v1alpha.ServerReflection"));
    request.set_file_containing_symbol("baton.v1.Inference.Generate");
    ASSERT_TRUE(stream.Ask(request, &response));
    google::protobuf::DescriptorPool pool;
    for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      ASSERT_TRUE(file.ParseFromString(bytes));
      ASSERT_NE(pool.BuildFile(file), nullptr) << file.name() << " came before what it imports";
    }
    EXPECT_NE(pool.FindMethodByName("baton.v1.Inference.Generate"), nullptr);
    request.set_file_by_filename("grpc/health/v1/health.proto");
    ASSERT_TRUE(stream.Ask(request, &response));
    EXPECT_EQ(response.file_descriptor_response().file_descriptor_proto_size(), 1);
    request.set_all_extension_numbers_of_type("baton.v1.Model");
    ASSERT_TRUE(stream.Ask(request, &response));
    EXPECT_EQ(response.all_extension_numbers_response().base_type_name(), "baton.v1.Model");
    const auto error = [&]() -> std::string {
      return stream.Ask(request, &response) ? response.error_response().error_message() : "ended";
    };
    request.set_file_containing_symbol("no.such.Thing");
    EXPECT_EQ(error(), "this server has no symbol 'no.such.Thing'");
    EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::NOT_FOUND);
    request.set_file_by_filename("no.proto");
    EXPECT_EQ(error(), "this server has no file 'no.proto'");
    request.mutable_file_containing_extension()->set_containing_type("baton.v1.Model");
    EXPECT_EQ(error(), "this server has no extension 0 of 'baton.v1.Model'");
    request.set_all_extension_numbers_of_type("no.such.Thing");
    EXPECT_EQ(error(), "this server has no message 'no.such.Thing'");
    request.clear_message_request();
    EXPECT_EQ(error(), "the request asks for nothing");
    EXPECT_TRUE(stream.End().ok());
  }
}

TEST(ReflectionServiceTest, AConnectionHasFewStreamsAndALongRequestEndsOne) {
  const auto server = RpcServer::Start({.listen = "127.0.0.1:0"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = Dial((*server)->address());
  ReflectionRequest request;
  ReflectionResponse response;
  request.set_list_services("");
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<Reflection>> streams;
    for (int i = 0; i < 4; ++i) {
      streams.push_back(std::make_unique<Reflection>(channel));
      // A client knows of the end of its stream a little earlier than the server.
      for (int tries = 0; round > 0 && tries < 10000; ++tries) {
        if (streams.back()->Ask(request, &response)) break;
        streams.back()->End();
        std::this_thread::yield();
        streams.back() = std::make_unique<Reflection>(channel);
      }
      EXPECT_TRUE(streams.back()->Ask(request, &response));
    }
    Reflection more(channel);
    EXPECT_FALSE(more.Ask(request, &response));
    EXPECT_EQ(more.End().error_message(),
              "this connection has more than 4 streams of server reflection");
    ReflectionRequest longest;
    longest.set_file_by_filename(std::string(5000, 'x'));
    EXPECT_FALSE(streams[0]->Ask(longest, &response));
    EXPECT_EQ(streams[0]->End().error_message(), "the request has 5003 bytes, limit 4096");
    for (int i = 1; i < 4; ++i) EXPECT_TRUE(streams[i]->End().ok());
  }
}

TEST(ReflectionServiceTest, AStreamWithoutRequestsEnds) {
  Connections connections({});
  ReflectionService service(&connections, {});
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  Reflection stream(Dial(absl::StrCat("127.0.0.1:", port)));
  ReflectionRequest request;
  ReflectionResponse response;
  request.set_list_services("");
  EXPECT_TRUE(stream.Ask(request, &response));
  service.EndIdle(SteadyNow() + absl::Seconds(30));
  EXPECT_TRUE(stream.Ask(request, &response));
  service.EndIdle(SteadyNow() + absl::Seconds(90));
  const grpc::Status status = stream.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "no request came for 1m");
  server->Shutdown();
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
