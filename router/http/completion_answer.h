#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "baton/v1/token.pb.h"
#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"
#include "router/core/client_event.h"
#include "router/http/completion_format.h"
#include "router/http/completion_logprobs.h"
#include "router/http/completion_parts.h"
#include "router/http/completion_request.h"

namespace baton {

// The answers to one request to /v1/completions or /v1/chat/completions, as JSON: the events of all
// its prompts go in, and a stream of server-sent events or one JSON text comes out. Answer j of
// prompt i has index i * n + j. A chat has one prompt.
//
// A stream has one event for each token, whose text may be empty; one for text that comes without a
// token; one with the finish reason of each answer; one with the usage, if the request asks for it;
// and "[DONE]". An event is formatted only when Fill() has place for it, so a slow reader costs no
// formatted text. An echoed prompt comes in several events, each with part of its text and tokens.
//
// Used by one thread at a time. The tokeniser outlives it.
class CompletionAnswer {
 public:
  CompletionAnswer(CompletionShape shape, CompletionHead head, const Tokenizer* tokenizer,
                   size_t prompts);
  ~CompletionAnswer();

  // True if the answer needs the prompts themselves: SetPrompt() has to be called for each prompt
  // before its first event.
  bool needs_prompts() const { return shape_.echo || shape_.return_token_ids; }
  // Gives the text and the tokens of a prompt. The text is empty if the client gave ids.
  void SetPrompt(size_t prompt, std::string text, std::vector<TokenId> ids);

  // Takes an event of the core for prompt `prompt`. Does nothing after Fail().
  void Add(size_t prompt, ClientEvent event);
  // Ends a stream whose head is out already: after the events so far come an error and "[DONE]".
  // `status` is not OK. Only the first call counts; an answer that is complete stays as it is.
  void Fail(const absl::Status& status);

  // True if Fill() has something to append. The first token, or the end, makes it true.
  bool ready() const;
  // Appends about `bytes` bytes of the stream, or less if there is no more yet. Returns false once
  // the stream is complete.
  bool Fill(size_t bytes, std::string* out);

  // True if all answers have ended without an error. Whole() is then the answer that is not
  // streamed.
  bool complete() const;
  std::string Whole() const;

  // About how many bytes the answer holds. Of a stream: prompts, and events that were not formatted
  // yet. Otherwise: the parts of the whole answer, with what Whole() repeats for each answer.
  size_t bytes() const { return held_bytes_; }

 private:
  struct PromptPart;
  struct AnswerPart;
  // An event that waits to be formatted.
  struct Queued {
    size_t answer = 0;
    std::variant<AnswerDelta, AnswerFinished> event;
    size_t next_token = 0;  // The first token of a delta that was not formatted yet.
    size_t bytes = 0;
  };

  size_t answers_per_prompt() const { return static_cast<size_t>(shape_.n); }
  bool EchoesScores() const { return shape_.echo && shape_.logprobs.has_value(); }

  void AddScores(PromptPart* prompt, PromptLogprobs scores);
  void AddDelta(size_t answer, AnswerDelta delta);
  void AddFinished(size_t answer, AnswerFinished finished);
  void AddSummary(PromptPart* prompt, size_t answer, const AnswerSummary& summary);
  // Queues an event, or lets it wait for the scores of its prompt.
  void Queue(size_t answer, std::variant<AnswerDelta, AnswerFinished> event);
  // Queues the events that waited for the scores of a prompt, which are complete.
  void ReleaseWaiting(size_t prompt);

  // Each appends one event, or a part of one.
  void AppendNext(std::string* out);
  void AppendEcho(size_t answer, std::string* out);
  void AppendToken(Queued* queued, std::string* out);
  void AppendFinish(size_t answer, const AnswerFinished& finished, std::string* out);
  void AppendMorePromptIds(std::string* out);
  void AppendEnd(std::string* out);
  // Appends the event up to `logprobs`, which are those in `lists_` if the event has tokens.
  // `last`: the event has the finish reason.
  void AppendEventBegin(size_t answer, absl::string_view text, bool has_tokens, bool last,
                        std::string* out);
  // Appends the rest of an event that is not the last one of its answer. `tokens` are the tokens of
  // the answer in it.
  void AppendEventEnd(size_t answer, absl::Span<const v1::Token> tokens, std::string* out);
  // Appends the lists of ids, and the rest unless the ids of the prompt have to follow.
  void AppendEventIds(size_t answer, absl::Span<const v1::Token> tokens, std::string* out);
  void AppendEventTail(size_t answer, std::string* out) const;

  void AppendChoice(size_t answer, std::string* out) const;
  // Append the lists of a prompt's ids and logprobs, if the request asks for them.
  void AppendPromptIds(const PromptPart& prompt, std::string* out) const;
  void AppendPromptLogprobs(const PromptPart& prompt, std::string* out) const;
  // Appends the members `usage` and `timing`.
  void AppendUsage(std::string* out) const;

  const CompletionShape shape_;
  const CompletionFormat& format_;
  const Tokenizer* const tokenizer_;
  const std::string head_;  // The members that all parts begin with, up to the list of choices.
  std::vector<PromptPart> prompts_;
  std::vector<AnswerPart> answers_;
  size_t summaries_ = 0;
  absl::Status failure_;
  size_t held_bytes_ = 0;

  // The next members are used by streams alone.
  std::deque<Queued> queue_;
  LogprobLists
      lists_;  // Tokens of the event that is being formatted. A member, to keep its memory.
  // Set while the list of a prompt's ids is being appended, which may be long.
  std::optional<size_t> ids_of_answer_;
  size_t next_id_ = 0;
  bool done_ = false;
};

}  // namespace baton
