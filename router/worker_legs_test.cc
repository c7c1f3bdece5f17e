#include "router/worker_legs.h"

#include <map>
#include <memory>
#include <string>
#include <variant>

#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/one_request_call.h"
#include "common/rpc/rpc_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// A worker that answers each request with bytes that are no message, and keeps the RPC open.
class GarbageService final : public OneRequestService {
 public:
  explicit GarbageService(Connections* connections)
      : OneRequestService(connections, absl::InfiniteDuration()) {
    for (const char* method :
         {"/baton.v1.PrefillWorker/Prefill", "/baton.v1.DecodeWorker/Decode"}) {
      AddMethod(method,
                [this](grpc::CallbackServerContext* context) { return new Call(this, context); });
    }
  }

 private:
  class Call final : public OneRequestCall {
   public:
    using OneRequestCall::OneRequestCall;

   private:
    void OnRequest(const grpc::ByteBuffer&) override {
      const grpc::Slice bytes(std::string(7, '\xff'));
      garbage_ = grpc::ByteBuffer(&bytes, 1);
      StartWrite(&garbage_);
    }
    void EndWithoutRequest(const absl::Status&) override { Finish(grpc::Status::OK); }
    void OnCancel() override {
      OneRequestCall::OnCancel();
      Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override {
      OneRequestCall::OnDone();
      delete this;
    }
    grpc::ByteBuffer garbage_;
  };
};

TEST(WorkerLegsTest, AMessageThatDoesNotParseEndsTheLeg) {
  Connections connections({});
  GarbageService service(&connections);
  const auto server = RpcServer::Start(
      {.listen = "127.0.0.1:0", .services = {&service}, .connections = &connections});
  ASSERT_TRUE(server.ok()) << server.status();
  Mutex mutex;
  CondVar changed;
  std::map<LegKey, absl::Status> ended;
  WorkerLegs legs("", [&](CoreEvent event) {
    MutexLock lock(&mutex);
    if (const auto* end = std::get_if<LegEnded>(&event)) ended[end->leg] = end->status;
    changed.SignalAll();
  });
  const WorkerName worker = {1, (*server)->address(), 11};
  legs.Start(StartPrefill{.leg = 1, .worker = worker, .deadline = absl::InfiniteFuture()});
  legs.Start(StartDecode{.leg = 2, .worker = worker, .deadline = absl::InfiniteFuture()});
  {
    MutexLock lock(&mutex);
    while (ended.size() < 2) changed.Wait(&mutex);
  }
  EXPECT_EQ(ended[1].code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(ended[1].message()),
              HasSubstr("sent a message of 7 bytes that is not a baton.v1.PrefillEvent"));
  EXPECT_THAT(std::string(ended[2].message()), HasSubstr("is not a baton.v1.DecodeEvent"));
  legs.Ended(1);
  legs.Ended(2);
}

}  // namespace
}  // namespace baton
