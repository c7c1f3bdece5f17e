#include "decode_worker/decode_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/dial.h"
#include "common/rpc/stream_writer.h"
#include "common/worker/worker_proto.h"

namespace baton {
namespace {

using Writer = StreamWriter<v1::DecodeEvent>;

// Events that wait for the router before its sequence pauses, and at which it goes on.
constexpr size_t kPauseAt = 64;
constexpr size_t kResumeAt = 16;

absl::StatusOr<DecodeJob> JobFromProto(const v1::DecodeRequest& request) {
  DecodeJob job;
  job.request_id = request.request_id();
  job.attempt = request.attempt();
  if (request.has_ticket()) {
    ASSIGN_OR_RETURN(KvTicket ticket, TicketFromProto(request.ticket()));
    job.ticket = std::move(ticket);
  }
  job.tokens.assign(request.token_ids().begin(), request.token_ids().end());
  if (request.original_prompt_tokens() < 1 ||
      request.original_prompt_tokens() > static_cast<uint32_t>(request.token_ids_size())) {
    return absl::InvalidArgumentError(absl::StrCat("original_prompt_tokens is ",
                                                   request.original_prompt_tokens(), " of ",
                                                   request.token_ids_size(), " tokens"));
  }
  job.original_prompt_tokens = static_cast<int>(request.original_prompt_tokens());
  ASSIGN_OR_RETURN(SamplingOptions sampling, ResolvedSampling(request.sampling()));
  job.sampling = std::move(sampling);
  job.sampling.answer_index = request.answer_index();
  return job;
}

void Write(Writer& writer, const DecodeUpdate& update) {
  v1::DecodeEvent event;
  if (std::holds_alternative<DecodePromised>(update)) {
    event.mutable_promised();
  } else if (const auto* prompt = std::get_if<DecodePromptTokens>(&update)) {
    for (const SampledToken& token : prompt->tokens) {
      *event.mutable_prompt_tokens()->add_tokens() = TokenToProto(token);
    }
  } else if (const auto* tokens = std::get_if<DecodeTokens>(&update)) {
    for (const SampledToken& token : tokens->tokens)
      *event.mutable_tokens()->add_tokens() = TokenToProto(token);
  } else if (std::holds_alternative<DecodeOutgrown>(update)) {
    event.mutable_outgrown();
  } else if (const auto* finished = std::get_if<DecodeFinished>(&update)) {
    v1::DecodeFinished* proto = event.mutable_finished();
    proto->set_reason(FinishReasonToProto(finished->reason));
    if (finished->stop_token) proto->set_stop_token_id(*finished->stop_token);
    proto->set_handover_hidden_us(Microseconds(finished->handover_hidden));
    proto->set_handover_exposed_us(Microseconds(finished->handover_exposed));
    proto->set_decode_wait_us(Microseconds(finished->decode_wait));
    proto->set_decode_us(Microseconds(finished->decode));
    proto->set_link(finished->link);
  } else {
    writer.End(std::get<DecodeEnded>(update).status);
    return;
  }
  writer.Send(std::move(event));
}

// Turns the length of a stream's backlog into pausing and resuming its job. Called by one thread at
// a time.
class Throttle {
 public:
  Throttle(DecodeWorker* worker, DecodeWorker::JobId job) : worker_(worker), job_(job) {}

  void Backlog(size_t events) {
    if (paused_ ? events > kResumeAt : events < kPauseAt) return;
    paused_ = !paused_;
    worker_->SetPaused(job_, paused_);
  }

 private:
  DecodeWorker* const worker_;
  const DecodeWorker::JobId job_;
  bool paused_ = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::DecodeEvent>* DecodeService::Decode(
    grpc::CallbackServerContext* context, const v1::DecodeRequest* request) {
  const std::shared_ptr<Writer> writer = Writer::Create();
  DecodeWorker* const worker = worker_;
  absl::Status status = CheckToken(*context, token_);
  if (status.ok() && worker == nullptr) status = absl::UnavailableError("the worker is starting");
  absl::StatusOr<DecodeJob> job = status.ok() ? JobFromProto(*request) : status;
  const auto update = [writer](const DecodeUpdate& said) { Write(*writer, said); };
  const absl::StatusOr<DecodeWorker::JobId> id =
      job.ok() ? worker->Submit(*std::move(job), update) : job.status();
  if (id.ok()) {
    writer->SetCancelled([worker, id = *id] { worker->Cancel(id); });
    writer->SetBacklog([throttle = std::make_shared<Throttle>(worker, *id)](size_t events) {
      throttle->Backlog(events);
    });
  } else {
    writer->End(id.status());
  }
  return writer.get();
}

}  // namespace baton
