#include "common/tokenizer/bpe.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/json.h"
#include "common/tokenizer/encode_stop.h"
#include "common/tokenizer/tokenizer_testdata.h"

namespace baton {
namespace {

using nlohmann::json;

// Returns a model over a few letters with random merges. Some merges can't occur in any word.
json RandomModel(TestLcg* rng) {
  json vocab = {{"?", 0}, {"a", 1}, {"b", 2}, {"c", 3}, {" ", 4}, {"<0xC3>", 5}, {"<0xA9>", 6}};
  std::vector<std::string> tokens;
  for (const auto& [token, id] : vocab.items()) tokens.push_back(token);
  json merges = json::array();
  for (uint64_t left = 4 + rng->Below(30); left > 0; --left) {
    const std::string a = tokens[rng->Below(tokens.size())], b = tokens[rng->Below(tokens.size())];
    merges.push_back({a, b});
    if (vocab.emplace(a + b, vocab.size()).second) tokens.push_back(a + b);
  }
  return {{"type", "BPE"},         {"vocab", vocab},   {"merges", merges},
          {"byte_fallback", true}, {"unk_token", "?"}, {"fuse_unk", rng->Below(2) == 0}};
}

// Merges by definition: repeatedly merges the pair with the lowest rank, the leftmost one among
// equal ranks.
std::vector<TokenId> MergedSlowly(const json& model, const std::vector<std::string>& symbols) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < model["merges"].size(); ++i)
    ranks[{model["merges"][i][0], model["merges"][i][1]}] = i;
  std::vector<std::string> word = symbols;
  while (true) {
    size_t best = 0, best_rank = ranks.size() + model["merges"].size();
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const auto found = ranks.find({word[i], word[i + 1]});
      if (found == ranks.end() || found->second >= best_rank) continue;
      best = i;
      best_rank = found->second;
    }
    if (best_rank == ranks.size() + model["merges"].size()) break;
    word[best] += word[best + 1];
    word.erase(word.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& token : word) ids.push_back(model["vocab"][token].get<TokenId>());
  return ids;
}

TEST(BpeTest, LongAndShortWordsMergeAsTheDefinitionSays) {
  TestLcg rng(3);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    const json model = RandomModel(&rng);
    const auto file = JsonFile::Parse(model.dump(), "model").value();
    Vocabulary vocabulary;
    const auto bpe = Bpe::FromJson(file->root(), WordSpelling::kText, &vocabulary);
    ASSERT_TRUE(bpe.ok()) << bpe.status();
    EncodeStop never;
    Bpe::Scratch scratch;
    for (int texts = 0; texts < 4; ++texts) {
      std::string text;
      std::vector<std::string> symbols;
      bool unknown_before = false;
      for (uint64_t left = 1 + rng.Below(150); left > 0; --left) {
        const uint64_t kind = rng.Below(12);
        if (kind == 0) {
          text += "\u00e9";
          symbols.insert(symbols.end(), {"<0xC3>", "<0xA9>"});
          // If the character before this one is unknown, Hugging Face tokenizers puts the unknown
          // token after the two bytes of this character, as the goldens show.
          if (unknown_before) std::rotate(symbols.end() - 3, symbols.end() - 2, symbols.end());
          continue;
        }
        if (kind == 1) {
          text += "z";
          const bool fused = unknown_before && model["fuse_unk"].get<bool>();
          if (!fused) symbols.push_back("?");
          unknown_before = true;
          continue;
        }
        const char letter = "abc "[rng.Below(4)];
        text += letter;
        symbols.emplace_back(1, letter);
        unknown_before = false;
      }
      std::vector<TokenId> ids;
      ASSERT_TRUE(bpe->Encode(text, &never, &scratch, &ids).ok());
      EXPECT_EQ(ids, MergedSlowly(model, symbols)) << text;
    }
  }
}

// Counts how often a word asks whether to go on. It asks after every few thousand bytes.
TEST(BpeTest, WordThatMustHaveTooManyTokensIsNotMerged) {
  const json model = {{"type", "BPE"},
                      {"vocab", {{"a", 0}, {"aa", 1}, {"aaaa", 2}}},
                      {"merges", {"a a", "aa aa"}},
                      {"unk_token", "a"}};
  const auto file = JsonFile::Parse(model.dump(), "model").value();
  Vocabulary vocabulary;
  const auto bpe = Bpe::FromJson(file->root(), WordSpelling::kText, &vocabulary);
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  const std::string word(1 << 18, 'a');
  for (const size_t max_tokens : {word.size() / 4, word.size() / 4 - 1}) {
    int asked = 0;
    EncodeStop stop(max_tokens, [&asked] {
      ++asked;
      return absl::OkStatus();
    });
    Bpe::Scratch scratch;
    std::vector<TokenId> ids;
    const absl::Status encoded = bpe->Encode(word, &stop, &scratch, &ids);
    if (max_tokens == word.size() / 4) {
      EXPECT_TRUE(encoded.ok()) << encoded;
      EXPECT_EQ(ids, std::vector<TokenId>(max_tokens, 2));
      EXPECT_GT(asked, 100);
    } else {
      EXPECT_EQ(encoded.code(), absl::StatusCode::kOutOfRange) << encoded;
      EXPECT_EQ(asked, 0);
    }
  }
}

TEST(BpeTest, RunThatWouldTakeTooMuchMemoryIsRefused) {
  const json model = {{"type", "BPE"},
                      {"vocab", {{"a", 0}, {"aa", 1}, {"b", 2}, {"?", 3}}},
                      {"merges", {"a a"}},
                      {"unk_token", "?"}};
  const auto file = JsonFile::Parse(model.dump(), "model").value();
  Vocabulary vocabulary;
  const auto bpe = Bpe::FromJson(file->root(), WordSpelling::kText, &vocabulary);
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  EncodeStop never;
  Bpe::Scratch scratch;
  std::vector<TokenId> ids;
  const std::string half(Bpe::kMaxRun / 2 + 1, 'a');
  // Each half is a run of its own.
  EXPECT_TRUE(bpe->Encode(half + "b" + half, &never, &scratch, &ids).ok());
  EXPECT_EQ(ids.size(), 2 * (Bpe::kMaxRun / 4 + 1) + 1);
  ids.clear();
  EXPECT_EQ(
      bpe->Encode(half + half, &never, &scratch, &ids),
      absl::InvalidArgumentError(
          "the text has more than 1048576 characters in a row that may merge with each other, "
          "for example one letter repeated"));
  EXPECT_TRUE(ids.empty());
  EXPECT_LT(scratch.symbols.capacity(), 3 * Bpe::kMaxRun);
}

}  // namespace
}  // namespace baton
