#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/rpc/rpc_server.h"

namespace baton {

// A fake router for tests of the load generator. Its answers take as long as the test says. Runs on
// gRPC's threads. Set the public members before the first call.
class TimedRouter final : public v1::Inference::Service {
 public:
  using Clock = std::chrono::steady_clock;
  using Writer = grpc::ServerWriter<v1::GenerateEvent>;

  static constexpr uint32_t kVocabulary = 5000;
  // The first id that is not a token. All higher ids are unknown too.
  static constexpr int32_t kKnown = 4900;

  TimedRouter() {
    auto server = RpcServer::Start({.listen = "127.0.0.1:0", .services = {this}});
    BATON_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->SetServing(v1::Inference::service_full_name(), true);
  }
  ~TimedRouter() override {
    open_.Release();
    server_.reset();
  }

  const std::string& address() const { return server_->address(); }

  // Wait before the first token: `ttft`, plus `ttft_per_token` for each token of the prompt.
  absl::Duration ttft = absl::ZeroDuration();
  absl::Duration ttft_per_token = absl::ZeroDuration();
  // Waits before the tokens after the first. The last wait repeats; empty: no waits.
  std::vector<absl::Duration> gaps;
  // If set, is called instead of Answer().
  std::function<grpc::Status(grpc::ServerContext*, const v1::GenerateRequest&, Writer*)>
      on_generate;
  bool counts_tokens = true;  // If true, answers the call Tokenize; each byte of a text is a token.
  std::string key;            // The key that every call has to carry; "": none.
  std::function<bool(int32_t)> is_special = [](int32_t id) { return id < 3; };

  // Returns the index of a request in its load, which is a part of the request's id.
  static uint32_t IndexOf(const v1::GenerateRequest& request) {
    return static_cast<uint32_t>(
        std::atoi(request.request_id().substr(request.request_id().rfind('-') + 1).c_str()));
  }

  // Answers a request: sends Accepted, `tokens` tokens with their waits, Finished and Summary.
  grpc::Status Answer(grpc::ServerContext* context, const v1::GenerateRequest& request,
                      Writer* writer, uint32_t tokens) {
    Accept(request, writer);
    for (uint32_t i = 0; i < tokens; ++i) {
      const absl::Duration wait = i == 0             ? ttft + PromptTokens(request) * ttft_per_token
                                  : gaps.empty()     ? absl::ZeroDuration()
                                  : i <= gaps.size() ? gaps[i - 1]
                                                     : gaps.back();
      if (!open_.Wait(context, wait)) return grpc::Status::CANCELLED;
      WriteToken(request, writer, i);
    }
    v1::GenerateEvent event;
    event.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
    writer->Write(event);
    v1::Summary& summary = *event.mutable_summary();
    summary.mutable_timing()->set_prefill_us(1234);
    summary.set_link("shm");
    summary.set_mode(request.mode());
    if (request.slo().ttft_ms() == 1) summary.mutable_slo()->set_lost_to(v1::SLO_PHASE_DECODE_WAIT);
    writer->Write(event);
    return grpc::Status::OK;
  }

  static uint32_t PromptTokens(const v1::GenerateRequest& request) {
    return request.has_token_ids() ? static_cast<uint32_t>(request.token_ids().ids_size())
                                   : static_cast<uint32_t>(request.text().size());
  }
  static void Accept(const v1::GenerateRequest& request, Writer* writer) {
    v1::GenerateEvent event;
    event.mutable_accepted()->set_request_id(request.request_id());
    event.mutable_accepted()->set_prompt_tokens(PromptTokens(request));
    writer->Write(event);
  }
  // Sends the i-th token of the answer. The token id depends on the seed.
  static void WriteToken(const v1::GenerateRequest& request, Writer* writer, uint32_t i) {
    v1::GenerateEvent event;
    v1::Token& token = *event.mutable_delta()->add_tokens();
    token.set_token_id(static_cast<int32_t>((request.sampling().seed() + i) % 1000));
    token.set_position(PromptTokens(request) + i);
    writer->Write(event);
  }

  // Keeps a call open until it is cancelled.
  grpc::Status Hang(grpc::ServerContext* context) {
    open_.Wait(context, absl::InfiniteDuration());
    return grpc::Status::CANCELLED;
  }

 private:
  // Makes answers wait until a time has passed, their client has left, or the test ends.
  class Waiting {
   public:
    // Returns false if the call was cancelled or the test ended during the wait.
    bool Wait(grpc::ServerContext* context, absl::Duration wait) {
      const absl::Time until = absl::Now() + wait;
      MutexLock lock(&mutex_);
      while (!released_ && !context->IsCancelled() && absl::Now() < until)
        changed_.WaitFor(&mutex_, std::min(until - absl::Now(), absl::Milliseconds(20)));
      return !released_ && !context->IsCancelled();
    }
    void Release() {
      MutexLock lock(&mutex_);
      released_ = true;
      changed_.SignalAll();
    }

   private:
    Mutex mutex_;
    CondVar changed_;
    bool released_ ABSL_GUARDED_BY(mutex_) = false;
  };

  // Returns Unauthenticated unless the call carries `key`.
  grpc::Status CheckKey(const grpc::ServerContext& context) const {
    if (key.empty()) return grpc::Status::OK;
    const auto found = context.client_metadata().find("authorization");
    if (found != context.client_metadata().end() && found->second == "Bearer " + key) {
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::UNAUTHENTICATED, "no such key"};
  }
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        Writer* writer) override {
    if (const grpc::Status status = CheckKey(*context); !status.ok()) return status;
    if (on_generate) return on_generate(context, *request, writer);
    return Answer(context, *request, writer, request->sampling().max_tokens());
  }
  grpc::Status Tokenize(grpc::ServerContext* context, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    if (const grpc::Status status = CheckKey(*context); !status.ok()) return status;
    if (!counts_tokens) return {grpc::StatusCode::UNIMPLEMENTED, "no such call"};
    for (const char c : request->text()) response->add_token_ids(c);
    return grpc::Status::OK;
  }
  grpc::Status Detokenize(grpc::ServerContext* context, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    if (const grpc::Status status = CheckKey(*context); !status.ok()) return status;
    for (const int32_t id : request->token_ids()) {
      if (id < 0 || id >= kKnown) return {grpc::StatusCode::INVALID_ARGUMENT, "no such token"};
      if (!request->skip_special() || !is_special(id)) response->mutable_text()->push_back('x');
    }
    return grpc::Status::OK;
  }
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    if (const grpc::Status status = CheckKey(*context); !status.ok()) return status;
    v1::Model& model = *response->add_models();
    model.set_name("timed");
    model.set_context_tokens(2048);
    model.set_vocab_size(kVocabulary);
    model.set_prefill_workers(1);
    model.set_decode_workers(2);
    return grpc::Status::OK;
  }

  Waiting open_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace baton
