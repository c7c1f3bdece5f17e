#include "router/client/received_answer.h"

#include <algorithm>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/rpc/serving_mode.h"
#include "router/client/printing.h"

namespace baton {
namespace {

std::string FinishReasonName(v1::FinishReason reason) {
  const std::string name = v1::FinishReason_Name(reason);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "FINISH_REASON_"));
}

std::string SloPhaseWord(v1::SloPhase phase) {
  const std::string name = v1::SloPhase_Name(phase);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "SLO_PHASE_"));
}

std::string Milliseconds(double us) { return absl::StrFormat("%9.2f ms", us / 1000); }

}  // namespace

absl::Status ReceivedAnswer::Add(const v1::GenerateEvent& event, absl::Time now) {
  One* one = nullptr;
  switch (event.event_case()) {
    case v1::GenerateEvent::kAccepted:
      if (has_accepted_) break;
      has_accepted_ = true;
      accepted_ = event.accepted();
      return absl::OkStatus();
    case v1::GenerateEvent::kPromptLogprobs:
      if (!has_accepted_ || !answers_[0].tokens.empty()) break;
      for (const v1::Token& token : event.prompt_logprobs().tokens()) {
        if (token.position() != prompt_.size() || prompt_.size() >= accepted_.prompt_tokens()) {
          return absl::DataLossError(
              absl::StrCat("the logprob of prompt position ", token.position(), " came instead of ",
                           prompt_.size(), " of ", accepted_.prompt_tokens()));
        }
        prompt_.push_back(token);
      }
      return absl::OkStatus();
    case v1::GenerateEvent::kDelta:
      one = At(event.delta().index(), Stage::kAccepted);
      if (one == nullptr) break;
      return AddTokens(one, event.delta(), now);
    case v1::GenerateEvent::kFinished:
      one = At(event.finished().index(), Stage::kAccepted);
      if (one == nullptr) break;
      one->stage = Stage::kFinished;
      one->finished = event.finished();
      return absl::OkStatus();
    case v1::GenerateEvent::kSummary:
      one = At(event.summary().index(), Stage::kFinished);
      if (one == nullptr) break;
      one->stage = Stage::kSummary;
      one->summary = event.summary();
      return absl::OkStatus();
    case v1::GenerateEvent::EVENT_NOT_SET:
      return absl::OkStatus();  // Unknown events are of a later protocol version; they are ignored.
  }
  return absl::DataLossError(absl::StrCat("event ", static_cast<int>(event.event_case()),
                                          " of the stream came out of order"));
}

ReceivedAnswer::One* ReceivedAnswer::At(uint32_t index, Stage stage) {
  if (!has_accepted_ || index >= answers_.size() || answers_[index].stage != stage) return nullptr;
  return &answers_[index];
}

absl::Status ReceivedAnswer::AddTokens(One* one, const v1::Delta& delta, absl::Time now) {
  for (const v1::Token& token : delta.tokens()) {
    const uint32_t expected = accepted_.prompt_tokens() + static_cast<uint32_t>(one->tokens.size());
    if (token.position() != expected) {
      return absl::DataLossError(absl::StrCat("token ", token.token_id(), " came with position ",
                                              token.position(), " instead of ", expected));
    }
    if (one->tokens.empty()) one->first_token = now;
    one->last_token = now;
    one->tokens.push_back(token);
  }
  absl::StrAppend(&one->text, delta.text());
  return absl::OkStatus();
}

bool ReceivedAnswer::complete() const {
  return std::all_of(answers_.begin(), answers_.end(),
                     [](const One& one) { return one.stage == Stage::kSummary; });
}

std::string ReceivedAnswer::TakePrintable() {
  std::string text;
  while (has_accepted_ && printing_ < answers_.size()) {
    const One& one = answers_[printing_];
    const bool over = one.stage == Stage::kSummary;
    if (answers_.size() > 1 && !headed_ && (over || !one.text.empty())) {
      absl::StrAppend(&text, printing_ == 0 ? "" : "\n", "[", printing_, "]\n");
      headed_ = true;
    }
    absl::StrAppend(&text, one.text.substr(printed_));
    printed_ = one.text.size();
    if (!over) break;
    ++printing_;
    printed_ = 0;
    headed_ = false;
  }
  return text;
}

std::string ReceivedAnswer::NoteLines(absl::string_view indent) const {
  std::string lines;
  for (size_t i = 0; i < answers_.size(); ++i) {
    const One& one = answers_[i];
    const std::string name = answers_.size() > 1 ? absl::StrCat("answer ", i) : "the answer";
    const size_t tokens = one.tokens.size();
    if (one.text.empty()) {
      absl::StrAppend(&lines, indent, name, " has no text: ", tokens,
                      tokens == 1 ? " token" : " tokens", ", finished by ",
                      FinishReasonName(one.finished.reason()), "\n");
    }
    if (!one.finished.limit().empty()) {
      absl::StrAppend(&lines, indent, name, " was ended by ", one.finished.limit(),
                      "; --max-tokens sets another limit\n");
    }
  }
  return lines;
}

bool ReceivedAnswer::cut_short() const {
  return absl::c_any_of(answers_, [](const One& one) {
    return one.finished.reason() == v1::FINISH_REASON_LENGTH && one.finished.limit().empty();
  });
}

namespace {

// Returns [{token_id, logprob, top}, ...]. `logprob` is null for a token without one.
nlohmann::ordered_json LogprobsJson(const std::vector<v1::Token>& tokens) {
  nlohmann::ordered_json logprobs = nlohmann::ordered_json::array();
  for (const v1::Token& token : tokens) {
    nlohmann::ordered_json top = nlohmann::ordered_json::array();
    for (const v1::TopLogprob& other : token.top()) {
      top.push_back({{"token_id", other.token_id()}, {"logprob", other.logprob()}});
    }
    nlohmann::ordered_json logprob;
    if (token.has_logprob()) logprob = token.logprob();
    logprobs.push_back({{"token_id", token.token_id()}, {"logprob", logprob}, {"top", top}});
  }
  return logprobs;
}

nlohmann::ordered_json UsageJson(const v1::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens()},
          {"cached_tokens", usage.cached_tokens()},
          {"completion_tokens", usage.completion_tokens()}};
}

}  // namespace

nlohmann::ordered_json ReceivedAnswer::AnswerJson(const One& one) const {
  nlohmann::ordered_json token_ids = nlohmann::ordered_json::array();
  std::vector<v1::Token> with_logprobs;
  for (const v1::Token& token : one.tokens) {
    token_ids.push_back(token.token_id());
    if (token.has_logprob()) with_logprobs.push_back(token);
  }
  const v1::Summary& summary = one.summary;
  const v1::Timing& timing = summary.timing();
  nlohmann::ordered_json json = {
      {"text", one.text},
      {"token_ids", token_ids},
      {"finish_reason", FinishReasonName(one.finished.reason())},
      {"logprobs", LogprobsJson(with_logprobs)},
      {"usage", UsageJson(summary.usage())},
      {"seed", summary.seed()},
      {"timing_us",
       {{"queue", timing.queue_us()},
        {"prefill", timing.prefill_us()},
        {"handover_hidden", timing.handover_hidden_us()},
        {"handover_exposed", timing.handover_exposed_us()},
        {"decode_wait", timing.decode_wait_us()},
        {"decode", timing.decode_us()},
        {"ttft", timing.ttft_us()},
        {"total", timing.total_us()}}},
      {"mode", ServingModeName(summary.mode())},
      {"workers", {{"prefill", summary.prefill_worker()}, {"decode", summary.decode_worker()}}},
      {"link", summary.link()},
      {"migrations", summary.migrations()},
      {"decode_cached_tokens", summary.decode_cached_tokens()},
  };
  if (!one.finished.limit().empty()) json["limit"] = one.finished.limit();
  if (summary.has_slo()) {
    const v1::SloVerdict& slo = summary.slo();
    json["slo"] = {{"met", slo.met()}};
    if (slo.has_ttft_met()) json["slo"]["ttft_met"] = slo.ttft_met();
    if (slo.has_tpot_met()) json["slo"]["tpot_met"] = slo.tpot_met();
    if (!slo.met()) json["slo"]["lost_to"] = SloPhaseWord(slo.lost_to());
  }
  return json;
}

nlohmann::ordered_json ReceivedAnswer::ToJson() const {
  nlohmann::ordered_json all = {{"request_id", accepted_.request_id()},
                                {"model", accepted_.model()}};
  if (!prompt_.empty()) all["prompt_logprobs"] = LogprobsJson(prompt_);
  if (answers_.size() == 1) {
    all.update(AnswerJson(answers_[0]));
    return all;
  }
  nlohmann::ordered_json answers = nlohmann::ordered_json::array();
  v1::Usage total;
  for (size_t i = 0; i < answers_.size(); ++i) {
    nlohmann::ordered_json one = {{"index", i}};
    one.update(AnswerJson(answers_[i]));
    answers.push_back(std::move(one));
    if (answers_[i].summary.has_total()) total = answers_[i].summary.total();
  }
  all["answers"] = std::move(answers);
  all["usage"] = UsageJson(total);
  return all;
}

std::string ReceivedAnswer::TimingTable() const {
  if (answers_.size() == 1) return TimingTable(answers_[0]);
  std::string all;
  for (size_t i = 0; i < answers_.size(); ++i) {
    absl::StrAppend(&all, "answer ", i, "\n", TimingTable(answers_[i]));
  }
  return all;
}

std::string ReceivedAnswer::TimingTable(const One& one) const {
  const v1::Timing& timing = one.summary.timing();
  std::string table;
  const auto row = [&table](absl::string_view name, double us, absl::string_view note = "") {
    absl::StrAppend(&table, absl::StrFormat("  %-28s", name), Milliseconds(us), note, "\n");
  };
  if (!one.tokens.empty()) {
    row("time to first token (TTFT)", absl::ToDoubleMicroseconds(one.first_token - sent_),
        absl::StrFormat("   %.2f ms of it after the request reached the router",
                        static_cast<double>(timing.ttft_us()) / 1000));
  }
  if (one.tokens.size() > 1) {
    const double tpot_us = absl::ToDoubleMicroseconds(one.last_token - one.first_token) /
                           static_cast<double>(one.tokens.size() - 1);
    row("time per later token (TPOT)", tpot_us,
        tpot_us > 0 ? absl::StrFormat("   %.0f tokens/s", 1e6 / tpot_us) : "");
  }
  row("- queue", timing.queue_us());
  row("- prefill", timing.prefill_us());
  row("- hand-over hidden", timing.handover_hidden_us());
  row("- hand-over exposed", timing.handover_exposed_us());
  row("- wait for decode", timing.decode_wait_us());
  row("- decode", timing.decode_us());
  row("total", timing.total_us());
  absl::StrAppend(
      &table, "  ", one.summary.usage().prompt_tokens(), " prompt tokens (",
      one.summary.usage().cached_tokens(), " cached",
      one.summary.mode() == v1::SERVING_MODE_DISAGGREGATED && one.summary.decode_cached_tokens() > 0
          ? absl::StrCat(", ", one.summary.decode_cached_tokens(), " at decode")
          : "",
      "), ", one.summary.usage().completion_tokens(), " generated, finished by ",
      FinishReasonName(one.finished.reason()), ", seed ", one.summary.seed(), "\n");
  absl::StrAppend(&table, "  prefill ", one.summary.prefill_worker());
  if (one.summary.mode() == v1::SERVING_MODE_COLOCATED) {
    absl::StrAppend(&table, ", colocated with decode");
  } else if (!one.summary.decode_worker().empty()) {
    absl::StrAppend(&table, " -> ", one.summary.link(), " -> decode ", one.summary.decode_worker());
  }
  if (one.summary.migrations() > 0) {
    absl::StrAppend(&table, ", started again ", one.summary.migrations(), " times");
  }
  absl::StrAppend(&table, "\n");
  if (one.summary.has_slo()) {
    const v1::SloVerdict& slo = one.summary.slo();
    absl::StrAppend(
        &table, "  targets ",
        slo.met() ? "met" : absl::StrCat("missed, lost to ", SloPhaseWord(slo.lost_to())), "\n");
  }
  return table;
}

std::vector<int32_t> ReceivedAnswer::LogprobIds() const {
  std::set<int32_t> ids;
  for (const One& one : answers_) {
    for (const v1::Token& token : one.tokens) {
      if (!token.has_logprob()) continue;
      ids.insert(token.token_id());
      for (const v1::TopLogprob& other : token.top()) ids.insert(other.token_id());
    }
  }
  return {ids.begin(), ids.end()};
}

std::string ReceivedAnswer::LogprobTable(const std::map<int32_t, std::string>& pieces) const {
  const auto piece = [&](int32_t id) {
    const auto found = pieces.find(id);
    return found == pieces.end() ? absl::StrCat("token ", id) : QuotedPiece(found->second);
  };
  std::string table;
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (answers_.size() > 1) absl::StrAppend(&table, "[", i, "]\n");
    for (const v1::Token& token : answers_[i].tokens) {
      if (!token.has_logprob()) continue;
      absl::StrAppendFormat(&table, "%9.4f  %6d  %s", token.logprob(), token.token_id(),
                            piece(token.token_id()));
      const char* separator = "   of ";
      for (const v1::TopLogprob& other : token.top()) {
        absl::StrAppendFormat(&table, "%s%s %.4f", separator, piece(other.token_id()),
                              other.logprob());
        separator = ", ";
      }
      absl::StrAppend(&table, "\n");
    }
  }
  return table;
}

}  // namespace baton
