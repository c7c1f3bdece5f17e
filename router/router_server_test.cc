#include "router/router_server.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_join.h"
#include "baton/v1/inference.grpc.pb.h"
#include "baton/v1/membership.grpc.pb.h"
#include "common/base/log.h"
#include "common/base/steady_time.h"
#include "common/rpc/dial.h"
#include "common/rpc/limits.h"
#include "common/rpc/retry_after.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"
#include "router/inference_service.h"
#include "router/testing/fake_worker.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

const Tokenizer& DemoTokenizer() {
  static const Tokenizer* tokenizer = [] {
    auto loaded = Tokenizer::FromFile(BATON_SOURCE_DIR "/common/model/demo/tokenizer.json");
    BATON_CHECK(loaded.ok()) << loaded.status();
    return loaded->release();
  }();
  return *tokenizer;
}

struct Outcome {
  grpc::Status status;
  std::vector<v1::GenerateEvent> events;
  std::vector<TokenId> tokens;
  std::string text;
  v1::Finished finished;
  v1::Summary summary;
};

class RouterServerTest : public ::testing::Test {
 protected:
  void StartRouter(RouterServer::Options options = {}) {
    SetLogLevel(Severity::kError);
    const auto config = ReadModelConfig(BATON_SOURCE_DIR "/common/model/demo");
    ASSERT_TRUE(config.ok()) << config.status();
    options.model = {"demo", *config, &DemoTokenizer()};
    auto started = RouterServer::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    router_ = *std::move(started);
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
  Outcome Generate(const v1::GenerateRequest& request) {
    Outcome outcome;
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

TEST_F(RouterServerTest, AnAnswerIsStreamedThroughBothWorkers) {
  StartRouter();
  EXPECT_FALSE(Healthy("baton.v1.Inference"));
  EXPECT_TRUE(Healthy("baton.v1.Membership"));
  StartWorkers();
  const v1::GenerateRequest request = Ask("Why is the sky blue?", 40);
  const Outcome outcome = Generate(request);  // Waits in the queue until the workers have attached.
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  const std::vector<TokenId> prompt = *DemoTokenizer().Encode("Why is the sky blue?");
  const std::vector<TokenId> expected = FakeContinuation(prompt, 40, 4096);
  // The fake worker generates as many tokens as the request asks for, and ignores end tokens of the
  // model.
  EXPECT_EQ(outcome.tokens, expected);
  EXPECT_TRUE(outcome.events.front().has_accepted());
  EXPECT_EQ(outcome.events.front().accepted().prompt_tokens(), prompt.size());
  EXPECT_EQ(outcome.events.front().accepted().model(), "demo");
  EXPECT_FALSE(outcome.events.front().accepted().request_id().empty());
  EXPECT_EQ(outcome.finished.reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(outcome.summary.link(), "inproc");
  EXPECT_GT(outcome.summary.timing().ttft_us(), 0u);
  EXPECT_TRUE(Healthy("baton.v1.Inference"));
  EXPECT_TRUE(Healthy(""));
  workers_->WaitForOpen(0);

  v1::ListModelsResponse models;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).name(), "demo");
  EXPECT_EQ(models.models(0).fingerprint(), "fingerprint");
  EXPECT_EQ(models.models(0).prefill_workers(), 1u);
  EXPECT_EQ(models.models(0).decode_workers(), 1u);
}

TEST_F(RouterServerTest, ModelsAndHealthSayTheSame) {
  StartRouter();
  const auto model = [this] {
    v1::ListModelsResponse models;
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->ListModels(&context, {}, &models).ok());
    return models.models(0);
  };
  EXPECT_FALSE(Healthy("baton.v1.Inference"));
  EXPECT_TRUE(model().has_serving());
  EXPECT_FALSE(model().serving());
  EXPECT_EQ(model().not_serving_because(), "no worker is attached");
  StartWorkers();
  ASSERT_TRUE(Generate(Ask("Why?", 3)).status.ok());
  EXPECT_TRUE(Healthy("baton.v1.Inference"));
  EXPECT_TRUE(model().serving());
  EXPECT_EQ(model().not_serving_because(), "");
  EXPECT_EQ(model().numerics_id(), "numerics");
  EXPECT_EQ(model().unused_workers_size(), 0);
}

// Both attempts go to the only worker, which each time reports too early that the answer is over.
TEST_F(RouterServerTest, AWorkerThatLiesIsFound) {
  RouterServer::Options options;
  options.core.max_migrations = 1;
  StartRouter(options);
  StartWorkers({.lies_after = 4});
  const Outcome outcome = Generate(Ask("Why?", 20));
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(
      outcome.status.error_message(),
      HasSubstr("the worker ended the answer with STOP without a stop token after 8 of 20 tokens"));
  // counters() changes only at the end of a turn of the event loop, so stop the loop first.
  router_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(router_->counters().data_loss, 2u);
  const std::vector<TokenId> prompt = *DemoTokenizer().Encode("Why?");
  // The final status may reach the client before tokens that were not written yet. But all tokens
  // that arrive are right.
  ASSERT_LE(outcome.tokens.size(), 8u);
  EXPECT_EQ(outcome.tokens,
            FakeContinuation(prompt, static_cast<int>(outcome.tokens.size()), 4096));
}

TEST_F(RouterServerTest, ManyAtOnce) {
  StartRouter();
  StartWorkers();
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([this, c, &right] {
      for (int i = 0; i < 20; ++i) {
        v1::GenerateRequest request;
        request.mutable_token_ids()->add_ids(c);
        request.mutable_token_ids()->add_ids(i);
        request.mutable_sampling()->set_max_tokens(static_cast<uint32_t>(1 + i));
        request.mutable_sampling()->set_ignore_eos(true);
        const Outcome outcome = Generate(request);
        right += outcome.status.ok() && outcome.tokens == FakeContinuation({c, i}, 1 + i, 4096);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 160);
  workers_->WaitForOpen(0);
}

TEST_F(RouterServerTest, EveryBadRequestIsToldWhyAndTheRouterLivesOn) {
  RouterServer::Options options;
  options.limits.text_bytes = 100000;
  StartRouter(options);
  StartWorkers();
  struct Bad {
    const char* words;
    std::function<void(v1::GenerateRequest&)> spoil;
    grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<Bad> all = {
      {"neither text nor token_ids", [](auto& r) { r.clear_text(); }},
      {"text is empty", [](auto& r) { r.set_text(""); }},
      {"no tokens", [](auto& r) { r.mutable_token_ids(); }},
      {"token_ids[1] is 4096",
       [](auto& r) {
         r.mutable_token_ids()->add_ids(1);
         r.mutable_token_ids()->add_ids(4096);
       }},
      {"token_ids[0] is -1", [](auto& r) { r.mutable_token_ids()->add_ids(-1); }},
      {"4096 tokens; the model's context of 4096",
       [](auto& r) {
         for (int i = 0; i < 4096; ++i) r.mutable_token_ids()->add_ids(5);
       }},
      {"max_tokens 4095 make 4097",
       [](auto& r) {
         r.mutable_token_ids()->add_ids(5);
         r.mutable_token_ids()->add_ids(5);
         r.mutable_sampling()->set_max_tokens(4095);
       }},
      {"100001 bytes", [](auto& r) { r.set_text(std::string(100001, 'a')); }},
      {"'other' is not served here; this router serves 'demo'",
       [](auto& r) { r.set_model("other"); }, grpc::StatusCode::NOT_FOUND},
      {"request_id has 129 bytes", [](auto& r) { r.set_request_id(std::string(129, 'x')); }},
      {"max_tokens is 0", [](auto& r) { r.mutable_sampling()->set_max_tokens(0); }},
      {"max_tokens is 4294967295",
       [](auto& r) { r.mutable_sampling()->set_max_tokens(4294967295u); }},
      {"max_tokens 2147483647 make",
       [](auto& r) { r.mutable_sampling()->set_max_tokens(2147483647u); }},
      {"min_tokens is 9",
       [](auto& r) {
         r.mutable_sampling()->set_max_tokens(8);
         r.mutable_sampling()->set_min_tokens(9);
       }},
      {"temperature is nan", [nan](auto& r) { r.mutable_sampling()->set_temperature(nan); }},
      {"temperature is -1", [](auto& r) { r.mutable_sampling()->set_temperature(-1); }},
      {"temperature is inf", [inf](auto& r) { r.mutable_sampling()->set_temperature(inf); }},
      {"top_p is 0", [](auto& r) { r.mutable_sampling()->set_top_p(0); }},
      {"top_p is 1.5", [](auto& r) { r.mutable_sampling()->set_top_p(1.5); }},
      {"top_p is nan", [nan](auto& r) { r.mutable_sampling()->set_top_p(nan); }},
      {"min_p is nan", [nan](auto& r) { r.mutable_sampling()->set_min_p(nan); }},
      {"min_p is -0.5", [](auto& r) { r.mutable_sampling()->set_min_p(-0.5); }},
      {"top_k is 4294967295", [](auto& r) { r.mutable_sampling()->set_top_k(4294967295u); }},
      {"logprobs is 21", [](auto& r) { r.mutable_sampling()->set_logprobs(21); }},
      {"17 strings",
       [](auto& r) {
         for (int i = 0; i < 17; ++i) r.mutable_sampling()->add_stop("x");
       }},
      {"stop[1] has 0 bytes",
       [](auto& r) {
         r.mutable_sampling()->add_stop("x");
         r.mutable_sampling()->add_stop("");
       }},
      {"stop[0] has 1001 bytes",
       [](auto& r) { r.mutable_sampling()->add_stop(std::string(1001, 'x')); }},
      {"stop_token_ids is -1", [](auto& r) { r.mutable_sampling()->add_stop_token_ids(-1); }},
      {"stop_token_ids has 4096", [](auto& r) { r.mutable_sampling()->add_stop_token_ids(4096); }},
      {"n is 0; it takes 1 to 64", [](auto& r) { r.mutable_sampling()->set_n(0); }},
      {"n is 65; it takes 1 to 64", [](auto& r) { r.mutable_sampling()->set_n(65); }},
      {"n is 4294967295", [](auto& r) { r.mutable_sampling()->set_n(4294967295u); }},
      {"prompt_logprobs is 21; it takes 0 to 20",
       [](auto& r) { r.mutable_sampling()->set_prompt_logprobs(21); }},
      {"repetition_penalty is 0; it takes 0.01 to 100",
       [](auto& r) { r.mutable_sampling()->set_repetition_penalty(0); }},
      {"repetition_penalty is 1e-38",
       [](auto& r) { r.mutable_sampling()->set_repetition_penalty(1e-38f); }},
      {"repetition_penalty is -1",
       [](auto& r) { r.mutable_sampling()->set_repetition_penalty(-1); }},
      {"repetition_penalty is nan",
       [nan](auto& r) { r.mutable_sampling()->set_repetition_penalty(nan); }},
      {"repetition_penalty is inf",
       [inf](auto& r) { r.mutable_sampling()->set_repetition_penalty(inf); }},
      {"presence_penalty is 2.5; it takes -2 to 2",
       [](auto& r) { r.mutable_sampling()->set_presence_penalty(2.5); }},
      {"presence_penalty is nan",
       [nan](auto& r) { r.mutable_sampling()->set_presence_penalty(nan); }},
      {"frequency_penalty is -inf; it takes -2 to 2",
       [inf](auto& r) { r.mutable_sampling()->set_frequency_penalty(-inf); }},
      {"frequency_penalty is nan",
       [nan](auto& r) { r.mutable_sampling()->set_frequency_penalty(nan); }},
      {"logit_bias[5] is 101; it takes -100 to 100",
       [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[5] = 101; }},
      {"logit_bias[5] is nan",
       [nan](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[5] = nan; }},
      {"logit_bias of token is -3",
       [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[-3] = 1; }},
      {"logit_bias has 4096; the vocabulary has ids 0 to 4095",
       [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[4096] = 1; }},
      {"logit_bias has 1025 tokens; at most 1024",
       [](auto& r) {
         for (int i = 0; i < 1025; ++i) (*r.mutable_sampling()->mutable_logit_bias())[i] = 1;
       }},
      {"bad_words has 65 strings; at most 64",
       [](auto& r) {
         for (int i = 0; i < 65; ++i) r.mutable_sampling()->add_bad_words("x");
       }},
      {"bad_words[0] has 0 bytes; it takes 1 to 1000",
       [](auto& r) { r.mutable_sampling()->add_bad_words(""); }},
      {"bad_words[1] has 1001 bytes",
       [](auto& r) {
         r.mutable_sampling()->add_bad_words("x");
         r.mutable_sampling()->add_bad_words(std::string(1001, 'x'));
       }},
      {"bad_word_ids[0] has 0 tokens; it takes 1 to 1024",
       [](auto& r) { r.mutable_sampling()->add_bad_word_ids(); }},
      {"bad_word_ids[0] has 1025 tokens",
       [](auto& r) {
         auto* word = r.mutable_sampling()->add_bad_word_ids();
         for (int i = 0; i < 1025; ++i) word->add_ids(1);
       }},
      {"bad_word_ids[0] is -1",
       [](auto& r) { r.mutable_sampling()->add_bad_word_ids()->add_ids(-1); }},
      {"bad_word_ids has 4096; the vocabulary has ids 0 to 4095",
       [](auto& r) { r.mutable_sampling()->add_bad_word_ids()->add_ids(4096); }},
      {"are 257 together; at most 256",
       [](auto& r) {
         for (int i = 0; i < 257; ++i) r.mutable_sampling()->add_bad_word_ids()->add_ids(i);
       }},
      {"257 sequences of tokens together; at most 256",
       [](auto& r) {
         for (int i = 0; i < 255; ++i) r.mutable_sampling()->add_bad_word_ids()->add_ids(i);
         r.mutable_sampling()->add_bad_words("two words");
       }},
      {"at most 256",
       [](auto& r) {
         for (int i = 0; i < 300; ++i) r.mutable_sampling()->add_stop_token_ids(i);
       }},
  };
  for (const Bad& bad : all) {
    v1::GenerateRequest request = Ask("Hello", 4);
    bad.spoil(request);
    const Outcome outcome = Generate(request);
    EXPECT_EQ(outcome.status.error_code(), bad.code)
        << bad.words << ": " << outcome.status.error_message();
    EXPECT_THAT(outcome.status.error_message(), HasSubstr(bad.words));
    EXPECT_TRUE(outcome.events.empty()) << bad.words;
  }
  // Bytes that are not a message, or that contain text which is not UTF-8.
  for (const char* method : {"Generate", "Tokenize", "Detokenize"}) {
    const std::string path = absl::StrCat("/baton.v1.Inference/", method);
    const grpc::Status cut = SendRaw(path, std::string("\x1a\x7f", 2));
    EXPECT_EQ(cut.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
  }
  for (const char* method : {"Generate", "Tokenize"}) {
    const std::string field = method[0] == 'G' ? "\x1a" : "\x12";
    const grpc::Status utf8 =
        SendRaw(absl::StrCat("/baton.v1.Inference/", method), field + "\x02\xc3\x28");
    EXPECT_EQ(utf8.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(utf8.error_message(), HasSubstr("UTF-8"));
  }
  const Outcome good = Generate(Ask("Hello", 4));
  EXPECT_TRUE(good.status.ok()) << good.status.error_message();
  EXPECT_EQ(good.tokens.size(), 4u);
}

TEST_F(RouterServerTest, TokenizeAndDetokenizeGoThereAndBack) {
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

// A message that is longer than every valid one is refused before it is there.
TEST_F(RouterServerTest, AMessageThatIsTooLongForAnyRequestIsRefused) {
  StartRouter();
  const grpc::Status status = SendRaw("/baton.v1.Inference/Generate", std::string(12 << 20, '\0'));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("larger than max"));
  EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat(12 << 20)));
}

TEST_F(RouterServerTest, TextCallsBeyondTheLimitAreRefusedAndNothingElseIs) {
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

TEST_F(RouterServerTest, AClientThatCancelsTakesBothLegsWithIt) {
  StartRouter();
  StartWorkers({.stop_after = 3});
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Ask("Hello", 30));
  v1::GenerateEvent event;
  for (int tokens = 0; tokens < 3;) {
    ASSERT_TRUE(reader->Read(&event));
    tokens += event.delta().tokens_size();
  }
  workers_->WaitForOpen(2);
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  workers_->WaitForOpen(0);
}

// A full queue refuses a request before its prompt is tokenised. Such a request is counted, too.
TEST_F(RouterServerTest, WhatTheFullQueueRefusesIsCountedAndNamed) {
  RouterServer::Options options;
  options.core.max_queued = 1;
  StartRouter(options);
  grpc::ClientContext context;
  const auto waits = stub_->Generate(&context, Ask("Hello", 4));
  v1::GenerateEvent event;
  ASSERT_TRUE(waits->Read(&event));
  ASSERT_TRUE(event.has_accepted());
  ::testing::internal::CaptureStderr();
  SetLogLevel(Severity::kInfo);
  std::set<absl::Duration> told;
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext refused;
    const auto reader = stub_->Generate(&refused, Ask("Hello", 4));
    EXPECT_FALSE(reader->Read(&event));
    const absl::Status status = FromGrpcStatus(reader->Finish());
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    // Clients that know google.rpc.RetryInfo and clients that retry by themselves learn when.
    const auto again = RetryAfter(status);
    ASSERT_TRUE(again) << status;
    EXPECT_GE(*again, absl::Milliseconds(750));
    EXPECT_LE(*again, absl::Milliseconds(1250));
    told.insert(*again);
    EXPECT_EQ(refused.GetServerTrailingMetadata().count(kRetryPushback), 1u);
  }
  SetLogLevel(Severity::kError);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_GT(told.size(), 1u) << "clients that are refused together come again together";
  EXPECT_EQ(router_->counters().shed, 3u);
  EXPECT_THAT(log, ::testing::HasSubstr("request_id=r"));
  EXPECT_THAT(log, ::testing::Not(::testing::HasSubstr("request_id=\"\"")));
  context.TryCancel();
  while (waits->Read(&event)) {
  }
  EXPECT_EQ(waits->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// Two requests fill the queue. A third one of another tenant gets a place if tenants are trusted.
// Otherwise all three come from one caller, the address.
TEST_F(RouterServerTest, TenantsAreToldApartOnlyIfTheyAreTrusted) {
  for (const bool trusted : {false, true}) {
    SCOPED_TRACE(trusted);
    RouterServer::Options options;
    options.core.max_queued = 2;
    options.limits.trust_tenant_metadata = trusted;
    StartRouter(options);
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>>> readers;
    // Sends a request, and returns true if it has been accepted.
    const auto ask = [&](const std::string& tenant) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      contexts.back()->AddMetadata(kTenantMetadata, tenant);
      readers.push_back(stub_->Generate(contexts.back().get(), Ask("Hello", 4)));
      v1::GenerateEvent event;
      return readers.back()->Read(&event);
    };
    EXPECT_TRUE(ask("a"));
    EXPECT_TRUE(ask("a"));
    EXPECT_EQ(ask("b"), trusted);
    v1::GenerateEvent event;
    auto& refused = readers[trusted ? 1 : 2];
    EXPECT_FALSE(refused->Read(&event));
    EXPECT_EQ(refused->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_FALSE(ask(std::string(1000, 'x')));
    const grpc::Status too_long = readers.back()->Finish();
    EXPECT_EQ(too_long.error_code(),
              trusted ? grpc::StatusCode::INVALID_ARGUMENT : grpc::StatusCode::RESOURCE_EXHAUSTED);
    if (trusted) {
      EXPECT_THAT(too_long.error_message(),
                  ::testing::HasSubstr("the metadata x-baton-tenant has 1000 bytes"));
    }
    for (const auto& context : contexts) context->TryCancel();
  }
}

TEST_F(RouterServerTest, TheDeadlineReachesTheWorkers) {
  StartRouter();
  StartWorkers({.stop_after = 3});
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  const auto reader = stub_->Generate(&context, Ask("Hello", 30));
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  workers_->WaitForOpen(0);
}

TEST_F(RouterServerTest, ShutdownLetsRunningOnesEndWithAStatus) {
  StartRouter();
  StartWorkers({.stop_after = 3});
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Ask("Hello", 30));
  v1::GenerateEvent event;
  for (int tokens = 0; tokens < 3;) {
    ASSERT_TRUE(reader->Read(&event));
    tokens += event.delta().tokens_size();
  }
  std::thread down([this] { router_->Shutdown(absl::ZeroDuration()); });
  while (reader->Read(&event)) {
  }
  const grpc::Status status = reader->Finish();
  down.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  workers_->WaitForOpen(0);
}

// gRPC ends calls that come while it shuts down with Cancelled, which clients do not repeat.
TEST_F(RouterServerTest, NoCallEndsWithCancelledWhileTheRouterShutsDown) {
  for (int round = 0; round < 4; ++round) {
    StartRouter();
    std::atomic<int> answered = 0, cancelled = 0;
    std::vector<std::thread> clients;
    for (int i = 0; i < 12; ++i) {
      clients.emplace_back([&, address = router_->address()] {
        grpc::ChannelArguments arguments;
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
        const auto stub = v1::Inference::NewStub(
            grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
        while (true) {
          grpc::ClientContext context;
          v1::ListModelsResponse models;
          const grpc::Status status = stub->ListModels(&context, {}, &models);
          cancelled += status.error_code() == grpc::StatusCode::CANCELLED;
          if (!status.ok()) return;
          ++answered;
        }
      });
    }
    while (answered < 200) std::this_thread::yield();
    router_->Shutdown(absl::ZeroDuration());
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(cancelled, 0) << "round " << round;
  }
}

TEST_F(RouterServerTest, OnlyWhoKnowsTheTokenMayAttach) {
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
  const Outcome outcome = Generate(Ask("Hello", 3));
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("no worker is attached"));
}

TEST_F(RouterServerTest, CacheChangesOfAWorkerReachTheIndexAndTheStreamGoesOn) {
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

TEST_F(RouterServerTest, AMessageOfAWorkerThatIsTooLongIsRefused) {
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

TEST_F(RouterServerTest, AttachStreamsCountForTheirConnection) {
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
TEST_F(RouterServerTest, AConnectionHasFewAttachStreams) {
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

TEST_F(RouterServerTest, AnAttachStreamWithoutARegistrationEnds) {
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

// No worker is attached, so the request waits until its time is over.
TEST_F(RouterServerTest, ARequestWithoutADeadlineGetsTheRouters) {
  RouterServer::Options options;
  options.limits.default_deadline = absl::Milliseconds(50);
  StartRouter(options);
  const Outcome outcome = Generate(Ask("Hello", 3));
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("the deadline passed"));
}

// A worker that has an attach token refuses every call without it. So a router without the token
// could not use this worker.
TEST_F(RouterServerTest, AWorkerWithATokenIsRefusedByARouterWithout) {
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
TEST_F(RouterServerTest, AWorkerThatTheRouterCannotCallIsRefusedAndToldWhatToDo) {
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
TEST_F(RouterServerTest, AWorkerAtWhoseAddressAnotherProcessAnswersIsRefused) {
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
TEST_F(RouterServerTest, AWorkerMayLeaveWhileTheRouterAsksWhoAnswers) {
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

TEST_F(RouterServerTest, AnAddressInUseIsRefused) {
  StartRouter();
  RouterServer::Options second;
  second.listen = router_->address();
  second.model.tokenizer = &DemoTokenizer();
  EXPECT_EQ(RouterServer::Start(second).status().code(), absl::StatusCode::kUnavailable);
}

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

TEST_F(RouterServerTest, ATokenizeCallThatIsNotReadEndsAtTheRoutersDeadline) {
  RouterServer::Options options;
  options.limits.default_deadline = absl::Milliseconds(500);
  StartRouter(options);
  const UnreadTokenize unread(router_->address(), LongTextToTokenize());
  // The client does not see the end before it has read the answer.
  const absl::Time limit = SteadyNow() + absl::Minutes(1);
  while (router_->text_calls().taken() > 0 && SteadyNow() < limit) std::this_thread::yield();
  EXPECT_EQ(router_->text_calls().taken(), 0);
}

TEST_F(RouterServerTest, BytesOfTextCallsAreLimitedUntilTheirAnswersHaveBeenRead) {
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
  // The max is 32 texts and 1 MiB. A call has one text, and an answer with the bytes of about five.
  std::vector<std::unique_ptr<UnreadTokenize>> unread;
  for (int i = 0; i < 16; ++i) {
    unread.push_back(std::make_unique<UnreadTokenize>(router_->address(), request));
  }
  const grpc::Status refused = tokenize();
  ASSERT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("the max is 3145728"));
  EXPECT_TRUE(RetryAfter(FromGrpcStatus(refused)).has_value());
  // Small calls go on, and those that were refused end.
  v1::DetokenizeResponse text;
  grpc::ClientContext context;
  EXPECT_TRUE(stub_->Detokenize(&context, {}, &text).ok());
  while (router_->text_calls().taken() > 9) std::this_thread::yield();
  EXPECT_GE(router_->text_calls().taken(), 6);
  unread.clear();
  while (!tokenize().ok()) std::this_thread::yield();
}

}  // namespace
}  // namespace baton
