#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"
#include "router/core/client_event.h"
#include "router/core/phase_micros.h"
#include "router/http/completion_request.h"

// Parts that streamed and whole answers share. Any thread.
namespace baton {

// The data that each part of an answer repeats.
struct CompletionHead {
  std::string id;       // "cmpl-..." or "chatcmpl-..."
  int64_t created = 0;  // Unix time, seconds.
  std::string model;
  std::string system_fingerprint;  // Empty: null.
};

// Returns the members that each part begins with, up to the bracket of `choices`. `object` is the
// kind of the part.
std::string FormatCompletionHead(const CompletionHead& head, absl::string_view object);

// Appends the object `usage`. The details are the cached tokens, which are known only at the end.
void AppendTokenUsage(const TokenUsage& usage, bool with_details, std::string* out);
// Appends the members of a `timing` object, in milliseconds, without its brackets. `handover_ms` is
// the exposed part of the hand-over, so that the phases without the hidden part make up the total.
void AppendPhaseTimes(const PhaseMicros& times, std::string* out);
// Appends ids with commas between them.
void AppendTokenIds(absl::Span<const TokenId> ids, std::string* out);
// Appends the members `finish_reason` and `stop_reason`, with a comma before each. `stop_reason` is
// the stop string or the id of the stop token of the request that ended the answer, otherwise null.
void AppendReasons(const AnswerFinished& finished, const CompletionShape& shape,
                   const Tokenizer& tokenizer, std::string* out);

}  // namespace baton
