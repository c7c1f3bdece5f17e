#include "prefill_worker/prefill_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/dial.h"
#include "common/rpc/stream_writer.h"
#include "common/worker/worker_proto.h"

namespace baton {
namespace {

using Writer = StreamWriter<v1::PrefillEvent>;

absl::StatusOr<PrefillJob> JobFromProto(const v1::PrefillRequest& request) {
  PrefillJob job;
  job.request_id = request.request_id();
  job.attempt = request.attempt();
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
  job.arrival = SteadyNow();
  return job;
}

void Write(Writer& writer, PrefillUpdate update) {
  v1::PrefillEvent event;
  if (const auto* ticket = std::get_if<KvTicket>(&update)) {
    *event.mutable_ticket() = TicketToProto(*ticket);
  } else if (const auto* prompt = std::get_if<PrefillPromptTokens>(&update)) {
    for (const SampledToken& token : prompt->tokens) {
      *event.mutable_prompt_tokens()->add_tokens() = TokenToProto(token);
    }
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

grpc::ServerWriteReactor<v1::PrefillEvent>* PrefillService::Prefill(
    grpc::CallbackServerContext* context, const v1::PrefillRequest* request) {
  const std::shared_ptr<Writer> writer = Writer::Create();
  PrefillWorker* const worker = worker_;
  absl::Status status = CheckToken(*context, token_);
  if (status.ok() && worker == nullptr) status = absl::UnavailableError("the worker is starting");
  absl::StatusOr<PrefillJob> job = status.ok() ? JobFromProto(*request) : status;
  const auto update = [writer](PrefillUpdate said) { Write(*writer, std::move(said)); };
  const absl::StatusOr<PrefillWorker::JobId> id =
      job.ok() ? worker->Submit(*std::move(job), update) : job.status();
  if (id.ok()) {
    writer->SetCancelled([worker, id = *id] { worker->Cancel(id); });
  } else {
    writer->End(id.status());
  }
  return writer.get();
}

}  // namespace baton
