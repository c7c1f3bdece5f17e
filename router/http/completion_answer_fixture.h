#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "router/core/client_event.h"
#include "router/http/completion_answer.h"

// Events of the core, and the events of the streams that are made of them, for tests.
namespace baton {

inline const Tokenizer& Demo() {
  static const auto* const tokenizer =
      Tokenizer::FromFile(BATON_SOURCE_DIR "/common/model/demo/tokenizer.json").value().release();
  return *tokenizer;
}

inline std::vector<TokenId> IdsOf(absl::string_view text) {
  return Demo().Encode(text, {.parse_special = true, .add_special = false}).value();
}

inline v1::Token TokenOf(TokenId id, std::optional<float> logprob = std::nullopt) {
  v1::Token token;
  token.set_token_id(id);
  if (logprob) token.set_logprob(*logprob);
  return token;
}

// Returns a delta in which each token's text is certain at once.
inline AnswerDelta DeltaOf(absl::string_view text, uint32_t index = 0) {
  AnswerDelta delta = {.index = index};
  for (const TokenId id : IdsOf(text)) {
    delta.tokens.push_back(TokenOf(id));
    absl::StrAppend(&delta.text, Demo().TokenBytes(id));
    delta.text_ends.push_back(delta.text.size());
  }
  return delta;
}

inline AnswerFinished Stopped(uint32_t index = 0) {
  return {.index = index, .reason = v1::FINISH_REASON_STOP, .stop_token = 4081};
}

inline AnswerSummary SummaryOf(TokenUsage usage, uint32_t index = 0) {
  return {.index = index, .usage = usage, .total = usage};
}

inline std::string FillAll(CompletionAnswer* answer) {
  std::string out;
  EXPECT_FALSE(answer->Fill(std::numeric_limits<size_t>::max(), &out));
  return out;
}

// Returns the data of all events of a complete stream but the last one, which is "[DONE]".
inline std::vector<std::string> EventsOf(absl::string_view stream) {
  EXPECT_TRUE(absl::ConsumeSuffix(&stream, "data: [DONE]\n\n")) << stream;
  std::vector<std::string> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_NE(end, absl::string_view::npos);
    absl::string_view event = stream.substr(0, end);
    EXPECT_TRUE(absl::ConsumePrefix(&event, "data: ")) << event;
    EXPECT_FALSE(absl::StrContains(event, "\n")) << event;
    events.emplace_back(event);
    stream.remove_prefix(end + 2);
  }
  return events;
}

// Makes the events that the core sends for the answers to one prompt, from a seed.
class RandomCore {
 public:
  RandomCore(uint32_t seed, const CompletionShape& shape, std::vector<TokenId> prompt)
      : random_(seed), shape_(shape), prompt_(std::move(prompt)) {}

  std::vector<ClientEvent> Events() {
    std::vector<std::vector<ClientEvent>> answers;
    for (int j = 0; j < shape_.n; ++j) answers.push_back(Answer(static_cast<uint32_t>(j)));
    std::vector<ClientEvent> events = {
        AnswerAccepted{.prompt_tokens = static_cast<uint32_t>(prompt_.size())}};
    size_t left = answers.size();
    std::vector<size_t> next(answers.size());
    TokenUsage total = {.prompt_tokens = static_cast<uint32_t>(prompt_.size()), .cached_tokens = 1};
    while (left > 0) {
      const size_t j = random_() % answers.size();
      if (next[j] == answers[j].size()) continue;
      ClientEvent event = answers[j][next[j]++];
      if (next[j] == answers[j].size()) --left;
      if (auto* const summary = std::get_if<AnswerSummary>(&event)) {
        total.completion_tokens += summary->usage.completion_tokens;
        if (left == 0) summary->total = total;
      }
      events.push_back(std::move(event));
    }
    return events;
  }

 private:
  v1::Token RandomToken(TokenId id, std::optional<int> alternatives) {
    v1::Token token = TokenOf(id);
    if (!alternatives) return token;
    token.set_logprob(random_() % 10 == 0 ? -std::numeric_limits<float>::infinity()
                                          : -static_cast<float>(random_() % 1000) / 7);
    for (int i = 0; i < *alternatives; ++i) {
      token.add_top()->set_token_id(i == 1 ? id : static_cast<TokenId>(random_() % 4100));
      token.mutable_top(i)->set_logprob(-static_cast<float>(i));
    }
    return token;
  }

  std::vector<ClientEvent> Answer(uint32_t index) {
    std::vector<ClientEvent> events;
    if (index == 0 && shape_.echo && shape_.logprobs) {
      for (size_t i = 0; i < prompt_.size();) {
        PromptLogprobs scores;
        for (size_t count = random_() % 9 + 1; count > 0 && i < prompt_.size(); --count, ++i) {
          scores.tokens.push_back(RandomToken(prompt_[i], i == 0 ? std::nullopt : shape_.logprobs));
        }
        events.push_back(std::move(scores));
      }
    }
    const size_t tokens = random_() % 20 + 1;
    StreamDecoder decoder(&Demo(), /*skip_special=*/true);
    AnswerDelta delta = {.index = index};
    for (size_t i = 0; i < tokens; ++i) {
      const auto id = static_cast<TokenId>(random_() % 4096);
      delta.tokens.push_back(RandomToken(id, shape_.logprobs));
      delta.text += decoder.Push(id);
      delta.text_ends.push_back(delta.text.size());
      if (random_() % 3 == 0) events.push_back(std::exchange(delta, {.index = index}));
    }
    delta.text += decoder.Finish();
    if (!delta.text.empty() || !delta.tokens.empty()) events.push_back(std::move(delta));
    events.push_back(random_() % 2 == 0
                         ? Stopped(index)
                         : AnswerFinished{.index = index, .reason = v1::FINISH_REASON_LENGTH});
    events.push_back(AnswerSummary{.index = index,
                                   .usage = {.prompt_tokens = static_cast<uint32_t>(prompt_.size()),
                                             .completion_tokens = static_cast<uint32_t>(tokens)},
                                   .timing = {.total_us = random_() % 1000}});
    return events;
  }

  std::mt19937 random_;
  const CompletionShape shape_;
  const std::vector<TokenId> prompt_;
};

}  // namespace baton
