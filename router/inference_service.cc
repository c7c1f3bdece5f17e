#include "router/inference_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/raw_request.h"
#include "common/rpc/retry_after.h"
#include "common/rpc/status.h"
#include "router/block_naming.h"

namespace baton {

namespace {

// A call with a single answer. Keeps its place in the CallLimit until gRPC is done with the call.
class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  explicit UnaryCall(std::optional<CallLimit::Place> place) : place_(std::move(place)) {}

 private:
  void OnDone() override { delete this; }
  const std::optional<CallLimit::Place> place_;
};

constexpr size_t kMaxTenantBytes = 128;

// Returns the RPC's deadline, converted to the clock of SteadyNow().
absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  return deadline == decltype(deadline)::max() ? absl::InfiniteFuture()
                                               : ToSteady(absl::FromChrono(deadline));
}

}  // namespace

InferenceService::InferenceService(ServedModel model, RequestLimits limits,
                                   std::optional<std::string> naming_secret, CallLimit* text_calls,
                                   EncodePool* pool,
                                   std::function<absl::Status(size_t calls, size_t callers)> room,
                                   std::function<bool(CoreEvent)> submit,
                                   std::function<void(CoreEvent)> tell, Refused refused)
    : model_(std::move(model)),
      limits_(limits),
      naming_secret_(std::move(naming_secret)),
      text_calls_(text_calls),
      pool_(pool),
      room_(std::move(room)),
      submit_(std::move(submit)),
      tell_(std::move(tell)),
      refused_(std::move(refused)) {}

std::shared_ptr<GenerateCall> InferenceService::Find(RequestKey key) {
  MutexLock lock(&mutex_);
  const auto found = calls_.find(key);
  return found == calls_.end() ? nullptr : found->second;
}

void InferenceService::SetServing(ServingChanged serving) {
  auto shared = std::make_shared<const ServingChanged>(std::move(serving));
  MutexLock lock(&mutex_);
  serving_ = std::move(shared);
}

size_t InferenceService::calls() {
  MutexLock lock(&mutex_);
  return calls_.size();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  const absl::Time arrival = SteadyNow();
  const RequestKey key = next_key_++;
  const absl::StatusOr<std::string> named = CallerOf(*context);
  const std::string caller = named.ok() ? *named : AddressOfPeer(context->peer());
  const std::shared_ptr<GenerateCall> call =
      GenerateCall::Create(key, context, tell_, [this, key, caller] {
        {
          MutexLock lock(&mutex_);
          calls_.erase(key);
          const auto of = calls_of_.find(caller);
          if (--of->second == 0) calls_of_.erase(of);
        }
        tell_(ClientGone{key});
      });
  size_t calls = 0, callers = 0;
  {
    MutexLock lock(&mutex_);
    calls_[key] = call;
    calls = ++calls_of_[caller];
    callers = calls_of_.size();
  }
  v1::GenerateRequest request;
  absl::Status status = ParseRequest(*bytes, &request);
  if (request.request_id().empty()) request.set_request_id(NewRequestId());
  if (status.ok()) status = named.status();
  if (status.ok()) status = room_(calls, callers);
  if (!status.ok()) {
    refused_(request, status);
    call->End(status);
    return call.get();
  }
  absl::Time deadline = DeadlineOf(*context);
  if (deadline == absl::InfiniteFuture()) deadline = arrival + limits_.default_deadline;
  const auto shared = std::make_shared<const v1::GenerateRequest>(std::move(request));
  status = RunOnText(caller, shared->text().size(),
                     [this, call, key, shared, caller, arrival, deadline] {
                       Admit(call, key, *shared, caller, arrival, deadline);
                     });
  if (!status.ok()) {
    refused_(*shared, status);
    call->End(status);
  }
  return call.get();
}

absl::Status InferenceService::RunOnText(const std::string& caller, size_t bytes,
                                         std::function<void()> work) {
  if (bytes > kLongText) return pool_->Submit(caller, bytes, std::move(work));
  work();
  return absl::OkStatus();
}

absl::StatusOr<std::string> InferenceService::CallerOf(
    const grpc::CallbackServerContext& context) const {
  if (limits_.trust_tenant_metadata) {
    const auto& metadata = context.client_metadata();
    const auto found = metadata.find(kTenantMetadata);
    if (found != metadata.end() && !found->second.empty()) {
      if (found->second.size() > kMaxTenantBytes) {
        return absl::InvalidArgumentError(absl::StrCat("the metadata ", kTenantMetadata, " has ",
                                                       found->second.size(),
                                                       " bytes; it takes up to ", kMaxTenantBytes));
      }
      return std::string(found->second.data(), found->second.size());
    }
  }
  return AddressOfPeer(context.peer());
}

void InferenceService::Admit(const std::shared_ptr<GenerateCall>& call, RequestKey key,
                             const v1::GenerateRequest& request, const std::string& caller,
                             absl::Time arrival, absl::Time deadline) {
  const auto interrupted = [&call, arrival, deadline] {
    if (call->cancelled()) return absl::CancelledError("the client cancelled");
    if (SteadyNow() < deadline) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrCat("the deadline passed ", absl::FormatDuration(deadline - arrival),
                     " after arrival, before the text was tokenised"));
  };
  const auto check = [&]() -> absl::StatusOr<CheckedRequest> {
    RETURN_IF_ERROR(interrupted());  // the text may have waited for its turn
    return CheckRequest(request, model_, limits_, arrival, deadline, interrupted);
  };
  absl::StatusOr<CheckedRequest> checked = check();
  absl::Status status = checked.status();
  if (status.ok()) {
    checked->caller = caller;
    NameBlocks(&*checked);
  }
  if (status.ok() && !submit_(ClientArrived{key, *std::move(checked)})) {
    status =
        WithRetryAfter(absl::ResourceExhaustedError("the router is overloaded: its inbox is full"),
                       absl::Seconds(1));
  }
  if (status.ok()) {
    call->Submitted();
  } else {
    refused_(request, status);
    call->End(status);
  }
}

void InferenceService::NameBlocks(CheckedRequest* checked) {
  if (!naming_secret_ || !checked->prefix_cache) return;
  std::shared_ptr<const ServingChanged> serving;
  {
    MutexLock lock(&mutex_);
    serving = serving_;
  }
  checked->block_names = NamePromptBlocks(*serving, *naming_secret_, model_.config.rope,
                                          checked->cache_salt, checked->prompt);
}

template <typename Request>
grpc::ServerUnaryReactor* InferenceService::Unary(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* bytes,
                                                  grpc::ByteBuffer* response, CallLimit* limit) {
  absl::Status status;
  std::optional<CallLimit::Place> place = limit != nullptr ? limit->Take() : std::nullopt;
  if (limit != nullptr && !place) {
    status = WithRetryAfter(
        absl::ResourceExhaustedError(absl::StrCat(
            limit->max(), " calls of Tokenize and Detokenize are running, which is the max")),
        absl::Seconds(1));
  }
  auto* const reactor = new UnaryCall(std::move(place));
  const auto request = std::make_shared<Request>();
  if (status.ok()) status = ParseRequest(*bytes, request.get());
  if (status.ok()) {
    // gRPC's object for the response lives until Finish().
    status =
        RunOnText(AddressOfPeer(context->peer()), request->ByteSizeLong(),
                  [this, request, response, reactor] {
                    const auto answer = Answer(*request);
                    if (answer.ok()) {
                      bool own = false;
                      using Response = std::decay_t<decltype(*answer)>;
                      const grpc::Status written =
                          grpc::SerializationTraits<Response>::Serialize(*answer, response, &own);
                      BATON_CHECK(written.ok()) << written.error_message();
                    }
                    reactor->Finish(ToGrpcStatus(answer.status()));
                  });
  }
  if (!status.ok()) {
    AddRetryPushback(status, context);
    reactor->Finish(ToGrpcStatus(status));
  }
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return Unary<v1::TokenizeRequest>(context, request, response, text_calls_);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return Unary<v1::DetokenizeRequest>(context, request, response, text_calls_);
}

grpc::ServerUnaryReactor* InferenceService::ListModels(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return Unary<v1::ListModelsRequest>(context, request, response, nullptr);
}

absl::StatusOr<v1::TokenizeResponse> InferenceService::Answer(const v1::TokenizeRequest& request) {
  RETURN_IF_ERROR(CheckModelName(request.model(), model_));
  RETURN_IF_ERROR(CheckTextSize("text", request.text(), limits_));
  const EncodeOptions options = {
      .parse_special = request.parse_special(),
      .add_special = !request.has_add_special() || request.add_special()};
  const absl::StatusOr<std::vector<TokenId>> ids =
      model_.tokenizer->Encode(request.text(), options);
  if (!ids.ok()) return absl::InvalidArgumentError(absl::StrCat("text: ", ids.status().message()));
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(ids->begin(), ids->end());
  for (const TokenId id : *ids) {
    const absl::string_view piece = model_.tokenizer->TokenBytes(id);
    response.add_pieces(piece.data(), piece.size());
  }
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> InferenceService::Answer(
    const v1::DetokenizeRequest& request) {
  RETURN_IF_ERROR(CheckModelName(request.model(), model_));
  if (static_cast<size_t>(request.token_ids_size()) > limits_.text_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("token_ids has ", request.token_ids_size(),
                                                   " ids; this router takes up to ",
                                                   limits_.text_bytes));
  }
  size_t bytes = 0;
  for (int i = 0; i < request.token_ids_size(); ++i) {
    if (request.token_ids(i) >= 0 && request.token_ids(i) < model_.config.vocab) {
      bytes += model_.tokenizer->TokenBytes(request.token_ids(i)).size();
      if (bytes <= limits_.text_bytes) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("token_ids stand for more than ", limits_.text_bytes, " bytes of text"));
    }
    return absl::InvalidArgumentError(absl::StrCat("token_ids[", i, "] is ", request.token_ids(i),
                                                   "; the vocabulary has ids 0 to ",
                                                   model_.config.vocab - 1));
  }
  v1::DetokenizeResponse response;
  response.set_text(
      model_.tokenizer->Decode(absl::MakeConstSpan(request.token_ids().data(),
                                                   static_cast<size_t>(request.token_ids_size())),
                               request.skip_special()));
  for (const TokenId id : request.token_ids()) {
    const absl::string_view piece = model_.tokenizer->TokenBytes(id);
    response.add_pieces(piece.data(), piece.size());
  }
  return response;
}

absl::StatusOr<v1::ListModelsResponse> InferenceService::Answer(const v1::ListModelsRequest&) {
  v1::ListModelsResponse response;
  v1::Model* model = response.add_models();
  model->set_name(model_.name);
  model->set_vocab_size(static_cast<uint32_t>(model_.config.vocab));
  model->set_architecture(model_.config.architecture);
  MutexLock lock(&mutex_);
  int context = model_.config.context;
  if (serving_->context_tokens > 0) context = std::min(context, serving_->context_tokens);
  model->set_context_tokens(static_cast<uint32_t>(context));
  model->set_fingerprint(serving_->identity.fingerprint);
  model->set_numerics_id(serving_->identity.numerics_id);
  model->set_serving(serving_->serving);
  model->set_not_serving_because(serving_->why);
  for (const std::string& sentence : serving_->unused) model->add_unused_workers(sentence);
  model->set_prefill_workers(serving_->prefill_workers);
  model->set_decode_workers(serving_->decode_workers);
  return response;
}

}  // namespace baton
