#include "router/grpc/inference_service.h"

#include <algorithm>
#include <atomic>
#include <deque>
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
#include "router/grpc/client_messages.h"
#include "router/grpc/message_size.h"

namespace baton {

namespace {

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
  // Keeps a place among the text calls, or memory for the answer, until gRPC is done with the call.
  void Keep(SharedBudget::Share share) { kept_.push_back(std::move(share)); }
  // Ends the call with an answer, a message in its bytes. If the client does not read the answer,
  // the call is cancelled at its deadline, but not later than after the default deadline.
  void Answer(grpc::ByteBuffer answer) {
    response_.Swap(&answer);
    cancel_.Start(std::min(ends_ - SteadyNow(), service_->door_->limits().default_deadline));
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
    if (ends_ == absl::InfiniteFuture())
      ends_ = SteadyNow() + service_->door_->limits().default_deadline;
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
  std::deque<SharedBudget::Share> kept_;
  std::atomic<bool> cancelled_ = false;
  grpc::ByteBuffer response_;
};

InferenceService::InferenceService(Door* door, Connections* connections, const ApiKeys* keys)
    : OneRequestService(connections, door->limits().request_limit), door_(door), keys_(keys) {
  AddMethod("/baton.v1.Inference/Generate",
            [this](grpc::CallbackServerContext* context) { return NewCall(context); });
  AddUnary<v1::TokenizeRequest>("/baton.v1.Inference/Tokenize", /*text_call=*/true);
  AddUnary<v1::DetokenizeRequest>("/baton.v1.Inference/Detokenize", /*text_call=*/true);
  AddUnary<v1::ListModelsRequest>("/baton.v1.Inference/ListModels", /*text_call=*/false);
}

GenerateCall* InferenceService::NewCall(grpc::CallbackServerContext* context) {
  const RequestKey key = door_->NewKey();
  absl::StatusOr<std::string> named = CallerOf(*context);
  const std::string caller = named.ok() ? *named : AddressOfPeer(context->peer());
  const absl::Time deadline = DeadlineOf(*context);
  // The functions do not keep the call alive, which keeps them.
  const std::shared_ptr<GenerateCall> call = GenerateCall::Create(
      this, door_, key, context,
      {.begin =
           [this, key, caller, status = named.status(), deadline](const grpc::ByteBuffer& bytes) {
             Begin({key, caller, door_->Find(key)}, status, deadline, bytes);
           },
       .no_request = [this,
                      caller](const absl::Status& status) { door_->NeverCame(caller, status); },
       .done = [this, key, caller] { door_->Close(key, caller); }});
  door_->Open({key, caller, call});
  return call.get();
}

void InferenceService::Begin(const Door::Call& call, absl::Status status, absl::Time deadline,
                             const grpc::ByteBuffer& bytes) {
  v1::GenerateRequest message;
  absl::Status parsed = CheckLength(bytes, door_->model().config.context);
  if (parsed.ok()) parsed = ParseRequest(bytes, &message);
  if (parsed.ok()) parsed = CheckMode(message.mode());
  if (!parsed.ok()) status = parsed;
  ClientRequest request = RequestFromProto(std::move(message));
  if (status.ok()) return door_->Ask(call, std::move(request), deadline);
  if (request.request_id.empty()) request.request_id = NewRequestId();
  door_->Refuse(call, request, status, Refusal::Cause::kRequest);
}

absl::StatusOr<std::string> InferenceService::CallerOf(
    const grpc::CallbackServerContext& context) const {
  const auto& metadata = context.client_metadata();
  const auto value_of = [&metadata](const char* name) {
    const auto found = metadata.find(name);
    return found == metadata.end() ? absl::string_view()
                                   : absl::string_view(found->second.data(), found->second.size());
  };
  RETURN_IF_ERROR(keys_->Check(value_of("authorization")));
  return door_->CallerName(value_of(kTenantHeader), AddressOfPeer(context.peer()));
}

template <typename Request>
void InferenceService::AddUnary(const char* name, bool text_call) {
  const auto end = [this, text_call](UnaryCall* call, const absl::Status& status) {
    if (text_call) door_->NoteTextCallEnd(status);
    call->End(status);
  };
  const auto begin = [this, text_call, end](UnaryCall* call, const grpc::ByteBuffer& bytes) {
    const absl::StatusOr<std::string> caller = CallerOf(call->context());
    absl::Status status = caller.status();
    if (status.ok() && text_call) {
      auto place = door_->TakeTextCall(*caller);
      status = place.status();
      if (place.ok()) call->Keep(*std::move(place));
    }
    if (!status.ok()) return end(call, status);
    // While the call waits for its turn, its message is kept as it came. Once it is parsed, it may
    // take eight times as many bytes.
    const auto respond = [this, call, text_call, end, caller = *caller,
                          bytes = InOneBlock(bytes)](const absl::Status& turn) mutable {
      const absl::Status status =
          turn.ok() ? Respond<Request>(call, caller, text_call, &bytes) : turn;
      if (!status.ok()) end(call, status);
    };
    status = door_->RunOnText(*caller, bytes.Length(), bytes.Length(), respond);
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
  if (counts) {
    ASSIGN_OR_RETURN(SharedBudget::Share share, door_->TakeAnswerBytes(caller, answer.Length()));
    call->Keep(std::move(share));
  }
  call->Answer(std::move(answer));
  return absl::OkStatus();
}

absl::StatusOr<grpc::ByteBuffer> InferenceService::Answer(const v1::TokenizeRequest& request,
                                                          const UnaryCall& call) {
  ASSIGN_OR_RETURN(const Door::EncodedText encoded,
                   door_->Tokenize(request.model(), request.text(), request.parse_special(),
                                   !request.has_add_special() || request.add_special(),
                                   [&call] { return call.Interrupted(); }));
  v1::TokenizeResponse rest;
  rest.set_dropped_bytes(static_cast<uint32_t>(encoded.dropped_bytes));
  AnswerWriter answer;
  answer.Write(rest);
  answer.WriteIds(v1::TokenizeResponse::kTokenIdsFieldNumber, encoded.ids);
  answer.WritePieces(v1::TokenizeResponse::kPiecesFieldNumber, *door_->model().tokenizer,
                     encoded.ids);
  return answer.Finish();
}

absl::StatusOr<grpc::ByteBuffer> InferenceService::Answer(const v1::DetokenizeRequest& request,
                                                          const UnaryCall&) {
  const auto ids = absl::MakeConstSpan(request.token_ids().data(),
                                       static_cast<size_t>(request.token_ids_size()));
  ASSIGN_OR_RETURN(std::string text,
                   door_->Detokenize(request.model(), ids, request.skip_special()));
  v1::DetokenizeResponse response;
  response.set_text(std::move(text));
  AnswerWriter answer;
  answer.Write(response);
  answer.WritePieces(v1::DetokenizeResponse::kPiecesFieldNumber, *door_->model().tokenizer, ids);
  return answer.Finish();
}

absl::StatusOr<grpc::ByteBuffer> InferenceService::Answer(const v1::ListModelsRequest&,
                                                          const UnaryCall&) {
  const ServedModel& served = door_->model();
  const std::shared_ptr<const ServingChanged> serving = door_->serving();
  v1::ListModelsResponse response;
  v1::Model* model = response.add_models();
  model->set_name(served.name);
  model->set_vocab_size(static_cast<uint32_t>(served.config.vocab));
  model->set_architecture(served.config.architecture);
  model->set_context_tokens(static_cast<uint32_t>(door_->context_tokens()));
  model->set_fingerprint(serving->identity.fingerprint);
  model->set_numerics_id(serving->identity.numerics_id);
  model->set_serving(serving->serving);
  model->set_not_serving_because(serving->why);
  for (const std::string& sentence : serving->unused) model->add_unused_workers(sentence);
  for (const std::string& sentence : serving->failing) model->add_failing_workers(sentence);
  model->set_prefill_workers(serving->prefill_workers);
  model->set_decode_workers(serving->decode_workers);
  model->set_takes_chat(served.chat != nullptr && served.chat->usable().ok());
  AnswerWriter answer;
  answer.Write(response);
  return answer.Finish();
}

}  // namespace baton
