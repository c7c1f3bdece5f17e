#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/sampling/sampler.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/core/answer_so_far.h"
#include "router/door/request_check.h"

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

// A part of a text that is one character, or one U+FFFD.
struct Part {
  std::string text;
  size_t after;  // number of tokens after which it is certain
};

// Decodes bytes by the rule of the Unicode standard (3.9, "substitution of maximal subparts").
// `token_of` has the number of the token, from 1, that each byte belongs to. A part that is cut off
// by the end is certain one token after the last.
std::vector<Part> PartsOf(absl::string_view bytes, const std::vector<size_t>& token_of,
                          size_t tokens) {
  std::vector<Part> parts;
  for (size_t i = 0; i < bytes.size();) {
    const auto at = [&](size_t k) { return static_cast<unsigned char>(bytes[k]); };
    const unsigned char first = at(i);
    const size_t more = first < 0x80                    ? 0
                        : first >= 0xC2 && first < 0xE0 ? 1
                        : first >= 0xE0 && first < 0xF0 ? 2
                        : first >= 0xF0 && first < 0xF5 ? 3
                                                        : 4;
    if (more == 4) {
      parts.push_back({"\uFFFD", token_of[i++]});
      continue;
    }
    size_t end = i + 1;
    while (end < bytes.size() && end <= i + more) {
      unsigned char low = 0x80, high = 0xBF;
      if (end == i + 1) {
        if (first == 0xE0) low = 0xA0;
        if (first == 0xED) high = 0x9F;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F;
      }
      if (at(end) < low || at(end) > high) break;
      ++end;
    }
    if (end == i + 1 + more) {
      parts.push_back({std::string(bytes.substr(i, end - i)), token_of[end - 1]});
    } else {
      parts.push_back({"\uFFFD", end == bytes.size() ? tokens + 1 : token_of[end]});
    }
    i = end;
  }
  return parts;
}

// Texts that answers are put together from, and that are stop strings and bad words.
const std::vector<std::string> kTexts = {
    "a",    "work",   " work",      "the",   " the", "The answer", "\n",      "\n\n",
    " ",    "  ",     "\t",         "(",     "[",    "{",          ".",       "\u00e9",
    "猫",   "\u0416", "\U0001F642", "12",    "!",    " = 7;",      "e\u0301", "))",
    "\r\n", "\u200d", "router",     " of a", "</s>", "<|eot_id|>"};

class AnswerTextTest : public ::testing::TestWithParam<std::string> {
 protected:
  AnswerTextTest() {
    const std::string file =
        absl::StrCat(BATON_SOURCE_DIR "/common/tokenizer/testdata/", GetParam(), ".tokenizer.json");
    tokenizer_ = Tokenizer::FromFile(file).value();
    model_.name = "m";
    model_.tokenizer = tokenizer_.get();
    model_.config.vocab = tokenizer_->vocab_size();
    model_.config.context = 4096;
    for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (tokenizer_->IsByte(id)) bytes_.push_back(id);
      if (tokenizer_->IsSpecial(id)) special_.push_back(id);
    }
    logits_.assign(tokenizer_->vocab_size(), 0.0f);
    for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (!tokenizer_->IsToken(id)) logits_[id] = -INFINITY;
    }
  }

  size_t Below(size_t n) { return random_() % n; }
  const std::string& AnyText() { return kTexts[Below(kTexts.size())]; }
  TokenId AnyToken() {
    for (;;) {
      const auto id = static_cast<TokenId>(Below(logits_.size()));
      if (tokenizer_->IsToken(id)) return id;
    }
  }
  Ids Encode(const std::string& text) {
    return tokenizer_->Encode(text, {.parse_special = Below(2) == 0, .add_special = false}).value();
  }

  Ids AnyTokens(size_t count) {
    Ids ids;
    while (ids.size() < count) ids.push_back(AnyToken());
    return ids;
  }

  ClientRequest AnyRequest() {
    ClientRequest request;
    switch (Below(8)) {
      case 0:  // may end within a character
        request.prompt = AnyTokens(1 + Below(6));
        break;
      case 1:  // has no text
        request.prompt = Ids{special_.front()};
        break;
      default:
        std::string text;
        for (size_t i = 0, n = 1 + Below(4); i < n; ++i) text += AnyText();
        request.prompt = std::move(text);
    }
    v1::SamplingParams& sampling = request.sampling;
    sampling.set_temperature(1);
    sampling.set_seed(random_());
    if (Below(4) != 0) sampling.set_max_tokens(1 + Below(40));
    if (Below(4) == 0) {
      sampling.set_min_tokens(Below(sampling.has_max_tokens() ? sampling.max_tokens() + 1 : 8));
    }
    for (size_t i = 0, n = Below(3); i < n; ++i) {
      const std::string& text = AnyText();
      sampling.add_stop(Below(3) == 0 ? text + AnyText() : text);
    }
    if (Below(8) == 0) sampling.add_stop_token_ids(AnyToken());
    for (size_t i = 0, n = Below(3); i < n; ++i) sampling.add_bad_words(AnyText());
    return request;
  }

  // Returns what the "model" would like to say next, as tokens: texts of kTexts, often behind one
  // another, spelled in bytes, or in a few bytes that are no character.
  Ids AnyWish(const ClientRequest& request) {
    const auto& sampling = request.sampling;
    switch (Below(6)) {
      case 5:
        if (Below(8) == 0) return {special_.back()};
        break;
      case 0:
        if (sampling.stop_size() > 0) return Encode(sampling.stop(Below(sampling.stop_size())));
        break;
      case 1:
        if (sampling.bad_words_size() > 0) {
          return Encode(AnyText() + sampling.bad_words(Below(sampling.bad_words_size())));
        }
        break;
      case 2:
        if (!bytes_.empty()) {
          Ids ids;
          std::string text = AnyText();
          if (Below(4) == 0) text.resize(text.size() - Below(text.size()));
          for (const char c : text) {
            ids.push_back(ByteToken(static_cast<uint8_t>(c)));
          }
          return ids;
        }
        break;
      case 3:
        return Encode(AnyText());
      default:
        break;
    }
    return {AnyToken()};
  }
  TokenId ByteToken(uint8_t byte) {
    for (const TokenId id : bytes_) {
      if (tokenizer_->TokenBytes(id) == absl::string_view(reinterpret_cast<char*>(&byte), 1))
        return id;
    }
    return bytes_[0];
  }

  // An answer as a client gets it.
  struct Answer {
    Ids ids;
    std::vector<std::string> pieces;  // text that came with each token, and at the end
    std::string matched_stop;
    AnswerEnd end;
    std::string text() const { return absl::StrJoin(pieces, ""); }
  };

  Answer Play(const CheckedRequest& checked, const ClientRequest& request) {
    const auto decoder =
        std::make_shared<StreamDecoder>(StreamDecoder::ForAnswer(tokenizer_.get(), checked.prompt));
    AnswerSoFar so_far(checked.prompt.size(), checked.sampling, checked.stop,
                       TextDecoder{[decoder](TokenId id) { return decoder->Push(id); },
                                   [decoder] { return decoder->Finish(); }},
                       model_.config.vocab);
    const int max_tokens =
        checked.sampling.max_tokens > 0 ? checked.sampling.max_tokens : *checked.default_max_tokens;
    TokenHistory history(checked.prompt, static_cast<int>(checked.prompt.size()));
    Answer answer;
    Ids wish;
    while (!so_far.Complete(max_tokens)) {
      if (wish.empty()) wish = AnyWish(request);
      const TokenId wanted = wish.empty() ? AnyToken() : wish.front();
      const float before = std::exchange(logits_[wanted], 12.0f);
      const auto sampled = sampler_.Sample(absl::MakeSpan(logits_), checked.sampling,
                                           static_cast<int>(so_far.next_position()),
                                           static_cast<int>(answer.ids.size()), &history);
      logits_[wanted] = before;
      if (!sampled.ok()) {
        ADD_FAILURE() << sampled.status();
        break;
      }
      if (sampled->id == wanted && !wish.empty()) {
        wish.erase(wish.begin());
      } else {
        wish.clear();
      }
      history.Append(sampled->id);
      v1::Token token;
      token.set_token_id(sampled->id);
      token.set_position(static_cast<uint32_t>(so_far.next_position()));
      const auto took = so_far.Take(token, max_tokens);
      EXPECT_TRUE(took == AnswerSoFar::Took::kNew || took == AnswerSoFar::Took::kStopped);
      answer.ids.push_back(sampled->id);
      answer.pieces.push_back(so_far.TakePending().text);
    }
    answer.end = so_far.Complete(max_tokens).value_or(AnswerEnd());
    so_far.Close();
    answer.pieces.push_back(so_far.TakePending().text);
    answer.matched_stop = so_far.matched_stop();
    return answer;
  }

  // Returns what decode(prompt + answer) adds to decode(prompt).
  std::string DecodedBehind(const Ids& prompt, const Ids& answer) {
    Ids both = prompt;
    both.insert(both.end(), answer.begin(), answer.end());
    const std::string before = tokenizer_->Decode(prompt, true),
                      all = tokenizer_->Decode(both, true);
    EXPECT_TRUE(absl::StartsWith(all, before));
    return all.substr(before.size());
  }

  void Check(const CheckedRequest& checked, const Answer& answer);
  void CheckBans(const ClientRequest& request, const Answer& answer);

  std::unique_ptr<const Tokenizer> tokenizer_;
  ServedModel model_;
  Ids bytes_, special_;
  std::vector<float> logits_;
  Sampler sampler_;
  std::mt19937 random_{20261129};
  int compared_ = 0, spelled_wrongly_ = 0, stopped_ = 0, ended_ = 0;
};

void AnswerTextTest::Check(const CheckedRequest& checked, const Answer& answer) {
  const bool by_token = answer.end.stop_token.has_value();
  const Ids shown(answer.ids.begin(), answer.ids.end() - (by_token ? 1 : 0));
  std::string bytes;
  std::vector<size_t> token_of;
  for (size_t i = 0; i < shown.size(); ++i) {
    if (tokenizer_->IsSpecial(shown[i])) continue;
    absl::StrAppend(&bytes, tokenizer_->TokenBytes(shown[i]));
    token_of.resize(bytes.size(), i + 1);
  }
  const bool prompt_has_text = !tokenizer_->Decode(checked.prompt, true).empty();
  const bool prompt_whole = !absl::EndsWith(tokenizer_->Decode(checked.prompt, true), "\uFFFD");
  std::vector<Part> parts = PartsOf(bytes, token_of, answer.ids.size());
  std::string full;
  for (const Part& part : parts) full += part.text;
  if (!prompt_has_text) {
    // The first token of a text loses its blank in some forms. Parts of an answer that is no valid
    // UTF-8 are not compared then.
    if (!IsUtf8(bytes)) return;
    const std::string decoded = DecodedBehind(checked.prompt, shown);
    ASSERT_TRUE(decoded == full || " " + decoded == full) << decoded;
    if (decoded != full) parts.erase(parts.begin());
    full = decoded;
  }
  if (prompt_whole && IsUtf8(bytes)) {
    ASSERT_EQ(DecodedBehind(checked.prompt, shown), full);
    ++compared_;
  } else {
    ++spelled_wrongly_;
  }

  // Finds the stop string that ends first, in text of a token behind the first min_tokens.
  size_t cut = full.size(), end = 0;
  std::string matched;
  size_t at_token = 0;
  std::vector<size_t> certain_after(full.size());
  for (size_t byte = 0; const Part& part : parts) {
    for (size_t i = 0; i < part.text.size(); ++i) certain_after[byte++] = part.after;
  }
  for (end = 1; end <= full.size() && matched.empty(); ++end) {
    at_token = std::min(certain_after[end - 1], answer.ids.size());
    if (at_token <= static_cast<size_t>(checked.sampling.min_tokens)) continue;
    for (const std::string& stop : checked.stop) {
      if (stop.size() > matched.size() && absl::EndsWith(full.substr(0, end), stop)) matched = stop;
    }
    if (!matched.empty()) cut = end - matched.size();
  }
  EXPECT_EQ(answer.matched_stop, matched);
  EXPECT_EQ(answer.text(), full.substr(0, cut));
  if (!matched.empty()) {
    EXPECT_EQ(answer.ids.size(), at_token) << "the answer ends with the token that completes it";
    ++stopped_;
    return;
  }
  if (by_token) ++ended_;
  // Without stop strings, text is given out as soon as it is certain.
  if (!checked.stop.empty()) return;
  std::string so_far;
  for (size_t token = 1; token <= answer.ids.size(); ++token) {
    so_far += answer.pieces[token - 1];
    std::string certain;
    for (const Part& part : parts) {
      if (part.after <= token) certain += part.text;
    }
    ASSERT_EQ(so_far, certain) << "after token " << token;
  }
}

// Checks that no answer holds a banned word, spelled as the tokeniser spells it at the start of the
// answer, behind a blank, a newline, a bracket or a byte token.
void AnswerTextTest::CheckBans(const ClientRequest& request, const Answer& answer) {
  const auto encode = [&](const std::string& text) {
    return tokenizer_->Encode(text, {.add_special = false}).value();
  };
  for (const std::string& word : request.sampling.bad_words()) {
    const Ids alone = encode(word);
    for (size_t i = 0; i < answer.ids.size(); ++i) {
      const auto follows = [&](const Ids& ids) {
        return ids.size() <= answer.ids.size() - i &&
               std::equal(ids.begin(), ids.end(), answer.ids.begin() + i);
      };
      EXPECT_FALSE(follows(alone)) << word << " at " << i;
      if (i == 0) continue;
      const absl::string_view last = tokenizer_->TokenBytes(answer.ids[i - 1]);
      const bool covered = tokenizer_->IsByte(answer.ids[i - 1]) || absl::EndsWith(last, "\n") ||
                           absl::EndsWith(last, "(");
      std::vector<std::pair<std::string, std::string>> places = {{"a", " " + word}};
      if (covered) {
        const bool byte = tokenizer_->IsByte(answer.ids[i - 1]);
        places.push_back({absl::StrCat("a", byte ? "\U0010FFFD" : last), word});
      }
      for (const auto& [before, text] : places) {
        const Ids first = encode(before), both = encode(before + text);
        const size_t shared = std::min(first.size(), both.size());
        if (shared == both.size() ||
            !std::equal(first.begin(), first.begin() + shared, both.begin()))
          continue;
        EXPECT_FALSE(follows(Ids(both.begin() + shared, both.end())))
            << text << " at " << i << " behind " << before;
      }
    }
  }
}

TEST_P(AnswerTextTest, IsWhatDecodingAddsToThePrompt) {
  for (int i = 0; i < 1700; ++i) {
    const ClientRequest request = AnyRequest();
    model_.config.generation.end_tokens = {special_.back()};
    model_.config.generation.max_new_tokens = 20;
    const auto checked =
        CheckRequest(request, model_, {}, absl::UnixEpoch(), absl::InfiniteFuture());
    ASSERT_TRUE(checked.ok()) << checked.status();
    const Answer answer = Play(*checked, request);
    SCOPED_TRACE(absl::StrCat("answer ", i, " to ", absl::StrJoin(checked->prompt, ","), " with ",
                              request.sampling.ShortDebugString(), ": ",
                              absl::StrJoin(answer.ids, ",")));
    for (const std::string& piece : answer.pieces) EXPECT_TRUE(IsUtf8(piece));
    Check(*checked, answer);
    CheckBans(request, answer);
    if (HasFailure()) return;
  }
  // All kinds of answers came.
  EXPECT_GT(compared_, 500);
  EXPECT_GT(stopped_, 100);
  EXPECT_GT(ended_, 50);
  if (GetParam() != "metaspace") {  // all of its tokens are characters
    EXPECT_GT(spelled_wrongly_, 50);
  }
}

// Returns the text of an answer, and the number of tokens after which it ended.
std::pair<std::string, size_t> Play(const Tokenizer& tokenizer, const std::string& prompt,
                                    const std::vector<std::string>& tokens,
                                    const std::string& stop) {
  const auto decoder = std::make_shared<StreamDecoder>(
      StreamDecoder::ForAnswer(&tokenizer, tokenizer.Encode(prompt, {}).value()));
  AnswerSoFar answer(0, {}, {stop},
                     TextDecoder{[decoder](TokenId id) { return decoder->Push(id); },
                                 [decoder] { return decoder->Finish(); }},
                     tokenizer.vocab_size());
  for (const std::string& text : tokens) {
    v1::Token token;
    token.set_token_id(tokenizer.TokenToId(text).value());
    token.set_position(static_cast<uint32_t>(answer.next_position()));
    if (answer.Take(token, 100) == AnswerSoFar::Took::kStopped) break;
  }
  answer.Close();
  return {answer.TakePending().text, answer.tokens().size()};
}

TEST(AnswerOfALlama2FormTest, ContinuesItsPromptAndStopsAtOnce) {
  const auto tokenizer =
      Tokenizer::FromFile(BATON_SOURCE_DIR "/common/tokenizer/testdata/llama2.tokenizer.json")
          .value();
  using Pair = std::pair<std::string, size_t>;
  EXPECT_EQ(Play(*tokenizer, "the", {"▁the", "▁the"}, "x"), Pair(" the the", 2));
  EXPECT_EQ(Play(*tokenizer, "the", {"▁the", "▁the"}, " the"), Pair("", 1));
  EXPECT_EQ(Play(*tokenizer, "the", {"<0x0A>", "<0x0A>", "<0x0A>"}, "\n"), Pair("", 1));
  EXPECT_EQ(Play(*tokenizer, "the", {"<0xC3>", "<0xA9>", "<0xC3>"}, "\u00e9"), Pair("", 2));
}

INSTANTIATE_TEST_SUITE_P(Forms, AnswerTextTest,
                         ::testing::Values("llama2", "phi3", "gemma", "metaspace", "gpt2",
                                           "llama3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace baton
