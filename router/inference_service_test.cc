#include "router/grpc/inference_service.h"

#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/steady_time.h"
#include "common/rpc/retry_after.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/status.h"
#include "router/router_server_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class InferenceServiceTest : public RouterServerFixture {};

// A Tokenize call whose client does not read the answer. Its destructor cancels the call.
class UnreadTokenize {
 public:
  // Begins the call, and waits until the answer or an error begins to come.
  UnreadTokenize(const std::string& address, const v1::TokenizeRequest& request)
      : stub_(ChannelTo(address)),
        call_(stub_.PrepareCall(&context_, "/baton.v1.Inference/Tokenize", &queue_)) {
    call_->StartCall(nullptr);
    Await();
    const grpc::Slice slice(request.SerializeAsString());
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    Await();
    call_->ReadInitialMetadata(nullptr);
    Await();
  }

 private:
  // Returns a channel that takes little of an answer before the client reads it.
  static std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 16);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  void Await() {
    void* tag = nullptr;
    bool ok = false;
    BATON_CHECK(queue_.Next(&tag, &ok)) << "the queue is over";
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// The answer has about five bytes for each byte of this text, because each byte is a token.
v1::TokenizeRequest LongTextToTokenize() {
  v1::TokenizeRequest request;
  request.set_text(std::string(1 << 16, '\x01'));
  return request;
}

TEST_F(InferenceServiceTest, TokenizeAndDetokenizeGoThereAndBack) {
  StartRouter();
  v1::TokenizeRequest there;
  there.set_text("Äpfel, 猫 and 🙂");
  there.set_add_special(false);
  v1::TokenizeResponse ids;
  grpc::ClientContext first;
  ASSERT_TRUE(stub_->Tokenize(&first, there, &ids).ok());
  std::string joined;
  for (const std::string& piece : ids.pieces()) joined += piece;
  EXPECT_EQ(joined, there.text());
  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = ids.token_ids();
  v1::DetokenizeResponse text;
  grpc::ClientContext second;
  ASSERT_TRUE(stub_->Detokenize(&second, back, &text).ok());
  EXPECT_EQ(text.text(), there.text());
  EXPECT_EQ(absl::StrJoin(text.pieces(), ""), there.text());
  back.add_token_ids(4096);
  grpc::ClientContext third;
  EXPECT_EQ(stub_->Detokenize(&third, back, &text).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  there.set_model("other");
  grpc::ClientContext fourth;
  EXPECT_EQ(stub_->Tokenize(&fourth, there, &ids).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(InferenceServiceTest, TokenizeCountsTheBytesThatHaveNoToken) {
  const auto tokenizer = Tokenizer::FromJson(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "c": 1, "ac": 2}, "merges": ["a c"]},
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
          "decoder": {"type": "ByteLevel"}})",
      "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  StartRouter({.model = {.tokenizer = tokenizer->get()}});
  for (const auto& [text, dropped] : {std::pair{"ac", 0u}, {"axc\u00e9", 3u}}) {
    v1::TokenizeRequest request;
    request.set_text(text);
    v1::TokenizeResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->Tokenize(&context, request, &response).ok());
    EXPECT_THAT(response.token_ids(), testing::ElementsAre(2));
    EXPECT_EQ(response.dropped_bytes(), dropped) << text;
  }
}

TEST_F(InferenceServiceTest, TextCallsBeyondTheLimitAreRefusedAndNothingElseIs) {
  RouterServer::Options options;
  options.max_text_calls = 50;
  StartRouter(options);
  StartWorkers({});
  const auto tokenize = [this] {
    v1::TokenizeRequest request;
    request.set_text("Hello");
    v1::TokenizeResponse response;
    grpc::ClientContext context;
    return stub_->Tokenize(&context, request, &response);
  };
  const auto detokenize = [this] {
    v1::DetokenizeRequest request;
    request.add_token_ids(300);
    v1::DetokenizeResponse response;
    grpc::ClientContext context;
    return stub_->Detokenize(&context, request, &response);
  };
  {
    std::vector<SharedBudget::Share> running;
    for (int i = 0; i < 50; ++i) {
      running.push_back(*router_->text_calls().Take(absl::StrCat("caller ", i), 1));
    }
    for (const grpc::Status& status : {tokenize(), detokenize()}) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_THAT(status.error_message(), HasSubstr("50 calls"));
    }
    EXPECT_EQ(router_->text_calls_refused(), 2u);
    v1::ListModelsResponse models;
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->ListModels(&context, {}, &models).ok());
    EXPECT_TRUE(Generate(Ask("Hello", 4)).status.ok());
    EXPECT_EQ(router_->text_calls().taken(), 50u);
    EXPECT_EQ(router_->text_calls_refused(), 2u);
  }
  // A call counts towards the limit until gRPC is done with it, perhaps after the client has its
  // answer. So the limit is higher than the number of calls in this loop.
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(tokenize().ok());
    EXPECT_TRUE(detokenize().ok());
  }
  router_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(router_->text_calls().taken(), 0u);
}

TEST_F(InferenceServiceTest, ATokenizeCallThatIsNotReadEndsAtTheRoutersDeadline) {
  RouterServer::Options options;
  options.limits.default_deadline = absl::Milliseconds(500);
  StartRouter(options);
  const UnreadTokenize unread(router_->address(), LongTextToTokenize());
  // The client does not see the end before it has read the answer.
  const absl::Time limit = SteadyNow() + absl::Minutes(1);
  while (router_->text_calls().taken() > 0 && SteadyNow() < limit) std::this_thread::yield();
  EXPECT_EQ(router_->text_calls().taken(), 0u);
}

TEST_F(InferenceServiceTest, BytesOfAnswersAreLimitedUntilTheyHaveBeenRead) {
  RouterServer::Options options;
  const v1::TokenizeRequest request = LongTextToTokenize();
  options.limits.text_bytes = request.text().size();
  StartRouter(options);
  const auto tokenize = [&] {
    v1::TokenizeResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub_->Tokenize(&context, request, &response);
    EXPECT_EQ(response.token_ids_size() > 1 << 16, status.ok());
    return status;
  };
  EXPECT_TRUE(tokenize().ok());
  // The max is 8 texts and 1 MiB. An answer has the bytes of about five texts.
  std::vector<std::unique_ptr<UnreadTokenize>> unread;
  for (int i = 0; i < 16; ++i) {
    unread.push_back(std::make_unique<UnreadTokenize>(router_->address(), request));
  }
  const grpc::Status refused = tokenize();
  ASSERT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("the max is 1572864"));
  EXPECT_TRUE(RetryAfter(FromGrpcStatus(refused)).has_value());
  // Small calls go on, and those that were refused end.
  v1::DetokenizeResponse text;
  grpc::ClientContext context;
  EXPECT_TRUE(stub_->Detokenize(&context, {}, &text).ok());
  while (router_->text_calls().taken() > 5) std::this_thread::yield();
  EXPECT_GE(router_->text_calls().taken(), 3u);
  unread.clear();
  while (!tokenize().ok()) std::this_thread::yield();
}

// The rude caller is the address, and the polite one has a name.
TEST_F(InferenceServiceTest, OneCallerThatReadsNothingLeavesPlacesAndBytesForOthers) {
  for (const bool bytes : {false, true}) {
    SCOPED_TRACE(bytes ? "bytes of answers" : "places");
    RouterServer::Options options;
    const v1::TokenizeRequest request = LongTextToTokenize();
    options.limits.trust_tenant_metadata = true;
    options.max_text_calls = bytes ? 64 : 4;
    if (bytes) options.limits.text_bytes = request.text().size();
    StartRouter(options);
    std::vector<std::unique_ptr<UnreadTokenize>> unread;
    for (int i = 0; i < 8; ++i) {
      unread.push_back(std::make_unique<UnreadTokenize>(router_->address(), request));
    }
    EXPECT_TRUE(Await([this] { return router_->text_calls().taken() <= 3; }));
    EXPECT_EQ(router_->text_calls().taken(), 3u);
    EXPECT_EQ(router_->text_calls_refused(), 5u);
    for (const char* tenant : {"", "b"}) {
      v1::TokenizeResponse response;
      grpc::ClientContext context;
      if (*tenant != '\0') context.AddMetadata(kTenantHeader, tenant);
      const grpc::Status status = stub_->Tokenize(&context, request, &response);
      EXPECT_EQ(status.error_code(),
                *tenant == '\0' ? grpc::StatusCode::RESOURCE_EXHAUSTED : grpc::StatusCode::OK)
          << status.error_message();
    }
    unread.clear();
    router_ = nullptr;
  }
}

// The first message has more ids than the pool's bytes, if it counts the memory that they take when
// they are parsed. The second one has a longer text than the pool's default.
TEST_F(InferenceServiceTest, EverythingThatTheLimitsAllowIsLookedAt) {
  StartRouter();
  v1::DetokenizeRequest ids;
  ids.mutable_token_ids()->Resize(7 << 20, 5);
  ids.add_token_ids(4096);
  const grpc::Status unknown = SendRaw("/baton.v1.Inference/Detokenize", ids.SerializeAsString());
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(unknown.error_message(), HasSubstr("token_ids[7340032] is 4096"));
  router_ = nullptr;
  RouterServer::Options options;
  options.limits.text_bytes = 63 << 20;
  StartRouter(options);
  v1::TokenizeRequest text;
  text.set_model("other");
  text.set_text(std::string(41 << 20, 'a'));
  const grpc::Status other = SendRaw("/baton.v1.Inference/Tokenize", text.SerializeAsString());
  EXPECT_EQ(other.error_code(), grpc::StatusCode::NOT_FOUND) << other.error_message();
}

// A service whose pool is held, so that the test decides which texts wait.
class HeldPoolTest : public ::testing::Test {
 protected:
  HeldPoolTest() {
    Hold(2000);
    Hold(1);
    auto started = RpcServer::Start({.listen = "127.0.0.1:0",
                                     .services = {&service_},
                                     .connections = &connections_,
                                     .max_message_bytes = 1 << 20});
    BATON_CHECK(started.ok()) << started.status();
    server_ = *std::move(started);
    stub_ = v1::Inference::NewStub(Dial(server_->address()));
  }
  ~HeldPoolTest() override {
    go_.count_down();
    while (pool_.waiting() > 0) std::this_thread::yield();
    server_->Shutdown(absl::ZeroDuration());
  }
  // Occupies a thread of the pool to the end of the test.
  void Hold(size_t bytes) {
    std::latch begun(1);
    const absl::Status status = pool_.Submit("holder", bytes, [&](const absl::Status&) {
      begun.count_down();
      go_.wait();
    });
    BATON_CHECK(status.ok()) << status;
    begun.wait();
  }
  static ServedModel Demo() {
    return {"demo", *ReadModelConfig(BATON_SOURCE_DIR "/common/model/demo"), &DemoTokenizer()};
  }
  void Note(const Refusal& refusal) {
    MutexLock lock(&mutex_);
    refusals_.push_back({refusal.caller, refusal.status.code(),
                         std::get<std::string>(refusal.request.prompt).size(), refusal.cause});
  }

  struct Noted {
    std::string caller;
    absl::StatusCode code;
    size_t text;
    Refusal::Cause cause;
  };
  std::latch go_{1};
  Mutex mutex_;
  std::vector<Noted> refusals_ ABSL_GUARDED_BY(mutex_);
  Connections connections_{ConnectionLimits{}};
  Door door_{{.model = Demo(),
              .limits = {.trust_tenant_metadata = true},
              .max_open_bytes = 1 << 20,
              .max_text_calls = 4,
              .pool = {.threads = 2, .max_bytes = 50000, .large_bytes = 1000}},
             {.room = [](size_t, size_t) { return absl::OkStatus(); },
              .submit = [](CoreEvent) { return false; },
              .tell = [](CoreEvent) {},
              .refused = [this](const Refusal& refusal) { Note(refusal); }}};
  EncodePool& pool_ = door_.pool();
  ApiKeys keys_;
  InferenceService service_{&door_, &connections_, &keys_};
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST_F(HeldPoolTest, CallsWhoseTextsMakeRoomForOthersEndAtOnce) {
  const std::string text(20000, 'a');
  absl::Status generated, tokenized;
  std::thread generate([&] {
    v1::GenerateRequest request;
    request.set_text(text);
    grpc::ClientContext context;
    context.AddMetadata(kTenantHeader, "a");
    v1::GenerateEvent event;
    const auto reader = stub_->Generate(&context, request);
    EXPECT_FALSE(reader->Read(&event));
    generated = FromGrpcStatus(reader->Finish());
  });
  while (pool_.waiting() < 1) std::this_thread::yield();
  std::thread tokenize([&] {
    v1::TokenizeRequest request;
    request.set_text(text);
    grpc::ClientContext context;
    context.AddMetadata(kTenantHeader, "a");
    v1::TokenizeResponse response;
    tokenized = FromGrpcStatus(stub_->Tokenize(&context, request, &response));
  });
  while (pool_.waiting() < 2) std::this_thread::yield();
  EXPECT_TRUE(
      pool_.Submit("b", 18000, [](const absl::Status& turn) { EXPECT_TRUE(turn.ok()); }).ok());
  tokenize.join();
  EXPECT_TRUE(
      pool_.Submit("c", 17000, [](const absl::Status& turn) { EXPECT_TRUE(turn.ok()); }).ok());
  generate.join();
  for (const absl::Status& status : {generated, tokenized}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the caller of this one has the most"));
    EXPECT_TRUE(RetryAfter(status).has_value()) << status;
  }
  EXPECT_EQ(door_.text_calls_refused().value(), 1u);
  MutexLock lock(&mutex_);
  ASSERT_EQ(refusals_.size(), 1u);
  EXPECT_EQ(refusals_[0].caller, "a");
  EXPECT_EQ(refusals_[0].text, text.size());
  EXPECT_EQ(refusals_[0].cause, Refusal::Cause::kTexts);
}

// The core's inbox is full. Nothing of the request stays.
TEST_F(HeldPoolTest, ARequestThatTheCoreDoesNotTakeIsRefused) {
  v1::GenerateRequest request;
  request.set_text("short");
  grpc::ClientContext context;
  v1::GenerateEvent event;
  const auto reader = stub_->Generate(&context, request);
  EXPECT_FALSE(reader->Read(&event));
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("its inbox is full"));
  EXPECT_EQ(door_.open_bytes(), 0u);
  MutexLock lock(&mutex_);
  ASSERT_EQ(refusals_.size(), 1u);
  EXPECT_EQ(refusals_[0].caller, "ipv4:127.0.0.1");
  EXPECT_EQ(refusals_[0].cause, Refusal::Cause::kNoMemory);
}

}  // namespace
}  // namespace baton
