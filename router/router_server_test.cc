#include "router/router_server.h"

#include <atomic>
#include <latch>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/rpc/retry_after.h"
#include "common/rpc/status.h"
#include "router/grpc/inference_service.h"
#include "router/router_server_fixture.h"

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Pair;

class RouterServerTest : public RouterServerFixture {};

// Returns a GenerateRequest with ids that take one byte each.
std::string MessageWithIds(int ids) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(5);
  request.mutable_token_ids()->mutable_ids()->Resize(ids, 5);
  return request.SerializeAsString();
}

TEST_F(RouterServerTest, AnAnswerIsStreamedThroughBothWorkers) {
  StartRouter();
  EXPECT_FALSE(Healthy("baton.v1.Inference"));
  EXPECT_TRUE(Healthy("baton.v1.Membership"));
  StartWorkers();
  const v1::GenerateRequest request = Ask("Why is the sky blue?", 40);
  const GenerateOutcome outcome =
      Generate(request);  // Waits in the queue until the workers have attached.
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
  const GenerateOutcome outcome = Generate(Ask("Why?", 20));
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
        const GenerateOutcome outcome = Generate(request);
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
      {"neither text, token_ids nor chat", [](auto& r) { r.clear_text(); }},
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
    const GenerateOutcome outcome = Generate(request);
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
  const GenerateOutcome good = Generate(Ask("Hello", 4));
  EXPECT_TRUE(good.status.ok()) << good.status.error_message();
  EXPECT_EQ(good.tokens.size(), 4u);
}

// Its million and more ids would take eight times the memory.
TEST_F(RouterServerTest, AMessageWithTooManyIdsIsRefusedBeforeItIsParsed) {
  StartRouter();
  const grpc::Status status = SendRaw("/baton.v1.Inference/Generate", MessageWithIds(2 << 20));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("bytes beside its text"));
  EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat(6 * 4096 + (1 << 20))));
}

// A message that is longer than every valid one is refused before it is there.
TEST_F(RouterServerTest, AMessageThatIsTooLongForAnyRequestIsRefused) {
  StartRouter();
  const grpc::Status status = SendRaw("/baton.v1.Inference/Generate", std::string(12 << 20, '\0'));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("larger than max"));
  EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat(12 << 20)));
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
  // Until this request is in the queue, the next one would be refused by the core, not by the
  // server.
  ASSERT_TRUE(Await([this] { return router_->queued() == 1; }));
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
  const RequestMetrics& metrics = router_->request_metrics();
  EXPECT_EQ(metrics.prefill_refused_tokens.value(), 3u) << "a token for four bytes of each prompt";
  EXPECT_THAT(metrics.callers.Values(&CallerMetrics::One::requests),
              Contains(Pair("ipv4:127.0.0.1", 4)));
  EXPECT_THAT(metrics.callers.Values(&CallerMetrics::One::refused),
              Contains(Pair("ipv4:127.0.0.1", 3)));
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
      contexts.back()->AddMetadata(kTenantHeader, tenant);
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

// No worker is attached, so that all requests stay open. Callers are told apart by their names.
TEST_F(RouterServerTest, OpenRequestsOfOneCallerLeaveMemoryForThoseOfOthers) {
  constexpr size_t kMax = 64 << 10;
  RouterServer::Options options;
  options.max_open_bytes = kMax;
  options.limits.trust_tenant_metadata = true;
  StartRouter(options);
  v1::GenerateRequest request;
  for (int i = 0; i < 1000; ++i) request.mutable_token_ids()->add_ids(5);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>>> readers;
  v1::GenerateEvent event;
  // Sends a request, and returns true if it has been accepted.
  const auto ask = [&](const std::string& tenant) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->AddMetadata(kTenantHeader, tenant);
    readers.push_back(stub_->Generate(contexts.back().get(), request));
    return readers.back()->Read(&event);
  };
  int accepted = 0;
  while (accepted < 100 && ask("a")) ++accepted;
  EXPECT_GE(accepted, 4);
  EXPECT_LE(accepted, 12) << "each has 4,000 bytes of ids";
  EXPECT_LE(router_->open_bytes(), kMax * 3 / 4);
  const absl::Status refused = FromGrpcStatus(readers.back()->Finish());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the max is 65536"));
  EXPECT_TRUE(RetryAfter(refused).has_value()) << refused;
  EXPECT_TRUE(ask("b"));
  // The refusal is counted for its caller, but not as work that more workers would do.
  EXPECT_EQ(router_->counters().shed, 1u);
  const RequestMetrics& metrics = router_->request_metrics();
  EXPECT_EQ(metrics.prefill_refused_tokens.value(), 0u);
  EXPECT_THAT(metrics.callers.Values(&CallerMetrics::One::requests),
              IsSupersetOf({Pair("a", accepted + 1.0), Pair("b", 1.0)}));
  EXPECT_THAT(metrics.callers.Values(&CallerMetrics::One::refused),
              IsSupersetOf({Pair("a", 1.0), Pair("b", 0.0)}));
  for (const auto& context : contexts) context->TryCancel();
  EXPECT_TRUE(Await([this] { return router_->open_bytes() == 0; })) << router_->open_bytes();
  // A request of any size is taken if it is the only one.
  for (int i = 0; i < 3000; ++i) request.mutable_token_ids()->add_ids(5);
  router_ = nullptr;
  options.max_open_bytes = 10000;
  StartRouter(options);
  EXPECT_TRUE(ask("a"));
  EXPECT_GT(router_->open_bytes(), 16000u);
  EXPECT_FALSE(ask("b"));
  contexts[contexts.size() - 2]->TryCancel();
}

// Chooses the first worker, once it may.
class HeldPolicy final : public RoutingPolicy {
 public:
  HeldPolicy(std::latch* reached, std::latch* may) : reached_(reached), may_(may) {}
  size_t Choose(const RouteRequest&, absl::Span<const RouteCandidate>) override {
    if (!reached_->try_wait()) reached_->count_down();
    may_->wait();
    return 0;
  }

 private:
  std::latch* const reached_;
  std::latch* const may_;
};

// Kubernetes asks for the health of Membership, and starts a process anew that is not healthy.
TEST_F(RouterServerTest, ALoopThatHangsMakesTheWholeProcessNotServing) {
  std::latch reached(1), may(1);
  RouterServer::Options options;
  options.hang_limit = absl::Milliseconds(100);
  options.core.new_policy = [&](uint64_t) { return std::make_unique<HeldPolicy>(&reached, &may); };
  StartRouter(options);
  StartWorkers();
  std::thread client([this] { EXPECT_TRUE(Generate(Ask("Why?", 3)).status.ok()); });
  reached.wait();
  const auto await_health = [this](bool healthy) {
    for (const char* service : {"", "baton.v1.Inference", "baton.v1.Membership"}) {
      EXPECT_TRUE(Await([&] { return Healthy(service) == healthy; })) << service;
    }
  };
  await_health(false);
  may.count_down();
  client.join();
  await_health(true);
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

// No worker is attached, so the request waits until its time is over.
TEST_F(RouterServerTest, ARequestWithoutADeadlineGetsTheRouters) {
  RouterServer::Options options;
  options.limits.default_deadline = absl::Milliseconds(50);
  StartRouter(options);
  const GenerateOutcome outcome = Generate(Ask("Hello", 3));
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("the deadline passed"));
}

TEST_F(RouterServerTest, AnAddressInUseIsRefused) {
  StartRouter();
  RouterServer::Options second;
  second.listen = router_->address();
  second.model.tokenizer = &DemoTokenizer();
  EXPECT_EQ(RouterServer::Start(second).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
