#include "tests/goodput/load/generate_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/goodput/load/serving_mode.h"

namespace baton {
namespace {

double Seconds(uint64_t us) { return static_cast<double>(us) / 1e6; }

}  // namespace

void AddApiKey(const std::string& key, grpc::ClientContext* context) {
  if (!key.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", key));
}

GenerateStream::GenerateStream(v1::Inference::Stub* stub, const std::string& api_key,
                               RequestRecord record, Clock::time_point start, bool keep_token_ids,
                               OnEnded on_ended)
    : stub_(stub),
      record_(std::move(record)),
      start_(start),
      keep_token_ids_(keep_token_ids),
      on_ended_(std::move(on_ended)) {
  AddApiKey(api_key, &context_);
  record_.token_s.reserve(std::min(record_.wanted_tokens, 4096u));
}

double GenerateStream::NowS() const {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start_);
  return static_cast<double>(since.count()) / 1e6;
}

void GenerateStream::Start(const OutgoingRequest& request, absl::Duration timeout) {
  const absl::Duration left = absl::Seconds(record_.scheduled_s) + timeout - absl::Seconds(NowS());
  context_.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(left));
  stub_->async()->Generate(&context_, &request.message, this);
  StartRead(&event_);
  record_.sent_s = NowS();
  StartCall();
}

void GenerateStream::Stop() {
  stopped_ = true;
  context_.TryCancel();
}

void GenerateStream::OnReadDone(bool ok) {
  if (!ok) return;
  if (contradiction_.empty()) {
    contradiction_ = Take(event_);
    if (!contradiction_.empty()) context_.TryCancel();
  }
  StartRead(&event_);
}

std::string GenerateStream::Take(const v1::GenerateEvent& event) {
  switch (event.event_case()) {
    case v1::GenerateEvent::kAccepted:
      if (accepted_) return "it was accepted twice";
      accepted_ = true;
      record_.prompt_tokens = event.accepted().prompt_tokens();
      return "";
    case v1::GenerateEvent::kDelta:
      if (!accepted_ || finished_) return "tokens before it was accepted, or after its end";
      return TakeTokens(event.delta());
    case v1::GenerateEvent::kFinished:
      if (!accepted_ || finished_) return "an end before it was accepted, or a second one";
      finished_ = true;
      record_.finish_reason =
          event.finished().reason() == v1::FINISH_REASON_STOP ? "stop" : "length";
      return "";
    case v1::GenerateEvent::kSummary:
      TakeSummary(event.summary());
      return "";
    default:
      return "";  // An event that was not asked for, or an event of a later protocol version.
  }
}

std::string GenerateStream::TakeTokens(const v1::Delta& delta) {
  const double now_s = NowS();
  for (const v1::Token& token : delta.tokens()) {
    const uint32_t expected = record_.prompt_tokens + static_cast<uint32_t>(record_.token_s.size());
    if (token.position() != expected) {
      return absl::StrCat("a token came with position ", token.position(), " instead of ",
                          expected);
    }
    record_.token_s.push_back(now_s);
    if (keep_token_ids_) record_.token_ids.push_back(token.token_id());
  }
  return "";
}

void GenerateStream::TakeSummary(const v1::Summary& summary) {
  const v1::Timing& timing = summary.timing();
  record_.has_phases = true;
  record_.phases = {.queue_s = Seconds(timing.queue_us()),
                    .prefill_s = Seconds(timing.prefill_us()),
                    .handover_hidden_s = Seconds(timing.handover_hidden_us()),
                    .handover_exposed_s = Seconds(timing.handover_exposed_us()),
                    .decode_wait_s = Seconds(timing.decode_wait_us()),
                    .decode_s = Seconds(timing.decode_us()),
                    .ttft_s = Seconds(timing.ttft_us()),
                    .total_s = Seconds(timing.total_us())};
  record_.cached_tokens = summary.usage().cached_tokens();
  record_.migrations = summary.migrations();
  record_.prefill_worker = summary.prefill_worker();
  record_.decode_worker = summary.decode_worker();
  record_.link = summary.link();
  record_.served_mode = NameOf(summary.mode());
  if (summary.slo().lost_to() != v1::SLO_PHASE_UNSPECIFIED) {
    const std::string phase = v1::SloPhase_Name(summary.slo().lost_to());
    record_.lost_to = absl::AsciiStrToLower(absl::StripPrefix(phase, "SLO_PHASE_"));
  }
}

void GenerateStream::OnDone(const grpc::Status& status) {
  EndRecord({.code = static_cast<absl::StatusCode>(status.error_code()),
             .message = status.error_message(),
             .finished = finished_,
             .stopped = stopped_,
             .contradiction = contradiction_},
            NowS(), &record_);
  on_ended_(this);
}

}  // namespace baton
