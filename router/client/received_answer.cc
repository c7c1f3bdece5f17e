#include "router/client/received_answer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

std::string FinishReasonName(v1::FinishReason reason) {
  const std::string name = v1::FinishReason_Name(reason);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "FINISH_REASON_"));
}

std::string Milliseconds(double us) { return absl::StrFormat("%9.2f ms", us / 1000); }

}  // namespace

absl::Status ReceivedAnswer::Add(const v1::GenerateEvent& event, absl::Time now) {
  const auto out_of_order = [&] {
    return absl::DataLossError(absl::StrCat("event ", static_cast<int>(event.event_case()),
                                            " of the stream came out of order"));
  };
  switch (event.event_case()) {
    case v1::GenerateEvent::kAccepted:
      if (stage_ != Stage::kNothing) return out_of_order();
      stage_ = Stage::kAccepted;
      accepted_ = event.accepted();
      return absl::OkStatus();
    case v1::GenerateEvent::kDelta:
      if (stage_ != Stage::kAccepted) return out_of_order();
      for (const v1::Token& token : event.delta().tokens()) {
        const uint32_t expected = accepted_.prompt_tokens() + static_cast<uint32_t>(tokens_.size());
        if (token.position() != expected) {
          return absl::DataLossError(absl::StrCat("token ", token.token_id(),
                                                  " came with position ", token.position(),
                                                  " instead of ", expected));
        }
        if (tokens_.empty()) first_token_ = now;
        last_token_ = now;
        tokens_.push_back(token);
      }
      absl::StrAppend(&text_, event.delta().text());
      return absl::OkStatus();
    case v1::GenerateEvent::kFinished:
      if (stage_ != Stage::kAccepted) return out_of_order();
      stage_ = Stage::kFinished;
      finished_ = event.finished();
      return absl::OkStatus();
    case v1::GenerateEvent::kSummary:
      if (stage_ != Stage::kFinished) return out_of_order();
      stage_ = Stage::kSummary;
      summary_ = event.summary();
      return absl::OkStatus();
    case v1::GenerateEvent::EVENT_NOT_SET:
      break;
  }
  return absl::OkStatus();  // an event of a later version
}

nlohmann::ordered_json ReceivedAnswer::ToJson() const {
  nlohmann::ordered_json token_ids = nlohmann::ordered_json::array();
  nlohmann::ordered_json logprobs = nlohmann::ordered_json::array();
  for (const v1::Token& token : tokens_) {
    token_ids.push_back(token.token_id());
    if (!token.has_logprob()) continue;
    nlohmann::ordered_json top = nlohmann::ordered_json::array();
    for (const v1::TopLogprob& other : token.top()) {
      top.push_back({{"token_id", other.token_id()}, {"logprob", other.logprob()}});
    }
    logprobs.push_back(
        {{"token_id", token.token_id()}, {"logprob", token.logprob()}, {"top", top}});
  }
  const v1::Timing& timing = summary_.timing();
  return {
      {"request_id", accepted_.request_id()},
      {"model", accepted_.model()},
      {"text", text_},
      {"token_ids", token_ids},
      {"finish_reason", FinishReasonName(finished_.reason())},
      {"logprobs", logprobs},
      {"usage",
       {{"prompt_tokens", summary_.usage().prompt_tokens()},
        {"cached_tokens", summary_.usage().cached_tokens()},
        {"completion_tokens", summary_.usage().completion_tokens()}}},
      {"seed", summary_.seed()},
      {"timing_us",
       {{"queue", timing.queue_us()},
        {"prefill", timing.prefill_us()},
        {"handover_hidden", timing.handover_hidden_us()},
        {"handover_exposed", timing.handover_exposed_us()},
        {"decode_wait", timing.decode_wait_us()},
        {"decode", timing.decode_us()},
        {"ttft", timing.ttft_us()},
        {"total", timing.total_us()}}},
      {"workers", {{"prefill", summary_.prefill_worker()}, {"decode", summary_.decode_worker()}}},
      {"link", summary_.link()},
      {"migrations", summary_.migrations()},
  };
}

std::string ReceivedAnswer::TimingTable() const {
  const v1::Timing& timing = summary_.timing();
  std::string table;
  const auto row = [&table](absl::string_view name, double us, absl::string_view note = "") {
    absl::StrAppend(&table, absl::StrFormat("  %-28s", name), Milliseconds(us), note, "\n");
  };
  if (!tokens_.empty()) {
    row("time to first token (TTFT)", absl::ToDoubleMicroseconds(first_token_ - sent_),
        absl::StrFormat("   %.2f ms of it from the router's door to its first token",
                        static_cast<double>(timing.ttft_us()) / 1000));
  }
  if (tokens_.size() > 1) {
    const double tpot_us = absl::ToDoubleMicroseconds(last_token_ - first_token_) /
                           static_cast<double>(tokens_.size() - 1);
    row("time per later token (TPOT)", tpot_us,
        tpot_us > 0 ? absl::StrFormat("   %.0f tokens/s", 1e6 / tpot_us) : "");
  }
  row("- queue", timing.queue_us());
  row("- prefill", timing.prefill_us());
  row("- hand-over behind prefill", timing.handover_hidden_us());
  row("- hand-over exposed", timing.handover_exposed_us());
  row("- wait for decode", timing.decode_wait_us());
  row("- decode", timing.decode_us());
  row("total", timing.total_us());
  absl::StrAppend(&table, "  ", summary_.usage().prompt_tokens(), " prompt tokens (",
                  summary_.usage().cached_tokens(), " cached), ",
                  summary_.usage().completion_tokens(), " generated, finished by ",
                  FinishReasonName(finished_.reason()), ", seed ", summary_.seed(), "\n");
  absl::StrAppend(&table, "  prefill ", summary_.prefill_worker());
  if (!summary_.decode_worker().empty()) {
    absl::StrAppend(&table, " -> ", summary_.link(), " -> decode ", summary_.decode_worker());
  }
  if (summary_.migrations() > 0) {
    absl::StrAppend(&table, ", started again ", summary_.migrations(), " times");
  }
  return absl::StrCat(table, "\n");
}

}  // namespace baton
