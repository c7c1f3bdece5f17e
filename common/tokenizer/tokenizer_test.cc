#include "common/tokenizer/tokenizer.h"

#include <atomic>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer_testdata.h"

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The order of the modes in the goldens.
constexpr EncodeOptions kModes[] = {{false, false}, {true, false}, {false, true}, {true, true}};

uint64_t Fnv(uint64_t hash, absl::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}
uint64_t Fnv(uint64_t hash, TokenId id) {
  char bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(static_cast<uint32_t>(id) >> (8 * i));
  return Fnv(hash, absl::string_view(bytes, 4));
}
constexpr uint64_t kFnvStart = 0xCBF29CE484222325;

std::string Streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                     bool skip_special) {
  StreamDecoder decoder(&tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<const Tokenizer> tokenizer_ = LoadTestTokenizer(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTest, testing::ValuesIn(kTestTokenizers),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GoldenTest, CorpusEncodesAndDecodesAsTheReferenceDoes) {
  const std::vector<std::string> corpus = TestCorpus();
  const auto file =
      JsonFile::Parse(ReadTestData(std::string(GetParam()) + ".golden.json"), "golden").value();
  const auto goldens = file->root().Array().value();
  ASSERT_EQ(goldens.size(), corpus.size());
  for (size_t i = 0; i < corpus.size(); ++i) {
    SCOPED_TRACE(absl::Utf8SafeCEscape(corpus[i].substr(0, 200)));
    const auto modes = goldens[i].Get("ids")->Array().value();
    std::vector<std::vector<TokenId>> expected;
    for (size_t mode = 0; mode < std::size(kModes); ++mode) {
      if (const auto same = modes[mode].Int(0, 3); same.ok()) {
        expected.push_back(expected[*same]);
      } else {
        expected.emplace_back();
        const auto ids = modes[mode].Array().value();
        for (const JsonNode& id : ids) expected.back().push_back(id.Int(0, 1 << 30).value());
      }
      const auto ids = tokenizer_->Encode(corpus[i], kModes[mode]);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(*ids, expected[mode]) << "mode " << mode;
    }
    EXPECT_EQ(tokenizer_->Decode(expected[0], false),
              goldens[i].StringOr("text", corpus[i]).value());
  }
}

TEST_P(GoldenTest, RandomTextsAndIdsGiveWhatTheReferenceGives) {
  std::istringstream golden(ReadTestData(std::string(GetParam()) + ".fuzz.txt"));
  uint64_t seed = 0;
  int count = 0, wrong = 0;
  golden >> seed >> count;
  TestLcg rng(seed);
  for (int i = 0; i < count; ++i) {
    const std::string text = RandomTestText(&rng);
    uint64_t ids_hash = kFnvStart;
    std::vector<TokenId> first;
    for (const EncodeOptions& mode : kModes) {
      const auto ids = tokenizer_->Encode(text, mode);
      ASSERT_TRUE(ids.ok()) << ids.status();
      if (first.empty()) first = *ids;
      for (const TokenId id : *ids) ids_hash = Fnv(ids_hash, id);
      ids_hash = Fnv(ids_hash, -1);
    }
    std::vector<TokenId> ids(rng.Below(30));
    for (TokenId& id : ids) id = static_cast<TokenId>(rng.Below(tokenizer_->vocab_size() + 3));
    uint64_t text_hash = kFnvStart;
    for (const bool skip_special : {false, true}) {
      const std::string decoded = tokenizer_->Decode(ids, skip_special);
      EXPECT_EQ(Streamed(*tokenizer_, ids, skip_special), decoded);
      text_hash = Fnv(Fnv(text_hash, decoded), "\xFF");
    }
    std::string expected_ids, expected_text;
    golden >> expected_ids >> expected_text;
    const bool same = absl::StrFormat("%08x", ids_hash >> 32) == expected_ids &&
                      absl::StrFormat("%08x", text_hash >> 32) == expected_text;
    if (same) continue;
    if (++wrong > 10) continue;
    ADD_FAILURE() << "text " << i << " of seed " << seed << ": \"" << absl::CHexEscape(text)
                  << "\" gives " << testing::PrintToString(first)
                  << "; ids right: " << (absl::StrFormat("%08x", ids_hash >> 32) == expected_ids);
  }
  EXPECT_EQ(wrong, 0);
}

// These remove and normalise nothing.
TEST(TokenizerTest, TextComesBackWhole) {
  for (const char* name : {"gpt2", "llama3", "o200k"}) {
    const auto tokenizer = LoadTestTokenizer(name);
    TestLcg rng(7);
    for (int i = 0; i < 300; ++i) {
      const std::string text = RandomTestText(&rng);
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, {.add_special = false}).value(), false),
                text);
    }
  }
}

TEST(TokenizerTest, SpecialTokensInTextAreTextUnlessAskedFor) {
  const auto tokenizer = LoadTestTokenizer("qwen2");
  const TokenId start = tokenizer->TokenToId("<|im_start|>").value();
  const TokenId think = tokenizer->TokenToId("<think>").value();
  EXPECT_THAT(tokenizer->Encode("<|im_start|>", {.parse_special = true}).value(),
              ElementsAre(start));
  const auto as_text = tokenizer->Encode("<|im_start|>").value();
  EXPECT_THAT(as_text, Not(Contains(start)));
  EXPECT_EQ(tokenizer->Decode(as_text, true), "<|im_start|>");
  EXPECT_THAT(tokenizer->Encode("<think>").value(), ElementsAre(think));  // added, but not special
}

TEST(TokenizerTest, TemplateAddsWhatItSays) {
  const auto tokenizer = LoadTestTokenizer("llama3");
  const TokenId bos = tokenizer->TokenToId("<|begin_of_text|>").value();
  EXPECT_THAT(tokenizer->Encode("").value(), ElementsAre(bos));
  EXPECT_THAT(tokenizer->Encode("", {.add_special = false}).value(), IsEmpty());
  EXPECT_THAT(LoadTestTokenizer("gpt2")->Encode("").value(), IsEmpty());
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefusedWithThePlace) {
  const auto tokenizer = LoadTestTokenizer("gpt2");
  for (const auto& [text, message] :
       {std::pair<std::string, const char*>("abc\xFF", "byte 3 of 4 is 0xff"),
        {"\xC3", "byte 0 of 1 is 0xc3"},
        {"caf\xC3\xA9 \xED\xA0\x80", "byte 6 of 9 is 0xed"},
        {std::string(1000, 'x') + "\xC0\x80", "byte 1000 of 1002"}}) {
    const auto ids = tokenizer->Encode(text);
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(ids.status().message()), HasSubstr(message));
  }
}

TEST(TokenizerTest, TokensAreDescribed) {
  const auto tokenizer = LoadTestTokenizer("qwen2");
  const TokenId the = tokenizer->TokenToId("Ġthe").value();
  EXPECT_EQ(tokenizer->TokenBytes(the), " the");
  EXPECT_EQ(tokenizer->TokenText(the), "Ġthe");
  EXPECT_FALSE(tokenizer->IsSpecial(the));
  const TokenId end = tokenizer->TokenToId("<|im_end|>").value();
  EXPECT_TRUE(tokenizer->IsSpecial(end));
  EXPECT_EQ(tokenizer->TokenBytes(end), "<|im_end|>");
  EXPECT_FALSE(tokenizer->IsSpecial(tokenizer->TokenToId("<think>").value()));
  EXPECT_EQ(tokenizer->vocab_size(), tokenizer->TokenToId("</think>").value() + 1);
  EXPECT_EQ(tokenizer->TokenToId("no such token"), std::nullopt);
  for (const TokenId id : {-1, -2147483647, tokenizer->vocab_size(), 2147483647}) {
    EXPECT_FALSE(tokenizer->IsToken(id));
    EXPECT_FALSE(tokenizer->IsSpecial(id));
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_EQ(tokenizer->Decode({id}, false), "");
  }
}

// Each would take minutes to days if any stage were quadratic.
TEST(TokenizerTest, PathologicalMegabyteIsNotQuadratic) {
  constexpr size_t kBytes = 1 << 20;
  const auto tokenizer = LoadTestTokenizer("qwen2");
  for (const std::string unit :
       {"a", " ", "\n", "\t ", "\U0001F600", "\u0E01\u0E32\u0E23", "1\u0662", "!?", "\u0301\u0316",
        "<|im_start", "<|im_start|>", "<th", "'s", "\U00031350"}) {
    SCOPED_TRACE(unit);
    std::string text;
    while (text.size() < kBytes) text += unit;
    const auto ids = tokenizer->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    const std::string decoded = tokenizer->Decode(*ids, false);
    EXPECT_TRUE(decoded == text || unit == "\u0301\u0316");  // NFC sorts those
    EXPECT_EQ(decoded.size(), text.size());
  }
}

TEST(TokenizerTest, ThreadsShareOne) {
  const auto tokenizer = LoadTestTokenizer("llama3");
  const std::vector<std::string> corpus = TestCorpus();
  std::vector<std::vector<TokenId>> alone;
  for (const std::string& text : corpus) alone.push_back(tokenizer->Encode(text).value());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < corpus.size(); ++i) {
        if (tokenizer->Encode(corpus[i]).value() != alone[i]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace baton
