#include "router/inference_service.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/steady_time.h"
#include "common/rpc/retry_after.h"
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
    std::vector<CallLimit::Place> running;
    for (int i = 0; i < 50; ++i) running.push_back(*router_->text_calls().Take());
    for (const grpc::Status& status : {tokenize(), detokenize()}) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_THAT(status.error_message(), HasSubstr("50 calls"));
    }
    v1::ListModelsResponse models;
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->ListModels(&context, {}, &models).ok());
    EXPECT_TRUE(Generate(Ask("Hello", 4)).status.ok());
    EXPECT_EQ(router_->text_calls().taken(), 50);
  }
  // A call counts towards the limit until gRPC is done with it, perhaps after the client has its
  // answer. So the limit is higher than the number of calls in this loop.
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(tokenize().ok());
    EXPECT_TRUE(detokenize().ok());
  }
  router_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(router_->text_calls().taken(), 0);
}

TEST_F(InferenceServiceTest, ATokenizeCallThatIsNotReadEndsAtTheRoutersDeadline) {
  RouterServer::Options options;
  options.limits.default_deadline = absl::Milliseconds(500);
  StartRouter(options);
  const UnreadTokenize unread(router_->address(), LongTextToTokenize());
  // The client does not see the end before it has read the answer.
  const absl::Time limit = SteadyNow() + absl::Minutes(1);
  while (router_->text_calls().taken() > 0 && SteadyNow() < limit) std::this_thread::yield();
  EXPECT_EQ(router_->text_calls().taken(), 0);
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
  // The max is 6 texts and 1 MiB. An answer has the bytes of about five texts.
  std::vector<std::unique_ptr<UnreadTokenize>> unread;
  for (int i = 0; i < 16; ++i) {
    unread.push_back(std::make_unique<UnreadTokenize>(router_->address(), request));
  }
  const grpc::Status refused = tokenize();
  ASSERT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("the max is 1441792"));
  EXPECT_TRUE(RetryAfter(FromGrpcStatus(refused)).has_value());
  // Small calls go on, and those that were refused end.
  v1::DetokenizeResponse text;
  grpc::ClientContext context;
  EXPECT_TRUE(stub_->Detokenize(&context, {}, &text).ok());
  while (router_->text_calls().taken() > 5) std::this_thread::yield();
  EXPECT_GE(router_->text_calls().taken(), 3);
  unread.clear();
  while (!tokenize().ok()) std::this_thread::yield();
}

}  // namespace
}  // namespace baton
