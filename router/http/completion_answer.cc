#include "router/http/completion_answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/overloaded.h"
#include "router/http/completion_parts.h"
#include "router/http/json_writer.h"
#include "router/http/openai_error.h"

namespace baton {
namespace {

// Parts of an echoed prompt in one event of a stream, so that no event is much longer than others.
constexpr size_t kEchoTokens = 32, kEchoBytes = 4096;
// Ids of a prompt that one call appends.
constexpr size_t kIdsAtOnce = 512;
// About the bytes of an id in JSON, with its comma.
constexpr size_t kIdBytes = 7;

constexpr char kEventEnd[] = "\n\n";

bool IsCharacterBegin(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// Returns how many bytes of the text were certain once token `i` had come.
size_t TextEnd(const AnswerDelta& delta, size_t i) {
  return i < delta.text_ends.size() ? std::min(delta.text_ends[i], delta.text.size()) : 0;
}

// About the memory of an event.
size_t BytesOf(const AnswerDelta& delta) {
  constexpr size_t kTopBytes = sizeof(v1::TopLogprob) + 3 * sizeof(void*);
  size_t bytes = delta.text.capacity() + delta.text_ends.size() * sizeof(size_t);
  for (const v1::Token& token : delta.tokens) {
    bytes += sizeof token + static_cast<size_t>(token.top_size()) * kTopBytes;
  }
  return bytes;
}

}  // namespace

struct CompletionAnswer::PromptPart {
  std::string text;
  std::vector<TokenId> ids;
  size_t characters = 0;   // Characters that `text` has.
  TokenUsage usage;        // Sum over the answers so far.
  bool has_total = false;  // True if `usage` is the total that the core has sent.
  // True once answer 0 has begun: all scores have come before.
  bool scores_complete = false;

  std::vector<v1::Token> scores;  // Kept for streams that echo them.
  // The next members are used by whole answers alone.
  std::optional<PromptWalk> walk;
  size_t walked_characters = 0;
  LogprobLists lists;
  std::string prompt_logprobs;  // Elements of the list.
};

struct CompletionAnswer::AnswerPart {
  size_t characters = 0;  // Characters before the next token, an echoed prompt included.
  PhaseMicros timing;

  // The next members are used by streams alone.
  std::vector<Queued> waiting;  // Events that wait for the scores of the prompt.
  uint32_t tokens = 0;          // Tokens that were formatted.
  bool begun = false;           // An event was formatted.
  bool echoed = false;          // The whole prompt was formatted.
  size_t echo_next = 0;         // The next byte or score of the prompt.
  std::optional<PromptWalk> walk;
  size_t walked_characters = 0;
  bool has_prompt_ids = false;  // An event with the ids of the prompt was begun.

  // The next members are used by whole answers alone.
  std::string text;
  LogprobLists lists;
  std::string token_ids;  // Elements of the list.
  AnswerFinished finished;

  size_t bytes() const { return text.capacity() + lists.bytes() + token_ids.capacity(); }
};

CompletionAnswer::CompletionAnswer(CompletionShape shape, CompletionHead head,
                                   const Tokenizer* tokenizer, size_t prompts)
    : shape_(std::move(shape)),
      format_(CompletionFormat::Of(shape_.chat)),
      tokenizer_(tokenizer),
      head_(FormatCompletionHead(head, format_.Object(shape_.stream))) {
  BATON_CHECK(!shape_.chat || (prompts == 1 && !shape_.echo)) << prompts;
  prompts_.resize(prompts);
  answers_.resize(prompts * answers_per_prompt());
}

CompletionAnswer::~CompletionAnswer() = default;

bool CompletionAnswer::complete() const { return summaries_ == answers_.size(); }

void CompletionAnswer::SetPrompt(size_t prompt, std::string text, std::vector<TokenId> ids) {
  PromptPart& part = prompts_[prompt];
  held_bytes_ += ids.size() * sizeof(TokenId);
  part.ids = std::move(ids);
  if (shape_.return_token_ids && !shape_.stream) {
    held_bytes_ += answers_per_prompt() * part.ids.size() * kIdBytes;
  }
  if (!shape_.echo) return;
  part.text = text.empty() ? tokenizer_->Decode(part.ids, /*skip_special=*/false) : std::move(text);
  part.characters = CountCharacters(part.text);
  part.walk.emplace(part.text);
  held_bytes_ += part.text.capacity() * (shape_.stream ? 1 : 1 + answers_per_prompt());
  for (size_t j = 0; j < answers_per_prompt(); ++j) {
    AnswerPart& answer = answers_[prompt * answers_per_prompt() + j];
    answer.characters = part.characters;
    answer.walk.emplace(part.text);
  }
}

void CompletionAnswer::Add(size_t prompt, ClientEvent event) {
  if (!failure_.ok()) return;
  PromptPart& part = prompts_[prompt];
  const auto index_of = [&](uint32_t answer) {
    BATON_CHECK(answer < answers_per_prompt()) << answer;
    // The scores of a prompt come with answer 0, before its tokens.
    if (answer == 0 && !std::exchange(part.scores_complete, true)) ReleaseWaiting(prompt);
    return prompt * answers_per_prompt() + answer;
  };
  std::visit(
      Overloaded{
          [&](AnswerAccepted& accepted) { part.usage.prompt_tokens = accepted.prompt_tokens; },
          [&](PromptLogprobs& scores) { AddScores(&part, std::move(scores)); },
          [&](AnswerDelta& delta) { AddDelta(index_of(delta.index), std::move(delta)); },
          [&](AnswerFinished& finished) {
            AddFinished(index_of(finished.index), std::move(finished));
          },
          [&](AnswerSummary& summary) { AddSummary(&part, index_of(summary.index), summary); },
      },
      event);
}

void CompletionAnswer::AddScores(PromptPart* prompt, PromptLogprobs scores) {
  if (shape_.stream) {
    if (!EchoesScores()) return;
    held_bytes_ += BytesOf({.tokens = scores.tokens});
    std::move(scores.tokens.begin(), scores.tokens.end(), std::back_inserter(prompt->scores));
    return;
  }
  const size_t before = prompt->lists.bytes() + prompt->prompt_logprobs.capacity();
  for (const v1::Token& token : scores.tokens) {
    if (EchoesScores()) {
      prompt->lists.Add(token, prompt->walked_characters, *shape_.logprobs, *tokenizer_);
      prompt->walked_characters +=
          CountCharacters(prompt->walk->Next(*tokenizer_, token.token_id()));
    }
    if (shape_.prompt_logprobs) {
      if (!prompt->prompt_logprobs.empty()) prompt->prompt_logprobs.push_back(',');
      AppendPromptLogprob(token, *shape_.prompt_logprobs, *tokenizer_, &prompt->prompt_logprobs);
    }
  }
  const size_t grown = prompt->lists.bytes() + prompt->prompt_logprobs.capacity() - before;
  held_bytes_ += grown * (1 + answers_per_prompt());
}

void CompletionAnswer::AddDelta(size_t answer, AnswerDelta delta) {
  if (shape_.stream) return Queue(answer, std::move(delta));
  if (shape_.score_only) return;
  AnswerPart& part = answers_[answer];
  const size_t before = part.bytes();
  size_t begin = 0;
  for (size_t i = 0; i < delta.tokens.size(); ++i) {
    const v1::Token& token = delta.tokens[i];
    if (shape_.logprobs) {
      format_.AddLogprob(token, part.characters, *shape_.logprobs, *tokenizer_, &part.lists);
    }
    if (shape_.return_token_ids) {
      if (!part.token_ids.empty()) part.token_ids.push_back(',');
      AppendJsonInt(token.token_id(), &part.token_ids);
    }
    const size_t end = std::max(begin, TextEnd(delta, i));
    part.characters += CountCharacters(absl::string_view(delta.text).substr(begin, end - begin));
    begin = end;
  }
  part.characters += CountCharacters(absl::string_view(delta.text).substr(begin));
  part.text += delta.text;
  held_bytes_ += part.bytes() - before;
}

void CompletionAnswer::AddFinished(size_t answer, AnswerFinished finished) {
  if (shape_.stream) return Queue(answer, std::move(finished));
  answers_[answer].finished = std::move(finished);
}

void CompletionAnswer::AddSummary(PromptPart* prompt, size_t answer, const AnswerSummary& summary) {
  ++summaries_;
  answers_[answer].timing = summary.timing;
  if (prompt->has_total) return;
  if (summary.total) {
    prompt->usage = *summary.total;
    prompt->has_total = true;
    return;
  }
  prompt->usage.prompt_tokens = summary.usage.prompt_tokens;
  prompt->usage.cached_tokens = std::max(prompt->usage.cached_tokens, summary.usage.cached_tokens);
  prompt->usage.completion_tokens += summary.usage.completion_tokens;
}

void CompletionAnswer::Fail(const absl::Status& status) {
  BATON_CHECK(!status.ok());
  if (!failure_.ok() || complete()) return;
  failure_ = status;
  for (AnswerPart& answer : answers_) answer.waiting.clear();
}

std::string CompletionAnswer::Whole() const {
  BATON_CHECK(complete() && failure_.ok() && !shape_.stream);
  std::string out;
  out.reserve(held_bytes_ + 1024);
  out.append(head_);
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendChoice(i, &out);
  }
  out.push_back(']');
  AppendUsage(&out);
  if (!format_.PromptIsInChoices()) {
    AppendPromptIds(prompts_[0], &out);
    AppendPromptLogprobs(prompts_[0], &out);
  }
  out.push_back('}');
  return out;
}

void CompletionAnswer::AppendChoice(size_t answer, std::string* out) const {
  const AnswerPart& part = answers_[answer];
  const PromptPart& prompt = prompts_[answer / answers_per_prompt()];
  absl::StrAppend(out, "{\"index\":", answer, ",");
  format_.AppendWholeText(shape_.echo ? absl::StrCat(prompt.text, part.text) : part.text, out);
  out->append(",\"logprobs\":");
  if (shape_.logprobs) {
    format_.AppendLogprobs(&prompt.lists, part.lists, out);
  } else {
    out->append("null");
  }
  AppendReasons(part.finished, shape_, *tokenizer_, out);
  if (shape_.return_token_ids) absl::StrAppend(out, ",\"token_ids\":[", part.token_ids, "]");
  if (format_.PromptIsInChoices()) {
    AppendPromptIds(prompt, out);
    AppendPromptLogprobs(prompt, out);
  }
  out->push_back('}');
}

void CompletionAnswer::AppendPromptIds(const PromptPart& prompt, std::string* out) const {
  if (!shape_.return_token_ids) return;
  out->append(",\"prompt_token_ids\":[");
  AppendTokenIds(prompt.ids, out);
  out->push_back(']');
}

void CompletionAnswer::AppendPromptLogprobs(const PromptPart& prompt, std::string* out) const {
  if (!shape_.prompt_logprobs) return;
  absl::StrAppend(out, ",\"prompt_logprobs\":[", prompt.prompt_logprobs, "]");
}

void CompletionAnswer::AppendUsage(std::string* out) const {
  TokenUsage total;
  for (const PromptPart& prompt : prompts_) {
    total.prompt_tokens += prompt.usage.prompt_tokens;
    total.cached_tokens += prompt.usage.cached_tokens;
    if (!shape_.score_only) total.completion_tokens += prompt.usage.completion_tokens;
  }
  out->append(",\"usage\":");
  AppendTokenUsage(total, /*with_details=*/true, out);
  if (!shape_.timing) return;
  out->append(",\"timing\":");
  if (answers_.size() == 1) {
    out->push_back('{');
    AppendPhaseTimes(answers_[0].timing, out);
    out->push_back('}');
    return;
  }
  for (size_t i = 0; i < answers_.size(); ++i) {
    absl::StrAppend(out, i == 0 ? "[" : ",", "{\"index\":", i, ",");
    AppendPhaseTimes(answers_[i].timing, out);
    out->push_back('}');
  }
  out->push_back(']');
}

void CompletionAnswer::Queue(size_t answer, std::variant<AnswerDelta, AnswerFinished> event) {
  Queued queued = {.answer = answer, .event = std::move(event)};
  const auto* const delta = std::get_if<AnswerDelta>(&queued.event);
  queued.bytes = sizeof queued + (delta != nullptr ? BytesOf(*delta) : 0);
  held_bytes_ += queued.bytes;
  if (EchoesScores() && !prompts_[answer / answers_per_prompt()].scores_complete) {
    answers_[answer].waiting.push_back(std::move(queued));
  } else {
    queue_.push_back(std::move(queued));
  }
}

void CompletionAnswer::ReleaseWaiting(size_t prompt) {
  for (size_t j = 0; j < answers_per_prompt(); ++j) {
    std::vector<Queued>& waiting = answers_[prompt * answers_per_prompt() + j].waiting;
    std::move(waiting.begin(), waiting.end(), std::back_inserter(queue_));
    waiting = {};
  }
}

bool CompletionAnswer::ready() const {
  return !done_ && (!queue_.empty() || ids_of_answer_ || !failure_.ok() || complete());
}

bool CompletionAnswer::Fill(size_t bytes, std::string* out) {
  const size_t begin = out->size();
  while (ready() && out->size() - begin < bytes) AppendNext(out);
  return !done_;
}

void CompletionAnswer::AppendNext(std::string* out) {
  if (ids_of_answer_) return AppendMorePromptIds(out);
  if (queue_.empty()) return AppendEnd(out);
  Queued& queued = queue_.front();
  const AnswerPart& answer = answers_[queued.answer];
  if (shape_.echo && !answer.echoed) return AppendEcho(queued.answer, out);
  bool formatted = true;
  if (const auto* const finished = std::get_if<AnswerFinished>(&queued.event)) {
    AppendFinish(queued.answer, *finished, out);
  } else if (!shape_.score_only) {
    AppendToken(&queued, out);
    formatted = queued.next_token >= std::get<AnswerDelta>(queued.event).tokens.size();
  }
  if (!formatted) return;
  held_bytes_ -= queued.bytes;
  queue_.pop_front();
}

void CompletionAnswer::AppendEcho(size_t answer, std::string* out) {
  AnswerPart& part = answers_[answer];
  const PromptPart& prompt = prompts_[answer / answers_per_prompt()];
  if (!EchoesScores()) {
    const absl::string_view rest = absl::string_view(prompt.text).substr(part.echo_next);
    size_t end = std::min(rest.size(), kEchoBytes);
    while (end < rest.size() && !IsCharacterBegin(rest[end])) --end;
    part.echo_next += end;
    part.echoed = end == rest.size();
    AppendEventBegin(answer, rest.substr(0, end), /*has_tokens=*/false, /*last=*/false, out);
    return AppendEventEnd(answer, {}, out);
  }
  lists_.Clear();
  const absl::string_view rest = part.walk->rest();
  // An event ends with a whole character.
  for (size_t tokens = 0; part.echo_next < prompt.scores.size() &&
                          (tokens < kEchoTokens ||
                           !(part.walk->rest().empty() || IsCharacterBegin(part.walk->rest()[0])));
       ++tokens) {
    const v1::Token& token = prompt.scores[part.echo_next++];
    lists_.Add(token, part.walked_characters, *shape_.logprobs, *tokenizer_);
    part.walked_characters += CountCharacters(part.walk->Next(*tokenizer_, token.token_id()));
  }
  part.echoed = part.echo_next == prompt.scores.size();
  const size_t left = part.echoed ? 0 : part.walk->rest().size();
  AppendEventBegin(answer, rest.substr(0, rest.size() - left), /*has_tokens=*/true,
                   /*last=*/false, out);
  AppendEventEnd(answer, {}, out);
}

void CompletionAnswer::AppendToken(Queued* queued, std::string* out) {
  const AnswerDelta& delta = std::get<AnswerDelta>(queued->event);
  AnswerPart& part = answers_[queued->answer];
  const size_t next = queued->next_token++;
  if (delta.tokens.empty()) {
    part.characters += CountCharacters(delta.text);
    AppendEventBegin(queued->answer, delta.text, /*has_tokens=*/false, /*last=*/false, out);
    return AppendEventEnd(queued->answer, {}, out);
  }
  const size_t begin = next == 0 ? 0 : TextEnd(delta, next - 1);
  const bool last = next + 1 == delta.tokens.size();
  const size_t end = last ? delta.text.size() : std::max(begin, TextEnd(delta, next));
  const absl::string_view text = absl::string_view(delta.text).substr(begin, end - begin);
  const v1::Token& token = delta.tokens[next];
  if (shape_.logprobs) {
    lists_.Clear();
    format_.AddLogprob(token, part.characters, *shape_.logprobs, *tokenizer_, &lists_);
  }
  part.characters += CountCharacters(text);
  ++part.tokens;
  AppendEventBegin(queued->answer, text, /*has_tokens=*/true, /*last=*/false, out);
  AppendEventEnd(queued->answer, absl::MakeConstSpan(&token, 1), out);
}

void CompletionAnswer::AppendEventBegin(size_t answer, absl::string_view text, bool has_tokens,
                                        bool last, std::string* out) {
  absl::StrAppend(out, "data: ", head_, "{\"index\":", answer, ",");
  const bool first = !std::exchange(answers_[answer].begun, true);
  format_.AppendPartOfText(text, first, last, out);
  out->append(",\"logprobs\":");
  if (shape_.logprobs && has_tokens) {
    format_.AppendLogprobs(nullptr, lists_, out);
  } else {
    out->append("null");
  }
}

void CompletionAnswer::AppendEventEnd(size_t answer, absl::Span<const v1::Token> tokens,
                                      std::string* out) {
  out->append(",\"finish_reason\":null,\"stop_reason\":null");
  AppendEventIds(answer, tokens, out);
}

void CompletionAnswer::AppendFinish(size_t answer, const AnswerFinished& finished,
                                    std::string* out) {
  AppendEventBegin(answer, "", /*has_tokens=*/false, /*last=*/true, out);
  AppendReasons(finished, shape_, *tokenizer_, out);
  AppendEventIds(answer, {}, out);
}

void CompletionAnswer::AppendEventIds(size_t answer, absl::Span<const v1::Token> tokens,
                                      std::string* out) {
  if (shape_.return_token_ids) {
    out->append(",\"token_ids\":[");
    for (const v1::Token& token : tokens) AppendJsonInt(token.token_id(), out);
    out->push_back(']');
  }
  if (!format_.PromptIsInChoices()) out->append("}]");
  if (shape_.return_token_ids) {
    if (!std::exchange(answers_[answer].has_prompt_ids, true)) {
      out->append(",\"prompt_token_ids\":[");
      ids_of_answer_ = answer;
      next_id_ = 0;
      return;
    }
  }
  AppendEventTail(answer, out);
}

void CompletionAnswer::AppendMorePromptIds(std::string* out) {
  const size_t answer = *ids_of_answer_;
  const std::vector<TokenId>& ids = prompts_[answer / answers_per_prompt()].ids;
  const size_t count = std::min(ids.size() - next_id_, kIdsAtOnce);
  if (next_id_ > 0 && count > 0) out->push_back(',');
  AppendTokenIds(absl::MakeConstSpan(ids).subspan(next_id_, count), out);
  next_id_ += count;
  if (next_id_ < ids.size()) return;
  ids_of_answer_.reset();
  out->push_back(']');
  AppendEventTail(answer, out);
}

void CompletionAnswer::AppendEventTail(size_t answer, std::string* out) const {
  if (format_.PromptIsInChoices()) out->append("}]");
  if (shape_.continuous_usage) {
    const TokenUsage usage = {
        .prompt_tokens = prompts_[answer / answers_per_prompt()].usage.prompt_tokens,
        .completion_tokens = answers_[answer].tokens};
    out->append(",\"usage\":");
    AppendTokenUsage(usage, /*with_details=*/false, out);
  } else if (shape_.include_usage) {
    out->append(",\"usage\":null");
  }
  out->push_back('}');
  out->append(kEventEnd);
}

void CompletionAnswer::AppendEnd(std::string* out) {
  if (!failure_.ok()) {
    out->append("data: ");
    AppendOpenAiErrorBody(failure_, out);
    out->append(kEventEnd);
  } else if (shape_.include_usage) {
    absl::StrAppend(out, "data: ", head_, "]");
    AppendUsage(out);
    absl::StrAppend(out, "}", kEventEnd);
  }
  absl::StrAppend(out, "data: [DONE]", kEventEnd);
  done_ = true;
}

}  // namespace baton
