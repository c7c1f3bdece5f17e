#include "common/tokenizer/stream_decoder.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/tokenizer/tokenizer_testdata.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

using nlohmann::json;

// One id per byte of `bytes`, as gpt2.tokenizer.json numbers them.
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
  EXPECT_EQ(decoder.Push(ByteIds(*tokenizer, "\xAC")[0]), "\uFFFD");  // as new
}

// The text that each of `tokens` (as the file spells them) gives, and what the end gives.
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
  // One byte too few makes all of the run unreadable, the whole character before it too.
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
  // Byte tokens give their run as one token, so a space among them counts too.
  EXPECT_EQ(Pieces(*tokenizer, {"<0x20>", "a"}), (Texts{"", "a", ""}));
  EXPECT_EQ(Pieces(*LoadTestTokenizer("gemma"), {"▁the", "▁the"}), (Texts{" the", " the", ""}));
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

TEST(StreamDecoderTest, PiecesAreWholeCharactersAndMakeUpTheDecodedText) {
  for (const std::string& name : TestTokenizers()) {
    const auto tokenizer = LoadTestTokenizer(name);
    TestLcg rng(5);
    for (int round = 0; round < 500; ++round) {
      const bool skip_special = rng.Below(2) == 0;
      std::vector<TokenId> ids(rng.Below(60));
      // Mostly single bytes, so that characters come about and break off.
      for (TokenId& id : ids) {
        id = static_cast<TokenId>(rng.Below(rng.Below(4) == 0 ? tokenizer->vocab_size() + 2 : 256));
      }
      StreamDecoder decoder(tokenizer.get(), skip_special);
      std::string text;
      for (const TokenId id : ids) {
        const std::string piece = decoder.Push(id);
        ASSERT_FALSE(FindInvalidUtf8(piece).has_value());
        text += piece;
      }
      text += decoder.Finish();
      ASSERT_EQ(text, tokenizer->Decode(ids, skip_special));
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
  EXPECT_EQ(skipping.Push(tokenizer->TokenToId("<think>").value()), "<think>");  // not special
  StreamDecoder keeping(tokenizer.get(), false);
  EXPECT_EQ(keeping.Push(end), "<|im_end|>");
}

}  // namespace
}  // namespace baton
