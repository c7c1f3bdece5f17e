#include "router/model_text.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/scratch_folder.h"
#include "common/model/source/gguf_bytes.h"

namespace baton {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kTestData[] = BATON_SOURCE_DIR "/common/tokenizer/testdata/";

json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

// The settings of a tiny model of a family.
void SetModel(const std::string& family, GgufBytes* bytes, uint32_t vocab = 4) {
  bytes->SetText("general.architecture", family)
      .SetU32(family + ".block_count", 1)
      .SetU32(family + ".embedding_length", 8)
      .SetU32(family + ".feed_forward_length", 16)
      .SetU32(family + ".attention.head_count", 2)
      .SetU32(family + ".vocab_size", vocab)
      .SetU32(family + ".context_length", 64)
      .SetF32(family + ".attention.layer_norm_rms_epsilon", 1e-5f);
}

// Adds the tokeniser of a tokenizer.json, as convert_hf_to_gguf.py of llama.cpp writes it.
void SetTokenizer(const json& file, const std::string& model, const std::string& pre,
                  GgufBytes* bytes) {
  std::vector<std::string> tokens, kinds, merges;
  const auto put = [&](size_t id, const std::string& text, int32_t kind) {
    if (tokens.size() <= id) {
      tokens.resize(id + 1, GgufBytes::Text("[PAD]"));
      kinds.resize(id + 1, GgufBytes::Raw(int32_t{5}));
    }
    tokens[id] = GgufBytes::Text(text);
    kinds[id] = GgufBytes::Raw(kind);
  };
  for (const auto& [text, id] : file["model"]["vocab"].items()) put(id, text, 1);
  for (const json& token : file["added_tokens"]) {
    put(token["id"], token["content"], token["special"] ? 3 : 4);
  }
  for (const json& merge : file["model"]["merges"]) {
    merges.push_back(GgufBytes::Text(
        merge.is_string()
            ? merge.get<std::string>()
            : absl::StrCat(merge[0].get<std::string>(), " ", merge[1].get<std::string>())));
  }
  bytes->SetText("tokenizer.ggml.model", model)
      .SetText("tokenizer.ggml.pre", pre)
      .SetList("tokenizer.ggml.tokens", GgufBytes::kText, tokens)
      .SetList("tokenizer.ggml.token_type", GgufBytes::kI32, kinds)
      .SetList("tokenizer.ggml.merges", GgufBytes::kText, merges);
}

// Returns the steps before ByteLevel in the published tokenizer.json of a DeepSeek model: Splits at
// these patterns, and Digits.
json DeepseekSteps(const std::vector<std::string>& patterns) {
  json steps = json::array();
  for (const std::string& pattern : patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

class ModelTextTest : public testing::Test {
 protected:
  absl::StatusOr<ModelText> Open(const GgufBytes& bytes) {
    folder_.Write("a-model.gguf", bytes.Build());
    return OpenModelText(folder_.File("a-model.gguf"), /*defaults=*/true, "auto");
  }

  ScratchFolder folder_;
};

TEST_F(ModelTextTest, IdsOfAGgufFileAreThoseOfTheFileItWasMadeFrom) {
  std::vector<std::string> corpus;
  std::ifstream lines(absl::StrCat(kTestData, "corpus.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json text = json::parse(line);
    std::string sample = text.is_string() ? text.get<std::string>() : "";
    for (int i = 0; text.is_array() && i < text[1]; ++i) sample += text[0].get<std::string>();
    corpus.push_back(std::move(sample));
  }
  ASSERT_GT(corpus.size(), 100u);
  const std::vector<std::pair<std::string, std::string>> forms = {
      {"gpt2", "gpt-2"},
      {"smollm", "smollm"},
      {"qwen2", "qwen2"},
      {"llama3", "llama-bpe"},
      {"deepseek", "deepseek-v3"},
      {"deepseek_coder", "deepseek-coder"},
      {"deepseek_coder", "deepseek-llm"},
      {"o200k", "gpt-4o"},
      {"tekken", "tekken"},
      {"falcon", "falcon"}};
  for (const auto& [form, pre] : forms) {
    SCOPED_TRACE(pre);
    const std::string path = absl::StrCat(kTestData, form, ".tokenizer.json");
    json file = ReadJson(path);
    // The file of this form has the patterns of both models.
    if (pre == "deepseek-coder") {
      file["pre_tokenizer"] =
          DeepseekSteps({"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+"});
    }
    if (pre == "deepseek-llm") {
      file["pre_tokenizer"] =
          DeepseekSteps({"[\r\n]",
                         "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-"
                         "ჅᎠ-"
                         "Ᏽᏸ-"
                         "ᏽᲐ-ᲺᲽ-"
                         "Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-"
                         "ῼℂℇℊ-"
                         "ℓℕℙ-"
                         "ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-"
                         "ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-"
                         "𐑏𐒰-"
                         "𐓓𐓘-"
                         "𐓻𐲀-"
                         "𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
                         "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", "[一-龥ࠀ-一가-퟿]+"});
    }
    const auto expected = Tokenizer::FromJson(file.dump(), path);
    ASSERT_TRUE(expected.ok()) << expected.status();
    GgufBytes bytes;
    SetModel("llama", &bytes);
    SetTokenizer(file, "gpt2", pre, &bytes);
    // The one token before a text, if there is one, is BOS.
    const auto around = (*expected)->Encode("").value();
    bytes.Set("tokenizer.ggml.add_bos_token", GgufBytes::kBool,
              GgufBytes::Raw(static_cast<uint8_t>(!around.empty())));
    if (!around.empty()) {
      bytes.SetU32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(around[0]));
    }
    const auto text = Open(bytes);
    ASSERT_TRUE(text.ok()) << text.status();
    for (const std::string& sample : corpus) {
      for (const bool special : {false, true}) {
        const EncodeOptions options = {.parse_special = special};
        const auto ids = (*expected)->Encode(sample, options);
        const auto ours = text->tokenizer->Encode(sample, options);
        ASSERT_EQ(ids.ok(), ours.ok()) << sample;
        if (!ids.ok()) continue;
        ASSERT_EQ(*ids, *ours) << sample;
        ASSERT_EQ((*expected)->Decode(*ids, false), text->tokenizer->Decode(*ids, false));
      }
    }
  }
}

// Qwen's vocabulary has </s> as a word like any other, which llama.cpp takes for the end.
TEST_F(ModelTextTest, AWordEndsNothing) {
  json vocab = {{"<", 0}, {"/", 1}, {"s", 2}, {">", 3}, {"</", 4}, {"</s", 5}, {"</s>", 6}};
  for (const bool added : {false, true}) {
    json tokens = json::array();
    if (added) tokens.push_back({{"id", 6}, {"content", "</s>"}, {"special", true}});
    GgufBytes bytes;
    SetModel("qwen2", &bytes, 300);
    SetTokenizer(json{{"model", {{"vocab", vocab}, {"merges", {"< /", "</ s", "</s >"}}}},
                      {"added_tokens", tokens}},
                 "gpt2", "qwen2", &bytes);
    const auto text = Open(bytes);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->config.generation.end_tokens.size(), added ? 1u : 0u);
    const auto ids = text->tokenizer->Encode("</s>", {.parse_special = true});
    EXPECT_EQ(ids.value(), added ? std::vector<TokenId>{6} : std::vector<TokenId>({4, 2, 3}));
  }
}

// The merges would join all of " 1234", and "!" with what is behind it.
TEST_F(ModelTextTest, TheNameSaysWhereWordsAreCut) {
  const std::vector<std::string> tokens = {"Ġ", "1",  "2",   "3",    "4",     "!",
                                           "a", "12", "123", "1234", "Ġ1234", "!a"};
  json vocab = json::object();
  for (size_t id = 0; id < tokens.size(); ++id) vocab[tokens[id]] = id;
  const json file = {
      {"model", {{"vocab", vocab}, {"merges", {"1 2", "12 3", "123 4", "Ġ 1234", "! a"}}}},
      {"added_tokens", json::array()}};
  const auto texts = [&](const std::string& pre) {
    GgufBytes bytes;
    SetModel("llama", &bytes);
    SetTokenizer(file, "gpt2", pre, &bytes);
    const auto text = Open(bytes);
    EXPECT_TRUE(text.ok()) << text.status();
    if (!text.ok()) return std::string();
    EXPECT_EQ(text->config.warnings.size(), pre.empty() ? 1u : 0u);
    if (pre.empty()) {
      EXPECT_THAT(text->config.warnings[0], HasSubstr("has no setting tokenizer.ggml.pre"));
    }
    std::string cut;
    const std::vector<TokenId> ids = text->tokenizer->Encode(" 1234!a").value();
    for (const TokenId id : ids) {
      absl::StrAppend(&cut, cut.empty() ? "" : " ", tokens[id]);
    }
    return cut;
  };
  EXPECT_EQ(texts("gpt-2"), "Ġ1234 ! a");
  EXPECT_EQ(texts("qwen2"), "Ġ 1 2 3 4 !a");
  EXPECT_EQ(texts("deepseek-llm"), "Ġ 1 2 3 4 ! a");
  EXPECT_EQ(texts("default"), "Ġ 123 4 ! a");
  // As in llama.cpp.
  EXPECT_EQ(texts(""), "Ġ 123 4 ! a");
}

// A tokeniser of SentencePiece: byte tokens, and these pieces with their scores.
class Pieces {
 public:
  Pieces() {
    Add("<unk>", 2, 0);
    Add("<s>", 3, 0);
    Add("</s>", 3, 0);
    for (int byte = 0; byte < 256; ++byte) Add(absl::StrFormat("<0x%02X>", byte), 6, 0);
  }
  // Returns the id.
  TokenId Add(const std::string& text, int32_t kind, float score) {
    tokens_.push_back(GgufBytes::Text(text));
    kinds_.push_back(GgufBytes::Raw(kind));
    scores_.push_back(GgufBytes::Raw(score));
    return static_cast<TokenId>(tokens_.size() - 1);
  }
  void Set(GgufBytes* bytes) const {
    bytes->SetText("tokenizer.ggml.model", "llama")
        .SetList("tokenizer.ggml.tokens", GgufBytes::kText, tokens_)
        .SetList("tokenizer.ggml.token_type", GgufBytes::kI32, kinds_)
        .SetList("tokenizer.ggml.scores", GgufBytes::kF32, scores_)
        .SetU32("tokenizer.ggml.unknown_token_id", 0);
  }

 private:
  std::vector<std::string> tokens_, kinds_, scores_;
};

TEST_F(ModelTextTest, MergesOfScoresAreThoseOfTransformers) {
  GgufBytes bytes;
  SetModel("llama", &bytes);
  Pieces pieces;
  const TokenId space = pieces.Add("\u2581", 1, -9);
  pieces.Add("a", 1, -9);
  pieces.Add("b", 1, -9);
  const TokenId c = pieces.Add("c", 1, -9);
  // "ab" is better than "bc", so "abc" is "ab" and "c".
  const TokenId bc = pieces.Add("bc", 1, -2);
  pieces.Add("ab", 1, -1);
  const TokenId ab = pieces.Add("\u2581ab", 1, -3);
  pieces.Set(&bytes);
  bytes.SetU32("tokenizer.ggml.bos_token_id", 1)
      .SetU32("tokenizer.ggml.eos_token_id", 2)
      .SetText("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}");
  const auto text = Open(bytes);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->name, "a-model");
  EXPECT_THAT(text->config.generation.end_tokens, testing::ElementsAre(2));
  const auto ids = [&](const std::string& of) { return text->tokenizer->Encode(of).value(); };
  EXPECT_THAT(ids("abc"), testing::ElementsAre(1, ab, c));
  EXPECT_THAT(ids("bc\n"), testing::ElementsAre(1, space, bc, 3 + '\n'));
  EXPECT_EQ(text->tokenizer->Decode({ab, c}, false), "abc");
  Chat chat;
  chat.messages.push_back({});
  chat.messages[0].role = "user";
  chat.messages[0].content = "hi";
  const auto prompt = text->chat->Render(chat, {});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->text, "<s>hi");
}

// Without ids of BOS and EOS, SentencePiece's own count. Tokens of Phi-3 take the white space
// behind them, and a token that ends turns is special whatever its type says.
TEST_F(ModelTextTest, WhatTheFileLeavesOutIsAsInLlamaCpp) {
  for (const std::string family : {"phi3", "llama"}) {
    GgufBytes bytes;
    SetModel(family, &bytes);
    Pieces pieces;
    const TokenId space = pieces.Add("\u2581", 1, -9), a = pieces.Add("a", 1, -9);
    const TokenId user = pieces.Add("<|user|>", 4, 0), end = pieces.Add("<|end|>", 4, 0);
    pieces.Set(&bytes);
    const auto text = Open(bytes);
    ASSERT_TRUE(text.ok()) << text.status();
    const auto ids = text->tokenizer->Encode("<|user|>\na", {.parse_special = true}).value();
    if (family == "phi3") {
      EXPECT_THAT(ids, testing::ElementsAre(1, user, space, a));
    } else {
      EXPECT_THAT(ids, testing::ElementsAre(1, user, space, 3 + '\n', a));
    }
    EXPECT_FALSE(text->tokenizer->IsSpecial(user));
    EXPECT_TRUE(text->tokenizer->IsSpecial(end));
    EXPECT_THAT(text->config.generation.end_tokens, testing::ElementsAre(2));
  }
}

// As in llama.cpp, an id that the vocabulary does not have ends nothing.
TEST_F(ModelTextTest, EndTokensThatAreNoneAreNamedInAWarning) {
  for (const uint32_t id : {300u, 0xffffffffu}) {
    GgufBytes bytes;
    SetModel("llama", &bytes, 300);
    Pieces pieces;
    pieces.Set(&bytes);
    bytes.SetU32("tokenizer.ggml.eos_token_id", id).SetU32("tokenizer.ggml.eot_token_id", 7);
    const auto text = Open(bytes);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(text->config.generation.end_tokens, testing::ElementsAre(7, 2));
    EXPECT_THAT(
        text->config.warnings,
        testing::ElementsAre(HasSubstr(absl::StrCat("tokenizer.ggml.eos_token_id is ", id,
                                                    ", and the vocabulary has 300 tokens"))));
  }
}

// <|end|> ends an answer, unless other tokens do and it ends a message within the answer.
TEST_F(ModelTextTest, TheEndOfAMessageIsNotTheEndOfTheAnswer) {
  const std::vector<std::pair<std::vector<std::string>, bool>> cases = {
      {{}, true},
      {{"<|return|>"}, true},
      {{"<|call|>"}, true},
      {{"<|return|>", "<|call|>"}, false},
      {{"<|flush|>", "<|calls|>"}, false}};
  for (const auto& [others, ends] : cases) {
    GgufBytes bytes;
    SetModel("llama", &bytes, 300);
    Pieces pieces;
    const TokenId end = pieces.Add("<|end|>", 4, 0);
    std::vector<TokenId> expected = {2};
    if (ends) expected.push_back(end);
    for (const std::string& other : others) expected.push_back(pieces.Add(other, 3, 0));
    pieces.Set(&bytes);
    bytes.SetU32("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(end));
    const auto text = Open(bytes);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(text->config.generation.end_tokens, testing::UnorderedElementsAreArray(expected));
    EXPECT_EQ(text->tokenizer->IsSpecial(end), ends);
  }
}

TEST_F(ModelTextTest, FilesThatCanNotBeServedAreRefused) {
  const auto refused = [&](const GgufBytes& bytes, const std::string& why) {
    const auto text = Open(bytes);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(std::string(text.status().message()), HasSubstr(why));
  };
  GgufBytes other;
  other.SetText("general.architecture", "mamba");
  refused(other, "setting general.architecture is \"mamba\"; expected one of llama, qwen2, qwen3");
  const auto with_tokenizer = [](const std::string& model, const std::string& pre) {
    GgufBytes bytes;
    SetModel("llama", &bytes);
    SetTokenizer(json{{"model", {{"vocab", {{"a", 0}}}, {"merges", json::array()}}},
                      {"added_tokens", json::array()}},
                 model, pre, &bytes);
    bytes.SetU32("tokenizer.ggml.bos_token_id", 0).SetU32("tokenizer.ggml.unknown_token_id", 0);
    return bytes;
  };
  refused(with_tokenizer("bert", "x"), "tokenizer.ggml.model is \"bert\"; expected gpt2 or llama");
  refused(with_tokenizer("gpt2", "of-tomorrow"),
          "tokenizer.ggml.pre is \"of-tomorrow\"; expected one of gpt-2, smollm");
  refused(with_tokenizer("llama", "default"), "has no setting tokenizer.ggml.scores");
  GgufBytes odd;
  SetModel("llama", &odd);
  Pieces pieces;
  pieces.Add("a\xf0", 1, 0);
  pieces.Set(&odd);
  refused(odd, "expected texts in UTF-8 of at most 4096 bytes; token 259 is none");
  GgufBytes none;
  SetModel("llama", &none);
  refused(none, "has no setting tokenizer.ggml.model");
}

}  // namespace
}  // namespace baton
