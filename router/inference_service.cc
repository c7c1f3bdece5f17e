#include "router/inference_service.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/alarm.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/raw_request.h"
#include "common/rpc/retry_after.h"
#include "common/rpc/status.h"
#include "router/block_naming.h"

namespace baton {

namespace {

constexpr size_t kMaxTenantBytes = 128;
// Tokenize takes texts with more tokens than the model's context. Only a normaliser can make more
// tokens of a text than it has bytes. Tokenize takes twice as many, and this number for the tokens
// that the tokeniser puts around the text.
constexpr size_t kTokensBeside = 1000;

// Writes the answer of a call into blocks of this size. An answer with millions of tokens would
// take many times its memory as a message, and twice as a single string that grows.
constexpr int kBlockBytes = 16 << 10;

class AnswerWriter {
 public:
  // Writes the fields of a message.
  void Write(const google::protobuf::MessageLite& message) {
    message.SerializeToCodedStream(&out_);
  }
  // Writes a packed repeated field of type int32.
  template <typename Ids>
  void WriteIds(int field, const Ids& ids) {
    size_t bytes = 0;
    for (const TokenId id : ids) bytes += Wire::Int32Size(id);
    Wire::WriteTag(field, Wire::WIRETYPE_LENGTH_DELIMITED, &out_);
    out_.WriteVarint32(static_cast<uint32_t>(bytes));
    for (const TokenId id : ids) out_.WriteVarint32SignExtended(id);
  }
  // Writes the bytes of each token as one value of a repeated field.
  template <typename Ids>
  void WritePieces(int field, const Tokenizer& tokenizer, const Ids& ids) {
    for (const TokenId id : ids) {
      const absl::string_view piece = tokenizer.TokenBytes(id);
      Wire::WriteTag(field, Wire::WIRETYPE_LENGTH_DELIMITED, &out_);
      out_.WriteVarint32(static_cast<uint32_t>(piece.size()));
      out_.WriteRaw(piece.data(), static_cast<int>(piece.size()));
    }
  }
  // Returns the answer. Call it once, and nothing afterwards.
  grpc::ByteBuffer Finish() {
    out_.Trim();
    return bytes_;
  }

 private:
  using Wire = google::protobuf::internal::WireFormatLite;
  grpc::ByteBuffer bytes_;
  grpc::ProtoBufferWriter blocks_{&bytes_, kBlockBytes, std::numeric_limits<int>::max()};
  google::protobuf::io::CodedOutputStream out_{&blocks_};
};

absl::Status TryAgain(absl::string_view why) {
  return WithRetryAfter(absl::ResourceExhaustedError(why), WithJitter(absl::Seconds(1)));
}

absl::Status CheckLength(const grpc::ByteBuffer& bytes, int context) {
  grpc::ByteBuffer copy = bytes;  // The copy shares the slices of `bytes`.
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok()) return absl::OkStatus();  // ParseRequest() says what is wrong.
  return CheckBytesBesideText(&reader, bytes.Length(), context);
}

// Returns a copy of a message that waits. gRPC's own slices may be small parts of blocks that were
// read from the connection, and would keep all of these.
grpc::ByteBuffer InOneBlock(const grpc::ByteBuffer& bytes) {
  grpc::Slice block;
  if (!bytes.DumpToSingleSlice(&block).ok()) return bytes;
  return grpc::ByteBuffer(&block, 1);
}

// Returns about how much memory a request takes as long as it is open, without its answer.
size_t BytesOf(const CheckedRequest& request) {
  constexpr size_t kBytesPerAnswer = 4096;  // Memory of the core beside the values below.
  const SamplingOptions& sampling = request.sampling;
  size_t bytes = kBytesPerAnswer * static_cast<size_t>(request.answers) +
                 request.prompt.capacity() * sizeof(TokenId) +
                 sampling.stop_tokens.size() * sizeof(TokenId) +
                 sampling.logit_bias.size() * sizeof(sampling.logit_bias[0]);
  for (const std::string& text : request.stop) bytes += sizeof(text) + text.size();
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    bytes += sizeof(word) + word.size() * sizeof(TokenId);
  }
  if (request.block_names != nullptr) bytes += request.block_names->size() * sizeof(BlockName);
  return bytes;
}

// Cancels an RPC if it has not ended in time. Must be destroyed when gRPC is done with the RPC.
class CancelInTime {
 public:
  explicit CancelInTime(grpc::CallbackServerContext* context) : rpc_(std::make_shared<Rpc>()) {
    MutexLock lock(&rpc_->mutex);
    rpc_->context = context;
  }
  ~CancelInTime() {
    MutexLock lock(&rpc_->mutex);
    rpc_->context = nullptr;
  }
  // Begins to measure the time. When `limit` has passed, a thread of gRPC cancels the RPC. Must be
  // called at most once.
  void Start(absl::Duration limit) {
    const gpr_timespec left = gpr_time_from_micros(absl::ToInt64Microseconds(limit), GPR_TIMESPAN);
    alarm_.Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), left), [rpc = rpc_](bool passed) {
      MutexLock lock(&rpc->mutex);
      if (passed && rpc->context != nullptr) rpc->context->TryCancel();
    });
  }

 private:
  // Shared with the alarm, which gRPC may still run when this object is destroyed.
  struct Rpc {
    Mutex mutex;
    // Null once gRPC is done with the RPC.
    grpc::CallbackServerContext* context ABSL_GUARDED_BY(mutex) = nullptr;
  };
  const std::shared_ptr<Rpc> rpc_;
  grpc::Alarm alarm_;
};

}  // namespace

// A call with a single answer.
class InferenceService::UnaryCall final : public OneRequestCall {
 public:
  // Called with the request, to end the call sooner or later.
  using Begin = std::function<void(UnaryCall* call, const grpc::ByteBuffer& request)>;
  UnaryCall(InferenceService* service, grpc::CallbackServerContext* context, Begin begin)
      : OneRequestCall(service, context),
        service_(service),
        context_(context),
        begin_(std::move(begin)),
        cancel_(context) {}

  const grpc::CallbackServerContext& context() const { return *context_; }
  // Returns OK while somebody waits for the answer. Any thread.
  absl::Status Interrupted() const {
    if (cancelled_) return absl::CancelledError("the client cancelled");
    if (SteadyNow() < ends_) return absl::OkStatus();
    return absl::DeadlineExceededError("the deadline passed before the text was tokenised");
  }
  // Takes a place of `limit` for the call, until gRPC is done with it. Returns ResourceExhausted if
  // the caller gets none.
  absl::Status TakePlace(SharedBudget* limit, const std::string& caller) {
    if (auto place = limit->Take(caller, 1)) {
      place_.emplace(*std::move(place));
      return absl::OkStatus();
    }
    return TryAgain(absl::StrCat(limit->taken(), " calls of Tokenize and Detokenize are running, ",
                                 limit->TakenBy(caller), " of them of this caller; the max is ",
                                 limit->max(), ", of which one caller gets three quarters"));
  }
  // Counts the bytes of the call's answer until gRPC is done with the call. Returns
  // ResourceExhausted, and counts nothing, if there would be too many.
  absl::Status Hold(size_t bytes, const std::string& caller) {
    SharedBudget& answers = service_->answer_bytes_;
    if (auto share = answers.Take(caller, bytes)) {
      held_.emplace(*std::move(share));
      return absl::OkStatus();
    }
    return TryAgain(absl::StrCat(
        "answers of Tokenize and Detokenize that clients have not read, with this one of ", bytes,
        " bytes, would have ", answers.taken() + bytes, " bytes, ", answers.TakenBy(caller) + bytes,
        " of them of this caller; the max is ", answers.max(),
        ", of which one caller gets three quarters"));
  }
  // Ends the call with an answer, a message in its bytes. If the client does not read the answer,
  // the call is cancelled at its deadline, but not later than after the default deadline.
  void Answer(grpc::ByteBuffer answer) {
    response_.Swap(&answer);
    cancel_.Start(std::min(ends_ - SteadyNow(), service_->limits_.default_deadline));
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  // Ends the call with an error.
  void End(const absl::Status& status) {
    AddRetryPushback(status, context_);
    Finish(ToGrpcStatus(status));
  }

 private:
  void OnRequest(const grpc::ByteBuffer& request) override {
    ends_ = deadline();
    if (ends_ == absl::InfiniteFuture()) ends_ = SteadyNow() + service_->limits_.default_deadline;
    begin_(this, request);
  }
  void EndWithoutRequest(const absl::Status& status) override { End(status); }
  void OnCancel() override {
    cancelled_ = true;
    OneRequestCall::OnCancel();
  }
  void OnDone() override {
    OneRequestCall::OnDone();
    delete this;
  }

  InferenceService* const service_;
  grpc::CallbackServerContext* const context_;
  const Begin begin_;
  // The deadline, also if the client has set none. Set when the request has come.
  absl::Time ends_ = absl::InfiniteFuture();
  CancelInTime cancel_;
  std::optional<SharedBudget::Share> place_;  // A place among the calls.
  std::optional<SharedBudget::Share> held_;   // The bytes of the answer.
  std::atomic<bool> cancelled_ = false;
  grpc::ByteBuffer response_;
};

InferenceService::InferenceService(
    ServedModel model, RequestLimits limits, Connections* connections,
    std::optional<std::string> naming_secret, SharedBudget* text_calls, EncodePool* pool,
    SharedBudget* prompts, std::function<absl::Status(size_t calls, size_t callers)> room,
    std::function<bool(CoreEvent)> submit, std::function<void(CoreEvent)> tell, Refused refused)
    : OneRequestService(connections, limits.request_limit),
      model_(std::move(model)),
      limits_(limits),
      naming_secret_(std::move(naming_secret)),
      text_calls_(text_calls),
      pool_(pool),
      prompts_(prompts),
      room_(std::move(room)),
      submit_(std::move(submit)),
      tell_(std::move(tell)),
      refused_(std::move(refused)),
      answer_bytes_(kTextsInAnswers * limits.text_bytes + kBytesBeside) {
  AddMethod("/baton.v1.Inference/Generate",
            [this](grpc::CallbackServerContext* context) { return NewCall(context); });
  AddUnary<v1::TokenizeRequest>("/baton.v1.Inference/Tokenize", text_calls_);
  AddUnary<v1::DetokenizeRequest>("/baton.v1.Inference/Detokenize", text_calls_);
  AddUnary<v1::ListModelsRequest>("/baton.v1.Inference/ListModels", nullptr);
}

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

GenerateCall* InferenceService::NewCall(grpc::CallbackServerContext* context) {
  const RequestKey key = next_key_++;
  absl::StatusOr<std::string> named = CallerOf(*context);
  const std::string caller = named.ok() ? *named : AddressOfPeer(context->peer());
  const absl::Time deadline = DeadlineOf(*context);
  const std::shared_ptr<GenerateCall> call = GenerateCall::Create(
      this, key, context,
      {.tell = tell_,
       .begin =
           [this, key, caller, status = named.status(), deadline](const grpc::ByteBuffer& bytes) {
             Begin(Find(key), key, caller, status, deadline, bytes);
           },
       .no_request =
           [this, caller](const absl::Status& status) {
             refused_({{}, caller, status, Refusal::Cause::kNeverCame});
           },
       .done =
           [this, key, caller] {
             {
               MutexLock lock(&mutex_);
               calls_.erase(key);
               const auto of = calls_of_.find(caller);
               if (--of->second == 0) calls_of_.erase(of);
             }
             tell_(ClientGone{key});
           }});
  MutexLock lock(&mutex_);
  calls_[key] = call;
  ++calls_of_[caller];
  return call.get();
}

void InferenceService::Begin(const std::shared_ptr<GenerateCall>& call, RequestKey key,
                             const std::string& caller, absl::Status status, absl::Time deadline,
                             const grpc::ByteBuffer& bytes) {
  const absl::Time arrival = SteadyNow();
  size_t calls = 0, callers = 0;
  {
    MutexLock lock(&mutex_);
    calls = calls_of_[caller];
    callers = calls_of_.size();
  }
  v1::GenerateRequest request;
  absl::Status parsed = CheckLength(bytes, model_.config.context);
  if (parsed.ok()) parsed = ParseRequest(bytes, &request);
  if (request.request_id().empty()) request.set_request_id(NewRequestId());
  if (!parsed.ok()) status = parsed;
  if (!status.ok()) {
    return Refuse(call.get(), {request, caller, status, Refusal::Cause::kRequest});
  }
  status = room_(calls, callers);
  if (!status.ok()) return Refuse(call.get(), {request, caller, status, Refusal::Cause::kQueue});
  if (deadline == absl::InfiniteFuture()) deadline = arrival + limits_.default_deadline;
  const auto shared = std::make_shared<const v1::GenerateRequest>(std::move(request));
  size_t text_bytes = shared->text().size();
  for (const std::string& word : shared->sampling().bad_words()) text_bytes += word.size();
  status =
      RunOnText(caller, text_bytes, shared->SpaceUsedLong(),
                [this, call, key, shared, caller, arrival, deadline](const absl::Status& turn) {
                  if (turn.ok()) return Admit(call, key, *shared, caller, arrival, deadline);
                  Refuse(call.get(), {*shared, caller, turn, Refusal::Cause::kTexts});
                });
  if (!status.ok()) Refuse(call.get(), {*shared, caller, status, Refusal::Cause::kTexts});
}

void InferenceService::Refuse(GenerateCall* call, const Refusal& refusal) {
  refused_(refusal);
  call->End(refusal.status);
}

absl::Status InferenceService::RunOnText(const std::string& caller, size_t text_bytes, size_t bytes,
                                         EncodePool::Work work) {
  if (text_bytes > kLongText) return pool_->Submit(caller, bytes, std::move(work));
  work(absl::OkStatus());
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
  if (!checked.ok()) {
    return Refuse(call.get(), {request, caller, checked.status(), Refusal::Cause::kRequest});
  }
  checked->caller = caller;
  NameBlocks(&*checked);
  absl::Status status;
  if (auto share = prompts_->Take(caller, BytesOf(*checked))) {
    checked->memory = std::make_shared<SharedBudget::Share>(*std::move(share));
    if (!submit_(ClientArrived{key, *std::move(checked)})) {
      status = TryAgain("the router is overloaded: its inbox is full");
    }
  } else {
    status = TryAgain(absl::StrCat(
        "the router is overloaded: open requests have ", prompts_->taken(), " bytes, ",
        prompts_->TakenBy(caller), " of them of this caller, and this one has ", BytesOf(*checked),
        "; the max is ", prompts_->max(), ", of which one caller gets three quarters"));
  }
  if (!status.ok()) {
    return Refuse(call.get(), {request, caller, status, Refusal::Cause::kNoMemory});
  }
  call->Submitted();
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
void InferenceService::AddUnary(const char* name, SharedBudget* limit) {
  const auto end = [this, limit](UnaryCall* call, const absl::Status& status) {
    if (limit != nullptr && absl::IsResourceExhausted(status)) text_calls_refused_.Add();
    call->End(status);
  };
  const auto begin = [this, limit, end](UnaryCall* call, const grpc::ByteBuffer& bytes) {
    const absl::StatusOr<std::string> caller = CallerOf(call->context());
    absl::Status status = caller.status();
    if (status.ok() && limit != nullptr) status = call->TakePlace(limit, *caller);
    if (!status.ok()) return end(call, status);
    // While the call waits for its turn, its message is kept as it came. Once it is parsed, it may
    // take eight times as many bytes.
    const auto respond = [this, call, limit, end, caller = *caller,
                          bytes = InOneBlock(bytes)](const absl::Status& turn) mutable {
      const absl::Status status =
          turn.ok() ? Respond<Request>(call, caller, limit != nullptr, &bytes) : turn;
      if (!status.ok()) end(call, status);
    };
    status = RunOnText(*caller, bytes.Length(), bytes.Length(), respond);
    if (!status.ok()) end(call, status);
  };
  AddMethod(name, [this, begin](grpc::CallbackServerContext* context) {
    return new UnaryCall(this, context, begin);
  });
}

template <typename Request>
absl::Status InferenceService::Respond(UnaryCall* call, const std::string& caller, bool counts,
                                       grpc::ByteBuffer* bytes) {
  RETURN_IF_ERROR(call->Interrupted());
  Request request;
  RETURN_IF_ERROR(ParseRequest(*bytes, &request));
  bytes->Clear();
  ASSIGN_OR_RETURN(grpc::ByteBuffer answer, Answer(request, *call));
  if (counts) RETURN_IF_ERROR(call->Hold(answer.Length(), caller));
  call->Answer(std::move(answer));
  return absl::OkStatus();
}

absl::StatusOr<grpc::ByteBuffer> InferenceService::Answer(const v1::TokenizeRequest& request,
                                                          const UnaryCall& call) {
  RETURN_IF_ERROR(CheckModelName(request.model(), model_));
  RETURN_IF_ERROR(CheckTextSize("text", request.text(), limits_));
  size_t dropped_bytes = 0;
  const EncodeOptions options = {.parse_special = request.parse_special(),
                                 .add_special = !request.has_add_special() || request.add_special(),
                                 .max_tokens = 2 * limits_.text_bytes + kTokensBeside,
                                 .interrupted = [&call] { return call.Interrupted(); },
                                 .dropped_bytes = &dropped_bytes};
  const absl::StatusOr<std::vector<TokenId>> ids =
      model_.tokenizer->Encode(request.text(), options);
  if (!ids.ok()) {
    const absl::StatusCode code =
        absl::IsOutOfRange(ids.status()) ? absl::StatusCode::kInvalidArgument : ids.status().code();
    return absl::Status(code, absl::StrCat("text: ", ids.status().message()));
  }
  v1::TokenizeResponse rest;
  rest.set_dropped_bytes(static_cast<uint32_t>(dropped_bytes));
  AnswerWriter answer;
  answer.Write(rest);
  answer.WriteIds(v1::TokenizeResponse::kTokenIdsFieldNumber, *ids);
  answer.WritePieces(v1::TokenizeResponse::kPiecesFieldNumber, *model_.tokenizer, *ids);
  return answer.Finish();
}

absl::StatusOr<grpc::ByteBuffer> InferenceService::Answer(const v1::DetokenizeRequest& request,
                                                          const UnaryCall&) {
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
  AnswerWriter answer;
  answer.Write(response);
  answer.WritePieces(v1::DetokenizeResponse::kPiecesFieldNumber, *model_.tokenizer,
                     request.token_ids());
  return answer.Finish();
}

absl::StatusOr<grpc::ByteBuffer> InferenceService::Answer(const v1::ListModelsRequest&,
                                                          const UnaryCall&) {
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
  for (const std::string& sentence : serving_->failing) model->add_failing_workers(sentence);
  model->set_prefill_workers(serving_->prefill_workers);
  model->set_decode_workers(serving_->decode_workers);
  AnswerWriter answer;
  answer.Write(response);
  return answer.Finish();
}

}  // namespace baton
