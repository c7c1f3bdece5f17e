#include "tests/goodput/load/openai_stream.h"

#include <algorithm>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/json_value.h"
#include "tests/goodput/load/openai_status.h"

namespace baton {
namespace {

constexpr size_t kMaxErrorBody = 64 << 10;
constexpr absl::string_view kDone = "[DONE]";  // Data of the last event of a stream.

bool IsSet(const std::optional<JsonValue>& value) { return value && !value->IsNull(); }

uint32_t CountOr(const std::optional<JsonValue>& value, uint32_t otherwise) {
  const std::optional<uint64_t> number = value ? value->UInt() : std::nullopt;
  return number && *number <= UINT32_MAX ? static_cast<uint32_t>(*number) : otherwise;
}

// Returns a time of `timing` in seconds, or 0 if it is absent.
double SecondsOf(const nlohmann::json& timing, const char* key) {
  const auto found = timing.find(key);
  return found != timing.end() && found->is_number() ? found->get<double>() / 1e3 : 0;
}

}  // namespace

OpenAiStream::OpenAiStream(HttpCaller* caller, HttpCall call, RequestRecord record,
                           Clock::time_point start, bool keep_token_ids, OnEnded on_ended,
                           OpenAiCounts* counts)
    : caller_(caller),
      call_(std::move(call)),
      id_(caller->NewId()),
      record_(std::move(record)),
      start_(start),
      keep_token_ids_(keep_token_ids),
      on_ended_(std::move(on_ended)),
      counts_(counts) {
  events_.reserve(std::min(record_.wanted_tokens + 1, 4096u));
}

double OpenAiStream::Since(Time time) const {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(time - start_);
  return static_cast<double>(since.count()) / 1e6;
}

void OpenAiStream::Start(const OutgoingRequest& request, absl::Duration timeout) {
  const v1::Slo& slo = request.message.slo();
  if (slo.has_ttft_ms())
    call_.fields.emplace_back("x-slo-ttft-ms", absl::StrFormat("%.10g", slo.ttft_ms()));
  if (slo.has_tpot_ms())
    call_.fields.emplace_back("x-slo-tpot-ms", absl::StrFormat("%.10g", slo.tpot_ms()));
  call_.body = request.body;
  const auto deadline =
      start_ + std::chrono::duration_cast<Clock::duration>(
                   absl::ToChronoNanoseconds(absl::Seconds(record_.scheduled_s) + timeout));
  // The stream may end, and be destroyed, before this call returns.
  caller_->Send(id_, std::move(call_), this, deadline);
}

void OpenAiStream::Stop() {
  stopped_ = true;
  caller_->Cancel(id_);
}

void OpenAiStream::OnSend(Time now) { record_.sent_s = Since(now); }

void OpenAiStream::OnHead(int status) { http_status_ = status; }

bool OpenAiStream::OnBody(absl::string_view bytes, Time read) {
  if (CodeOfHttpStatus(http_status_) != absl::StatusCode::kOk) {
    const absl::string_view kept = bytes.substr(0, kMaxErrorBody - error_body_.size());
    error_body_.append(kept.data(), kept.size());
    return true;
  }
  const double at_s = Since(read);
  const absl::Status status =
      parser_.Feed(bytes, [&](absl::string_view data) { return Take(data, at_s); });
  if (!status.ok()) contradiction_ = std::string(status.message());
  return status.ok();
}

absl::Status OpenAiStream::Take(absl::string_view data, double at_s) {
  if (done_ || has_error_) return absl::OkStatus();
  if (data == kDone) {
    done_ = true;
    done_s_ = at_s;
    return absl::OkStatus();
  }
  const absl::StatusOr<std::unique_ptr<const JsonText>> text = JsonText::Parse(data);
  if (!text.ok() || !(*text)->root().IsObject()) {
    return absl::DataLossError(
        absl::StrCat("an event is not a JSON object: '", data.substr(0, 100), "'"));
  }
  const JsonValue event = (*text)->root();
  if (const std::optional<JsonValue> error = event.Member("error"); IsSet(error)) {
    TakeError(*error);
    return absl::OkStatus();
  }
  if (const std::optional<JsonValue> choices = event.Member("choices"); choices) {
    absl::Status status =
        choices->ForEachElement([&](JsonValue choice) { return TakeChoice(choice, at_s); });
    if (!status.ok()) return status;
  }
  std::optional<JsonValue> timing = event.Member("timing");
  if (const std::optional<JsonValue> usage = event.Member("usage"); IsSet(usage)) {
    TakeUsage(*usage);
    if (!IsSet(timing)) timing = usage->Member("timing");
  }
  if (IsSet(timing)) TakeTiming(data);
  return absl::OkStatus();
}

absl::Status OpenAiStream::TakeChoice(const JsonValue& choice, double at_s) {
  if (const std::optional<JsonValue> index = choice.Member("index");
      IsSet(index) && CountOr(index, 1) != 0) {
    return absl::DataLossError(absl::StrCat("a choice came with index ", index->Describe(),
                                            ", and one answer was asked for"));
  }
  bool finishes = false;
  if (const std::optional<JsonValue> reason = choice.Member("finish_reason"); IsSet(reason)) {
    if (!record_.finish_reason.empty()) return absl::DataLossError("a second finish_reason came");
    record_.finish_reason = std::string(reason->String().value_or("unknown"));
    finishes = true;
  }
  if (const std::optional<JsonValue> ids = choice.Member("token_ids"); ids && ids->IsArray()) {
    has_token_ids_ = true;
    id_events_ += ids->size() > 0;
    return ids->ForEachElement([&](JsonValue id) {
      record_.token_s.push_back(at_s);
      if (keep_token_ids_) record_.token_ids.push_back(static_cast<int32_t>(CountOr(id, 0)));
      return absl::OkStatus();
    });
  }
  std::optional<JsonValue> text = choice.Member("text");
  if (const auto delta = choice.Member("delta"); delta) text = delta->Member("content");
  const bool has_text = text && text->String() && !text->String()->empty();
  events_.push_back({at_s, has_text, finishes});
  return absl::OkStatus();
}

void OpenAiStream::TakeUsage(const JsonValue& usage) {
  if (const auto tokens = usage.Member("completion_tokens"); IsSet(tokens))
    usage_tokens_ = CountOr(tokens, 0);
  record_.prompt_tokens = CountOr(usage.Member("prompt_tokens"), record_.prompt_tokens);
  if (const auto details = usage.Member("prompt_tokens_details"); IsSet(details))
    record_.cached_tokens = CountOr(details->Member("cached_tokens"), record_.cached_tokens);
}

// Reads the times with a parser of its own, because JsonValue has no fractions. They come once in
// an answer.
void OpenAiStream::TakeTiming(absl::string_view data) {
  const nlohmann::json event = nlohmann::json::parse(std::string(data), nullptr, false);
  if (event.is_discarded()) return;
  auto timing = event.find("timing");
  if (timing == event.end() || !timing->is_object()) {
    const auto usage = event.find("usage");
    timing = usage->find("timing");
    if (timing == usage->end() || !timing->is_object()) return;
  }
  PhaseTimes& phases = record_.phases;
  phases = {.queue_s = SecondsOf(*timing, "queue_ms"),
            .prefill_s = SecondsOf(*timing, "prefill_ms"),
            .handover_exposed_s = SecondsOf(*timing, "handover_ms"),
            .decode_s = SecondsOf(*timing, "decode_ms")};
  phases.ttft_s = phases.queue_s + phases.prefill_s;
  phases.total_s = phases.ttft_s + phases.handover_exposed_s + phases.decode_s;
  record_.has_phases = true;
}

void OpenAiStream::TakeError(const JsonValue& error) {
  has_error_ = true;
  const std::optional<JsonValue> message = error.Member("message"), code = error.Member("code");
  error_message_ = std::string(message && message->String() ? *message->String()
                               : error.String()             ? *error.String()
                                                            : "an error without a message");
  const uint32_t status = CountOr(code, 0);
  if (status >= 400 && status < 600) error_code_ = CodeOfHttpStatus(static_cast<int>(status));
}

void OpenAiStream::SetTokenTimes() {
  if (has_token_ids_) return;
  std::vector<double> all, but_empty_end, texts;
  for (const Event& event : events_) {
    all.push_back(event.at_s);
    if (event.has_text || !event.finishes) but_empty_end.push_back(event.at_s);
    if (event.has_text) texts.push_back(event.at_s);
  }
  if (usage_tokens_ < 0) {
    record_.token_s = std::move(texts);
    return;
  }
  const auto tokens = static_cast<size_t>(usage_tokens_);
  // A token whose text is not certain yet, such as a part of a character, has an event without text
  // at many servers. So has the end, which is no token at some of them.
  std::vector<double>* at = &texts;
  if (all.size() == tokens) {
    at = &all;
  } else if (but_empty_end.size() == tokens || texts.empty()) {
    at = &but_empty_end;
  }
  if (at->size() == tokens || at->empty()) {
    record_.token_s = std::move(*at);
    return;
  }
  for (size_t i = 0; i < tokens; ++i) {
    const size_t event = tokens > at->size() ? i * at->size() / tokens
                         : tokens == 1       ? 0
                                             : i * (at->size() - 1) / (tokens - 1);
    record_.token_s.push_back((*at)[event]);
  }
}

StreamEnd OpenAiStream::EndOf(const absl::Status& status) const {
  StreamEnd end{.finished = done_ && !record_.finish_reason.empty(),
                .stopped = stopped_,
                .contradiction = contradiction_};
  if (!contradiction_.empty()) return end;
  const absl::StatusCode code =
      http_status_ == 0 ? absl::StatusCode::kOk : CodeOfHttpStatus(http_status_);
  if (has_error_) {
    end.code = error_code_;
    end.message = error_message_;
  } else if (done_) {
    if (!end.finished) end.contradiction = "the answer ended without a finish_reason";
  } else if (code != absl::StatusCode::kOk && !absl::IsCancelled(status)) {
    end.code = code;
    end.message = absl::StrCat("HTTP ", http_status_, ": ", MessageOfErrorBody(error_body_));
  } else if (!status.ok()) {
    end.code = status.code();
    end.message = std::string(status.message());
  } else {
    end.contradiction = "the server ended its stream before data: [DONE]";
  }
  return end;
}

void OpenAiStream::Count() {
  ++counts_->ended;
  const size_t tokens = record_.token_s.size();
  if (!has_token_ids_ && usage_tokens_ < 0) ++counts_->without_usage;
  const auto texts = static_cast<size_t>(std::count_if(
      events_.begin(), events_.end(), [](const Event& event) { return event.has_text; }));
  const size_t events = has_token_ids_ ? id_events_ : texts;
  // Events without text may be tokens, and the last one may say only that the answer has ended.
  const bool even = events == tokens ||
                    (!has_token_ids_ && (events_.size() == tokens || events_.size() == tokens + 1));
  if (even) return;
  ++counts_->uneven;
  counts_->uneven_events += events;
  counts_->uneven_tokens += tokens;
}

void OpenAiStream::OnEnd(absl::Status status) {
  const StreamEnd end = EndOf(status);
  SetTokenTimes();
  // An answer is complete with [DONE]; the end of the HTTP message may come later.
  EndRecord(end, done_ ? done_s_ : Since(Clock::now()), &record_);
  if (end.finished && end.contradiction.empty()) Count();
  on_ended_(this);
}

}  // namespace baton
