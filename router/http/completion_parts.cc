#include "router/http/completion_parts.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "baton/v1/token.pb.h"
#include "router/http/json_writer.h"

namespace baton {

std::string FormatCompletionHead(const CompletionHead& head, absl::string_view object) {
  std::string out = "{\"id\":";
  AppendJsonString(head.id, &out);
  absl::StrAppend(&out, ",\"object\":\"", object, "\",\"created\":", head.created, ",\"model\":");
  AppendJsonString(head.model, &out);
  out.append(",\"system_fingerprint\":");
  if (head.system_fingerprint.empty()) {
    out.append("null");
  } else {
    AppendJsonString(head.system_fingerprint, &out);
  }
  out.append(",\"choices\":[");
  return out;
}

void AppendTokenUsage(const TokenUsage& usage, bool with_details, std::string* out) {
  absl::StrAppend(out, "{\"prompt_tokens\":", usage.prompt_tokens,
                  ",\"total_tokens\":", uint64_t{usage.prompt_tokens} + usage.completion_tokens,
                  ",\"completion_tokens\":", usage.completion_tokens);
  if (with_details) {
    absl::StrAppend(out, ",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached_tokens,
                    "}");
  }
  out->push_back('}');
}

void AppendPhaseTimes(const PhaseMicros& times, std::string* out) {
  const auto phase = [out](absl::string_view name, uint64_t us) {
    absl::StrAppend(out, "\"", name, "\":");
    AppendJsonDouble(static_cast<double>(us) / 1000, out);
  };
  phase("queue_ms", times.queue_us);
  out->push_back(',');
  phase("prefill_ms", times.prefill_us);
  out->push_back(',');
  phase("handover_ms", times.handover_exposed_us);
  out->push_back(',');
  phase("handover_hidden_ms", times.handover_hidden_us);
  out->push_back(',');
  phase("decode_wait_ms", times.decode_wait_us);
  out->push_back(',');
  phase("decode_ms", times.decode_us);
  out->push_back(',');
  phase("ttft_ms", times.ttft_us);
  out->push_back(',');
  phase("total_ms", times.total_us);
}

void AppendTokenIds(absl::Span<const TokenId> ids, std::string* out) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendJsonInt(ids[i], out);
  }
}

void AppendReasons(const AnswerFinished& finished, const CompletionShape& shape,
                   const Tokenizer& tokenizer, std::string* out) {
  // The one token of an answer that only scores its prompt is not part of it.
  const bool stopped = finished.reason == v1::FINISH_REASON_STOP && !shape.score_only;
  out->append(stopped ? ",\"finish_reason\":\"stop\",\"stop_reason\":"
                      : ",\"finish_reason\":\"length\",\"stop_reason\":");
  const auto has = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  if (stopped && !finished.matched_stop.empty()) {
    return AppendJsonString(finished.matched_stop, out);
  }
  if (stopped && finished.stop_token) {
    if (has(shape.stop_token_ids, *finished.stop_token)) {
      return AppendJsonInt(*finished.stop_token, out);
    }
    // A stop string that is the text of a special token ends the answer as a stop token.
    const absl::string_view text = tokenizer.TokenText(*finished.stop_token);
    if (has(shape.stop, text)) return AppendJsonString(text, out);
  }
  out->append("null");
}

}  // namespace baton
