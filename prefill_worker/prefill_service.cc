#include "prefill_worker/prefill_service.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/worker/worker_proto.h"

namespace baton {
namespace {

using Writer = StreamWriter<v1::PrefillEvent>;

absl::StatusOr<PrefillJob> JobFromProto(const v1::PrefillRequest& request) {
  PrefillJob job;
  RETURN_IF_ERROR(ReadJob(request, &job));
  job.arrival = SteadyNow();
  if (request.has_first_token_due_us()) {
    job.due = job.arrival + absl::Microseconds(request.first_token_due_us());
  }
  return job;
}

void Write(Writer& writer, const PrefillUpdate& update) {
  v1::PrefillEvent event;
  if (const auto* begun = std::get_if<PrefillBegun>(&update)) {
    *event.mutable_ticket() = TicketToProto(begun->ticket);
    event.set_cached_tokens(static_cast<uint32_t>(begun->cached_tokens));
  } else if (const auto* prompt = std::get_if<PrefillPromptTokens>(&update)) {
    AddTokens(prompt->tokens, event.mutable_prompt_tokens()->mutable_tokens());
  } else if (const auto* first = std::get_if<PrefillFirstToken>(&update)) {
    v1::FirstToken* proto = event.mutable_first_token();
    *proto->mutable_token() = TokenToProto(first->token);
    if (first->finish) proto->set_finish_reason(FinishReasonToProto(*first->finish));
    proto->set_queue_us(Microseconds(first->queue));
    proto->set_prefill_us(Microseconds(first->prefill));
  } else {
    writer.End(std::get<PrefillEnded>(update).status);
    return;
  }
  writer.Send(std::move(event));
}

}  // namespace

PrefillService::PrefillService(std::string token, WorkerEpoch epoch)
    : streams_(std::move(token), epoch, Write) {}

grpc::ServerWriteReactor<v1::PrefillEvent>* PrefillService::Prefill(
    grpc::CallbackServerContext* context, const v1::PrefillRequest* request) {
  return streams_.Serve(
      *context, request->worker_epoch(), [request] { return JobFromProto(*request); },
      [](Writer&, PrefillWorker*, PrefillWorker::JobId) {});
}

}  // namespace baton
