#pragma once

#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "baton/v1/inference.grpc.pb.h"
#include "common/base/check.h"
#include "common/rpc/rpc_server.h"

namespace baton {

// A router for the tests of clients. Generate answers "one two" in two tokens, unless a test sets
// on_generate. Tokenize makes one token of each byte. Calls run on gRPC's threads, so a test must
// set the hooks before its first call.
class FakeRouter final : public v1::Inference::Service {
 public:
  using Writer = grpc::ServerWriter<v1::GenerateEvent>;

  FakeRouter() {
    auto server = RpcServer::Start({.listen = "127.0.0.1:0", .services = {this}});
    BATON_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    SetServing(true);
  }

  const std::string& address() const { return server_->address(); }
  void SetServing(bool serving) {
    server_->SetServing(v1::Inference::service_full_name(), serving);
  }

  // Reasons that ListModels reports. If not_serving_because and unused_workers are empty, no state
  // is reported, as by older routers.
  std::string not_serving_because;
  std::vector<std::string> unused_workers, failing_workers;
  // The key that every call has to carry; "": none.
  std::string key;
  // Called after ListModels has built its answer.
  std::function<void()> after_list_models = [] {};

  // Answers Generate. By default it writes the events of Events(request).
  std::function<grpc::Status(grpc::ServerContext*, const v1::GenerateRequest&, Writer*)>
      on_generate = [](grpc::ServerContext*, const v1::GenerateRequest& request, Writer* writer) {
        for (const v1::GenerateEvent& event : Events(request)) writer->Write(event);
        return grpc::Status::OK;
      };

  // Returns the events Accepted, a Delta for each of the two tokens of "one two", Finished,
  // Summary.
  static std::vector<v1::GenerateEvent> Events(const v1::GenerateRequest& request) {
    std::vector<v1::GenerateEvent> events(5);
    v1::Accepted& accepted = *events[0].mutable_accepted();
    accepted.set_request_id(request.request_id().empty() ? "r1" : request.request_id());
    accepted.set_model("demo");
    accepted.set_prompt_tokens(3);
    events[1].mutable_delta()->set_text("one");
    events[2].mutable_delta()->set_text(" two");
    for (uint32_t i = 0; i < 2; ++i) {
      v1::Token& token = *events[1 + i].mutable_delta()->add_tokens();
      token.set_token_id(static_cast<int32_t>(7 + i));
      token.set_position(3 + i);
      if (!request.sampling().has_logprobs()) continue;
      token.set_logprob(-0.5f);
      v1::TopLogprob& top = *token.add_top();
      top.set_token_id(9);
      top.set_logprob(-0.25f);
    }
    events[3].mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
    v1::Summary& summary = *events[4].mutable_summary();
    summary.mutable_usage()->set_prompt_tokens(3);
    summary.mutable_usage()->set_cached_tokens(1);
    summary.mutable_usage()->set_completion_tokens(2);
    summary.set_decode_cached_tokens(2);
    summary.set_seed(18446744073709551615u);
    v1::Timing& timing = *summary.mutable_timing();
    timing.set_queue_us(10);
    timing.set_prefill_us(20);
    timing.set_handover_hidden_us(30);
    timing.set_handover_exposed_us(40);
    timing.set_decode_wait_us(50);
    timing.set_decode_us(60);
    timing.set_ttft_us(70);
    timing.set_total_us(180);
    summary.set_prefill_worker("127.0.0.1:1001");
    summary.set_decode_worker("127.0.0.1:1002");
    summary.set_link("shm");
    summary.set_mode(v1::SERVING_MODE_DISAGGREGATED);
    summary.set_migrations(1);
    return events;
  }

 private:
  // Returns Unauthenticated unless the call carries `key`, once.
  grpc::Status CheckKey(const grpc::ServerContext& context) const {
    if (key.empty()) return grpc::Status::OK;
    const auto [begin, end] = context.client_metadata().equal_range("authorization");
    if (std::distance(begin, end) == 1 && begin->second == "Bearer " + key) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, "no such key"};
  }
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        Writer* writer) override {
    if (const grpc::Status status = CheckKey(*context); !status.ok()) return status;
    return on_generate(context, *request, writer);
  }
  grpc::Status Tokenize(grpc::ServerContext* context, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    if (const grpc::Status status = CheckKey(*context); !status.ok()) return status;
    if (!request->has_add_special() || request->add_special()) {
      response->add_token_ids(1);
      response->add_pieces("<s>");
    }
    for (const char byte : request->text()) {
      response->add_token_ids(static_cast<unsigned char>(byte));
      response->add_pieces(std::string(1, byte));
    }
    return grpc::Status::OK;
  }
  grpc::Status Detokenize(grpc::ServerContext* context, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    if (const grpc::Status status = CheckKey(*context); !status.ok()) return status;
    for (const int32_t id : request->token_ids()) {
      if (id < 0 || id > 127) {
        return {grpc::StatusCode::INVALID_ARGUMENT,
                "token id " + std::to_string(id) + "\nis not below 128"};
      }
      response->mutable_text()->push_back(static_cast<char>(id));
      response->add_pieces(std::string(1, static_cast<char>(id)));
    }
    return grpc::Status::OK;
  }
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    if (const grpc::Status status = CheckKey(*context); !status.ok()) return status;
    v1::Model& model = *response->add_models();
    model.set_name("demo");
    model.set_architecture("LlamaForCausalLM");
    model.set_context_tokens(2048);
    model.set_vocab_size(4096);
    model.set_prefill_workers(1);
    model.set_decode_workers(2);
    if (!not_serving_because.empty() || !unused_workers.empty()) {
      model.set_numerics_id("cpu/kv");
      model.set_fingerprint("f");
      model.set_serving(not_serving_because.empty());
      model.set_not_serving_because(not_serving_because);
      for (const std::string& why : unused_workers) model.add_unused_workers(why);
      for (const std::string& why : failing_workers) model.add_failing_workers(why);
    }
    after_list_models();
    return grpc::Status::OK;
  }

  std::unique_ptr<RpcServer> server_;
};

}  // namespace baton
