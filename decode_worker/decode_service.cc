#include "decode_worker/decode_service.h"

#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "common/worker/worker_proto.h"

namespace baton {
namespace {

using Writer = StreamWriter<v1::DecodeEvent>;

// A sequence is paused when its stream has kPauseAt unsent events, and resumed when it has
// kResumeAt.
constexpr size_t kPauseAt = 64;
constexpr size_t kResumeAt = 16;

absl::StatusOr<DecodeJob> JobFromProto(const v1::DecodeRequest& request) {
  DecodeJob job;
  if (request.has_ticket()) {
    ASSIGN_OR_RETURN(job.ticket, TicketFromProto(request.ticket()));
  }
  RETURN_IF_ERROR(ReadJob(request, &job));
  return job;
}

void Write(Writer& writer, const DecodeUpdate& update) {
  v1::DecodeEvent event;
  if (const auto* reserved = std::get_if<DecodeReserved>(&update)) {
    event.mutable_reserved()->set_cached_tokens(static_cast<uint32_t>(reserved->cached_tokens));
  } else if (const auto* prompt = std::get_if<DecodePromptTokens>(&update)) {
    AddTokens(prompt->tokens, event.mutable_prompt_tokens()->mutable_tokens());
  } else if (const auto* tokens = std::get_if<DecodeTokens>(&update)) {
    AddTokens(tokens->tokens, event.mutable_tokens()->mutable_tokens());
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

// Pauses and resumes a job as the backlog of its stream grows and shrinks. Called by one thread at
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

DecodeService::DecodeService(std::string token, WorkerEpoch epoch)
    : streams_(std::move(token), epoch, Write) {}

grpc::ServerWriteReactor<v1::DecodeEvent>* DecodeService::Decode(
    grpc::CallbackServerContext* context, const v1::DecodeRequest* request) {
  return streams_.Serve(
      *context, request->worker_epoch(), [request] { return JobFromProto(*request); },
      [](Writer& writer, DecodeWorker* worker, DecodeWorker::JobId id) {
        writer.SetBacklog([throttle = std::make_shared<Throttle>(worker, id)](size_t events) {
          throttle->Backlog(events);
        });
      });
}

}  // namespace baton
