#pragma once

#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "baton/v1/inference.grpc.pb.h"
#include "common/base/log.h"
#include "common/base/steady_time.h"
#include "common/rpc/dial.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "router/router_server.h"
#include "router/testing/fake_worker.h"

namespace baton {

inline const Tokenizer& DemoTokenizer() {
  static const Tokenizer* tokenizer = [] {
    auto loaded = Tokenizer::FromFile(BATON_SOURCE_DIR "/common/model/demo/tokenizer.json");
    BATON_CHECK(loaded.ok()) << loaded.status();
    return loaded->release();
  }();
  return *tokenizer;
}

// The events and the status that a client got of one Generate call.
struct GenerateOutcome {
  grpc::Status status;
  std::vector<v1::GenerateEvent> events;
  std::vector<TokenId> tokens;
  std::string text;
  v1::Finished finished;
  v1::Summary summary;
};

// Keeps gRPC's threads for callbacks to the end of the program. gRPC 1.51 ends them with the last
// channel and server that use them, and now and then aborts while it does ("prior > 0" in
// grpc_cq_internal_unref), so that one of some fifty runs of many short servers failed.
inline void KeepCallbackThreads(const std::string& address) {
  static const auto* const kept = [&address] {
    auto* const channel = new std::shared_ptr<grpc::Channel>(Dial(address));
    const auto health = grpc::health::v1::Health::NewStub(*channel);
    grpc::ClientContext context;
    const grpc::health::v1::HealthCheckRequest request;
    grpc::health::v1::HealthCheckResponse response;
    std::latch done(1);
    health->async()->Check(&context, &request, &response,
                           [&done](const grpc::Status&) { done.count_down(); });
    done.wait();
    return channel;
  }();
  static_cast<void>(kept);
}

// A router for the demo model, with a client and, if asked for, fake workers.
class RouterServerFixture : public ::testing::Test {
 protected:
  void StartRouter(RouterServer::Options options = {}) {
    SetLogLevel(Severity::kError);
    const auto config = ReadModelConfig(BATON_SOURCE_DIR "/common/model/demo");
    ASSERT_TRUE(config.ok()) << config.status();
    if (options.model.tokenizer == nullptr) options.model.tokenizer = &DemoTokenizer();
    options.model.name = "demo";
    options.model.config = *config;
    auto started = RouterServer::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    router_ = *std::move(started);
    KeepCallbackThreads(router_->address());
    channel_ = Dial(router_->address());
    stub_ = v1::Inference::NewStub(channel_);
  }
  void StartWorkers(FakeWorkers::Options options = {}) {
    options.router = router_->address();
    workers_ = std::make_unique<FakeWorkers>(options);
  }
  static v1::GenerateRequest Ask(const std::string& text, int max_tokens) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.mutable_sampling()->set_max_tokens(static_cast<uint32_t>(max_tokens));
    return request;
  }
  GenerateOutcome Generate(const v1::GenerateRequest& request) {
    GenerateOutcome outcome;
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
      outcome.events.push_back(event);
      outcome.text += event.delta().text();
      for (const v1::Token& token : event.delta().tokens()) {
        outcome.tokens.push_back(token.token_id());
      }
      if (event.has_finished()) outcome.finished = event.finished();
      if (event.has_summary()) outcome.summary = event.summary();
    }
    outcome.status = reader->Finish();
    return outcome;
  }
  // Waits until `reached` returns true, but not longer than half a minute. Returns its last result.
  static bool Await(const std::function<bool()>& reached) {
    const absl::Time limit = SteadyNow() + absl::Seconds(30);
    while (!reached() && SteadyNow() < limit) std::this_thread::yield();
    return reached();
  }
  bool Healthy(const std::string& service) {
    const auto health = grpc::health::v1::Health::NewStub(channel_);
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_TRUE(health->Check(&context, request, &response).ok());
    return response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  }
  // Sends bytes as they are to a method, and returns the status.
  grpc::Status SendRaw(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    const auto call = stub.PrepareCall(&context, method, &queue);
    const auto next = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      BATON_CHECK(queue.Next(&tag, &ok)) << "the queue is over";
    };
    call->StartCall(nullptr);
    next();
    const grpc::Slice slice(bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    next();
    grpc::Status status;
    call->Finish(&status, nullptr);
    next();
    return status;
  }

  std::unique_ptr<RouterServer> router_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::unique_ptr<FakeWorkers> workers_;
};

}  // namespace baton
