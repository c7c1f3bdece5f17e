#include "common/tokenizer/stream_decoder.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/json.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/tokenizer_testdata.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

using nlohmann::json;

// Returns one id per byte of `bytes`, as in gpt2.tokenizer.json.
std::vector<TokenId> ByteIds(const Tokenizer& tokenizer, absl::string_view bytes) {
  std::vector<TokenId> ids;
  for (const char c : bytes) {
    TokenId id = 0;
    while (id < tokenizer.vocab_size() && tokenizer.TokenBytes(id) != absl::string_view(&c, 1))
      ++id;
    ids.push_back(id);
  }
  return ids;
}

TEST(StreamDecoderTest, NeverGivesHalfACharacter) {
  const auto tokenizer = LoadTestTokenizer("gpt2");
  StreamDecoder decoder(tokenizer.get(), true);
  std::vector<std::string> pieces;
  for (const TokenId id : ByteIds(*tokenizer, "a\xC3\xA9\xF0\x9F\x98\x80z"))
    pieces.push_back(decoder.Push(id));
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "", "\u00e9", "", "", "", "\U0001F600", "z"}));
  EXPECT_FALSE(decoder.pending());
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoderTest, BytesThatBecomeNoCharacterAreReplacedOnceThatIsCertain) {
  const auto tokenizer = LoadTestTokenizer("gpt2");
  StreamDecoder decoder(tokenizer.get(), true);
  std::vector<std::string> pieces;
  for (const TokenId id : ByteIds(*tokenizer, "\xF0\x9F\x98x\xE2\x82"))
    pieces.push_back(decoder.Push(id));
  EXPECT_EQ(pieces, (std::vector<std::string>{"", "", "", "\uFFFDx", "", ""}));
  EXPECT_TRUE(decoder.pending());
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_FALSE(decoder.pending());
  EXPECT_EQ(decoder.Push(ByteIds(*tokenizer, "\xAC")[0]), "\uFFFD");  // the decoder starts anew
}

// Pushes `tokens`, which are spelled as in tokenizer.json. Returns the text that each Push returns,
// and then the text that Finish returns.
std::vector<std::string> Pieces(const Tokenizer& tokenizer,
                                const std::vector<std::string>& tokens) {
  StreamDecoder decoder(&tokenizer, true);
  std::vector<std::string> pieces;
  for (const std::string& token : tokens) {
    pieces.push_back(decoder.Push(tokenizer.TokenToId(token).value()));
  }
  pieces.push_back(decoder.Finish());
  return pieces;
}

TEST(StreamDecoderTest, ByteTokensWaitUntilTheirRunEnds) {
  const auto tokenizer = LoadTestTokenizer("llama2");
  using Texts = std::vector<std::string>;
  EXPECT_EQ(Pieces(*tokenizer, {"a", "<0xE4>", "<0xBA>", "<0xBA>", "b"}),
            (Texts{"a", "", "", "", "\u4ebab", ""}));
  EXPECT_EQ(Pieces(*tokenizer, {"<0xC3>", "<0xA9>", "<0x41>"}), (Texts{"", "", "", "\u00e9A"}));
  // One missing byte makes the whole run unreadable, including the complete character before it.
  EXPECT_EQ(Pieces(*tokenizer, {"<0xC3>", "<0xA9>", "<0xC3>", "a"}),
            (Texts{"", "", "", "\uFFFD\uFFFD\uFFFDa", ""}));
  EXPECT_EQ(Pieces(*tokenizer, {"<0xFF>"}), (Texts{"", "\uFFFD"}));
}

TEST(StreamDecoderTest, OnlyTheFirstSpaceOfAnAnswerIsStripped) {
  using Texts = std::vector<std::string>;
  const auto tokenizer = LoadTestTokenizer("llama2");
  EXPECT_EQ(Pieces(*tokenizer, {"▁the", "▁the"}), (Texts{"the", " the", ""}));
  EXPECT_EQ(Pieces(*tokenizer, {"▁", "▁", "▁the"}), (Texts{"", " ", " the", ""}));
  EXPECT_EQ(Pieces(*tokenizer, {"<s>", "▁the"}), (Texts{"", "the", ""}));
  // A leading space is stripped even if it comes from a byte token, because a run of byte tokens
  // counts as one token.
  EXPECT_EQ(Pieces(*tokenizer, {"<0x20>", "a"}), (Texts{"", "a", ""}));
  EXPECT_EQ(Pieces(*LoadTestTokenizer("gemma"), {"▁the", "▁the"}), (Texts{" the", " the", ""}));
}

// Pushes an answer to a prompt, both spelled as in tokenizer.json. Returns what Pieces() returns.
std::vector<std::string> AnswerPieces(const Tokenizer& tokenizer,
                                      const std::vector<std::string>& prompt,
                                      const std::vector<std::string>& answer) {
  std::vector<TokenId> ids;
  for (const std::string& token : prompt) ids.push_back(tokenizer.TokenToId(token).value());
  StreamDecoder decoder = StreamDecoder::ForAnswer(&tokenizer, ids);
  std::vector<std::string> pieces;
  for (const std::string& token : answer) {
    pieces.push_back(decoder.Push(tokenizer.TokenToId(token).value()));
  }
  pieces.push_back(decoder.Finish());
  return pieces;
}

TEST(StreamDecoderTest, AnAnswerContinuesItsPrompt) {
  using Texts = std::vector<std::string>;
  const auto llama2 = LoadTestTokenizer("llama2");
  EXPECT_EQ(AnswerPieces(*llama2, {"<s>", "▁the"}, {"▁the", "▁the"}), (Texts{" the", " the", ""}));
  EXPECT_EQ(AnswerPieces(*llama2, {"a"}, {"▁the"}), (Texts{" the", ""}));
  EXPECT_EQ(AnswerPieces(*llama2, {"<0x41>"}, {"▁the"}), (Texts{" the", ""}));
  EXPECT_EQ(AnswerPieces(*llama2, {"<0xC3>"}, {"▁the"}), (Texts{" the", ""}));
  // A prompt of special tokens has no text, so the answer's first space begins the whole text.
  EXPECT_EQ(AnswerPieces(*llama2, {"<s>"}, {"▁the", "▁the"}), (Texts{"the", " the", ""}));
  // The prompt's only space is the one that is stripped.
  EXPECT_EQ(AnswerPieces(*llama2, {"<s>", "▁"}, {"▁the"}), (Texts{" the", ""}));
  const auto metaspace = LoadTestTokenizer("metaspace");
  EXPECT_EQ(AnswerPieces(*metaspace, {"▁the"}, {"▁the"}), (Texts{" the", ""}));
}

TEST(StreamDecoderTest, ByteTokensOfAnAnswerAreGivenOutAsWholeCharacters) {
  using Texts = std::vector<std::string>;
  const auto tokenizer = LoadTestTokenizer("llama2");
  const auto pieces = [&](const std::vector<std::string>& answer) {
    return AnswerPieces(*tokenizer, {"a"}, answer);
  };
  EXPECT_EQ(pieces({"<0x0A>", "<0x0A>", "a"}), (Texts{"\n", "\n", "a", ""}));
  EXPECT_EQ(pieces({"<0xE4>", "<0xBA>", "<0xBA>", "<0xC3>", "<0xA9>"}),
            (Texts{"", "", "\u4eba", "", "\u00e9", ""}));
  // Each maximal part that is not valid becomes one U+FFFD. The text before it stays.
  EXPECT_EQ(pieces({"<0xC3>", "<0xA9>", "<0xC3>", "a"}), (Texts{"", "\u00e9", "", "\uFFFDa", ""}));
  EXPECT_EQ(pieces({"<0xE4>", "<0xBA>", "<0x41>"}), (Texts{"", "", "\uFFFDA", ""}));
  EXPECT_EQ(pieces({"<0xFF>", "<0xE4>"}), (Texts{"\uFFFD", "", "\uFFFD"}));
  // The rest of a character of which the prompt has the beginning.
  EXPECT_EQ(AnswerPieces(*tokenizer, {"a", "<0xC3>"}, {"<0xA9>", "b"}), (Texts{"\uFFFD", "b", ""}));
}

TEST(StreamDecoderTest, WhatMayBeStrippedFromTheEndWaits) {
  json file = json::parse(ReadTestData("llama2.tokenizer.json"));
  file["decoder"]["decoders"][3] = {{"type", "Strip"}, {"content", "e"}, {"start", 1}, {"stop", 2}};
  const auto tokenizer = Tokenizer::FromJson(file.dump(), "t.json").value();
  using Texts = std::vector<std::string>;
  EXPECT_EQ(Pieces(*tokenizer, {"e", "e", "a", "e", "e", "e", "b", "e"}),
            (Texts{"", "", "ea", "", "", "e", "eeb", "", ""}));
  EXPECT_EQ(Pieces(*tokenizer, {"a", "e", "e", "e", "e"}), (Texts{"a", "", "", "e", "e", ""}));
}

TEST(StreamDecoderTest, MetaspaceDropsTheMarksOfTheFirstToken) {
  const auto tokenizer = LoadTestTokenizer("metaspace");
  EXPECT_EQ(Pieces(*tokenizer, {"▁the", "▁the"}), (std::vector<std::string>{"the", " the", ""}));
  EXPECT_EQ(tokenizer->TokenBytes(tokenizer->TokenToId("▁the").value()), " the");
}

// Decodes by definition: each decoder step turns the list of tokens into another list. After the
// last step, the list must be joined.
std::vector<std::string> DecodedAtOnce(const json& decoder, std::vector<std::string> tokens) {
  const std::string type = decoder["type"];
  std::vector<std::string> out;
  if (type == "Sequence") {
    for (const json& step : decoder["decoders"]) tokens = DecodedAtOnce(step, std::move(tokens));
    return tokens;
  }
  if (type == "Fuse") return {absl::StrJoin(tokens, "")};
  if (type == "ByteLevel") {
    std::string bytes, text;
    for (const std::string& token : tokens) bytes += BytesOfText(token).value_or(token);
    if (AppendLossyUtf8(bytes, &text) < bytes.size()) text += kReplacementCharacter;
    return {text};
  }
  if (type == "ByteFallback") {
    std::string run;
    const auto end_run = [&] {
      if (run.empty()) return;
      if (FindInvalidUtf8(run)) {
        out.insert(out.end(), run.size(), kReplacementCharacter);
      } else {
        out.push_back(run);
      }
      run.clear();
    };
    for (const std::string& token : tokens) {
      int byte = 0;
      if (token.size() == 6 && sscanf(token.c_str(), "<0x%2X>", &byte) == 1) {
        run.push_back(static_cast<char>(byte));
      } else {
        end_run();
        out.push_back(token);
      }
    }
    end_run();
    return out;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string text = tokens[i];
    if (type == "Replace") {
      text = absl::StrReplaceAll(text, {{decoder["pattern"]["String"].get<std::string>(),
                                         decoder["content"].get<std::string>()}});
    } else if (type == "Metaspace") {
      const bool drop = i == 0 && decoder.value("prepend_scheme", "always") != "never";
      text =
          absl::StrReplaceAll(text, {{decoder["replacement"].get<std::string>(), drop ? "" : " "}});
    } else {
      const std::string mark = decoder["content"];
      for (size_t n = decoder["start"]; n > 0 && absl::StartsWith(text, mark); --n)
        text.erase(0, mark.size());
      for (size_t n = decoder["stop"]; n > 0 && absl::EndsWith(text, mark); --n)
        text.erase(text.size() - mark.size());
    }
    out.push_back(text);
  }
  return out;
}

json RandomStep(TestLcg* rng, bool joined) {
  const char* const marks[] = {" ", "e", "▁", "t"};
  const std::string mark = marks[rng->Below(4)];
  switch (rng->Below(joined ? 2 : 3)) {
    case 0:
      return {
          {"type", "Strip"}, {"content", mark}, {"start", rng->Below(3)}, {"stop", rng->Below(3)}};
    case 1:
      return {{"type", "Metaspace"},
              {"replacement", mark},
              {"prepend_scheme", rng->Below(2) == 0 ? "never" : "first"}};
    default:
      return {{"type", "Replace"},
              {"pattern", {{"String", mark}}},
              {"content", rng->Below(2) == 0 ? "" : " e"}};
  }
}

json RandomDecoder(TestLcg* rng) {
  json steps = json::array();
  const auto add = [&](bool joined) {
    for (uint64_t left = rng->Below(3); left > 0; --left) steps.push_back(RandomStep(rng, joined));
  };
  add(false);
  if (rng->Below(3) > 0) steps.push_back({{"type", "ByteFallback"}});
  add(false);
  if (const uint64_t join = rng->Below(3); join > 0) {
    steps.push_back({{"type", join == 1 ? "Fuse" : "ByteLevel"}});
    add(true);
  }
  return {{"type", "Sequence"}, {"decoders", steps}};
}

// Decodes `ids` one by one, and checks that each Push returns only whole characters.
std::string Streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                     bool skip_special) {
  StreamDecoder decoder(&tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = decoder.Push(id);
    EXPECT_FALSE(FindInvalidUtf8(piece).has_value());
    text += piece;
  }
  return text + decoder.Finish();
}

TEST(StreamDecoderTest, PiecesMakeUpWhatDecodingAllAtOnceGives) {
  TestLcg rng(5);
  std::vector<json> files;
  for (const char* name : {"gpt2", "llama2", "mistral3", "gemma", "metaspace", "flags_text"})
    files.push_back(json::parse(ReadTestData(std::string(name) + ".tokenizer.json")));
  for (int chains = 0; chains < 150; ++chains) {
    files.push_back(files[1]);
    files.back()["decoder"] = RandomDecoder(&rng);
  }
  for (const json& file : files) {
    const auto tokenizer = Tokenizer::FromJson(file.dump(), "t.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (int round = 0; round < 40; ++round) {
      const bool skip_special = rng.Below(2) == 0;
      std::vector<TokenId> ids(rng.Below(30));
      std::vector<std::string> tokens;
      for (TokenId& id : ids) {
        // Uses mostly single bytes and a few tokens. So characters are often completed or broken
        // off, and characters to strip often come next to each other.
        static constexpr TokenId kVocab = 600, kBytes = 259;
        id = static_cast<TokenId>(rng.Below(rng.Below(3) == 0 ? kVocab : kBytes));
        if (rng.Below(4) == 0) id = kBytes + static_cast<TokenId>(rng.Below(8));
        if (rng.Below(4) == 0)
          id = (*tokenizer)->TokenToId(rng.Below(2) == 0 ? "e" : "▁").value_or(id);
        if (!(*tokenizer)->IsToken(id) || (skip_special && (*tokenizer)->IsSpecial(id))) continue;
        tokens.emplace_back((*tokenizer)->TokenText(id));
      }
      const std::string expected = absl::StrJoin(DecodedAtOnce(file["decoder"], tokens), "");
      ASSERT_EQ(Streamed(**tokenizer, ids, skip_special), expected)
          << file["decoder"] << " over " << absl::StrJoin(tokens, " + ");
      ASSERT_EQ((*tokenizer)->Decode(ids, skip_special), expected);
    }
  }
}

TEST(StreamDecoderTest, SpecialTokensAndIdsThatAreNoneGiveNothingWhenSkipped) {
  const auto tokenizer = LoadTestTokenizer("qwen2");
  const TokenId end = tokenizer->TokenToId("<|im_end|>").value();
  StreamDecoder skipping(tokenizer.get(), true);
  EXPECT_EQ(skipping.Push(end), "");
  EXPECT_EQ(skipping.Push(-1), "");
  EXPECT_EQ(skipping.Push(tokenizer->vocab_size()), "");
  // The token "<think>" is not special, so it is not skipped.
  EXPECT_EQ(skipping.Push(tokenizer->TokenToId("<think>").value()), "<think>");
  StreamDecoder keeping(tokenizer.get(), false);
  EXPECT_EQ(keeping.Push(end), "<|im_end|>");
}

}  // namespace
}  // namespace baton
