// Tests how Tokenizer treats files that are broken, hostile or unsupported.

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/tokenizer_testdata.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::Status Load(absl::string_view text) { return Tokenizer::FromJson(text, "t.json").status(); }

json TestJson(const std::string& name = "llama3") {
  return json::parse(ReadTestData(name + ".tokenizer.json"));
}

// Applies `change` to the llama3 file, checks that the result is refused, and returns the message.
std::string Refusal(const std::function<void(json&)>& change) {
  json file = TestJson();
  change(file);
  const absl::Status status = Load(file.dump());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith("t.json: "));
  return std::string(status.message());
}

TEST(TokenizerFileTest, FileThatIsNotThereOrCannotBeRead) {
  EXPECT_EQ(Tokenizer::FromFile("/nonexistent/tokenizer.json").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Tokenizer::FromFile("/").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(
      Tokenizer::FromFile(BATON_SOURCE_DIR "/common/tokenizer/testdata/gpt2.tokenizer.json").ok());
}

TEST(TokenizerFileTest, TextThatIsNoJson) {
  EXPECT_EQ(Load(absl::string_view()).message(),
            "t.json: is empty; expected a JSON text, fetch it again");
  EXPECT_THAT(std::string(Load(" ").message()), StartsWith("t.json: is not valid JSON (1 bytes)"));
  EXPECT_THAT(std::string(Load("\xEF\xBB\xBF{}").message()), HasSubstr("byte order mark"));
  EXPECT_THAT(std::string(Load("{\"a\": \"\xFF\"}").message()), HasSubstr("UTF"));
  EXPECT_THAT(std::string(Load(std::string(100000, '[')).message()),
              HasSubstr("is not valid JSON"));
  const std::string whole = ReadTestData("flags.tokenizer.json");
  for (size_t size = 0; size + 2 < whole.size(); size += 97) {
    EXPECT_EQ(Load(whole.substr(0, size)).code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

TEST(TokenizerFileTest, WrongTypesAreNamedWithTheirPlace) {
  EXPECT_EQ(Load("[]").message(), "t.json: $: found an array, expected an object");
  EXPECT_EQ(Load("{}").message(), "t.json: $: member \"model\" is missing");
  EXPECT_THAT(Refusal([](json& j) { j["model"] = 3; }),
              HasSubstr("$.model: found 3, expected an object"));
  EXPECT_THAT(Refusal([](json& j) { j["model"]["vocab"] = json::array(); }),
              HasSubstr("$.model.vocab: found an array"));
  EXPECT_THAT(Refusal([](json& j) { j["model"]["merges"] = "x"; }),
              HasSubstr("$.model.merges: found \"x\""));
  EXPECT_THAT(Refusal([](json& j) { j["model"].erase("merges"); }),
              HasSubstr("\"merges\" is missing"));
  EXPECT_THAT(Refusal([](json& j) { j["model"]["ignore_merges"] = "yes"; }),
              HasSubstr("$.model.ignore_merges: found \"yes\", expected true or false"));
  EXPECT_THAT(Refusal([](json& j) { j["added_tokens"] = 1; }),
              HasSubstr("$.added_tokens: found 1, expected an array"));
  EXPECT_THAT(Refusal([](json& j) { j["added_tokens"][3].erase("content"); }),
              HasSubstr("$.added_tokens[3]: member \"content\" is missing"));
  EXPECT_THAT(Refusal([](json& j) { j["added_tokens"][3]["special"] = 1; }),
              HasSubstr("$.added_tokens[3].special: found 1"));
  EXPECT_THAT(
      Refusal([](json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = "x"; }),
      HasSubstr("$.pre_tokenizer.pretokenizers[0].pattern: found \"x\", expected an object"));
}

TEST(TokenizerFileTest, WhatIsUnsupportedIsNamedWithWhatIs) {
  EXPECT_THAT(Refusal([](json& j) { j["model"]["type"] = "Unigram"; }),
              HasSubstr("$.model.type is \"Unigram\"; supported: \"BPE\""));
  EXPECT_THAT(Refusal([](json& j) { j["model"]["dropout"] = 0.1; }),
              HasSubstr("$.model.dropout is 0.1; supported: null or 0"));
  EXPECT_THAT(Refusal([](json& j) { j["model"]["continuing_subword_prefix"] = "##"; }),
              HasSubstr("$.model.continuing_subword_prefix is \"##\""));
  EXPECT_THAT(Refusal([](json& j) {
                j["normalizer"] = {{"type", "Lowercase"}};
              }),
              HasSubstr("$.normalizer.type is \"Lowercase\"; supported: \"NFC\""));
  EXPECT_THAT(
      Refusal([](json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Merged"; }),
      HasSubstr("behavior is \"Merged\"; supported: \"Isolated\", \"Removed\""));
  EXPECT_THAT(Refusal([](json& j) {
                j["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
              }),
              HasSubstr("$.pre_tokenizer.type is \"BertPreTokenizer\"; supported: \"Split\""));
  EXPECT_THAT(Refusal([](json& j) { j["decoder"]["type"] = "WordPiece"; }),
              HasSubstr("$.decoder.type is \"WordPiece\"; supported: \"ByteLevel\""));
  EXPECT_THAT(Refusal([](json& j) { j["decoder"] = nullptr; }),
              HasSubstr("$.decoder: found null, expected an object"));
  EXPECT_THAT(Refusal([](json& j) { j["post_processor"]["processors"][1]["type"] = "Bert"; }),
              HasSubstr("$.post_processor.processors[1].type is \"Bert\"; supported: "));
  EXPECT_THAT(Refusal([](json& j) {
                j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a(?<n>b)";
              }),
              HasSubstr("$.pre_tokenizer.pretokenizers[0].pattern.Regex: regular expression, byte "
                        "2: a group of this kind"));
}

// Returns the warnings of a file that is loaded.
std::vector<std::string> WarningsOf(const json& file) {
  const auto tokenizer = Tokenizer::FromJson(file.dump(), "t.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? (*tokenizer)->warnings() : std::vector<std::string>();
}

TEST(TokenizerFileTest, CharactersWithoutATokenAreWarnedOf) {
  EXPECT_THAT(WarningsOf(TestJson()), testing::IsEmpty());
  json no_pre_tokenizer = TestJson();
  no_pre_tokenizer["pre_tokenizer"] = nullptr;
  EXPECT_THAT(WarningsOf(no_pre_tokenizer),
              testing::ElementsAre(HasSubstr("t.json: the vocabulary has no token for some "
                                             "characters, and there is no unk_token: texts lose")));
  json file = TestJson("llama2");
  file["model"]["vocab"].erase("<0xE4>");
  EXPECT_THAT(WarningsOf(file), testing::IsEmpty());  // such characters become the unknown token
  file["model"]["unk_token"] = "<nothing>";
  EXPECT_THAT(std::string(Load(file.dump()).message()),
              HasSubstr("$.model.unk_token: the token for unknown characters is not in the"));
  file["model"].erase("unk_token");
  EXPECT_THAT(WarningsOf(file), testing::ElementsAre(HasSubstr("no token for some characters")));
  file["model"]["vocab"]["<0xE4>"] = 5000;
  EXPECT_THAT(WarningsOf(file), testing::IsEmpty());
}

// Applies `change` to the tokenizer file `name`, checks that the result is refused, and returns the
// message. Files: llama2 has a normalizer with the steps Prepend and Replace, and a decoder with
// the steps Replace, ByteFallback, Fuse and Strip. mistral3 has Metaspace.
std::string RefusalOf(const std::string& name, const std::function<void(json&)>& change) {
  json file = TestJson(name);
  change(file);
  const absl::Status status = Load(file.dump());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(TokenizerFileTest, StepsMustBeWhole) {
  const auto normalizer = [](int i, const std::function<void(json&)>& edit) {
    return RefusalOf("llama2", [&](json& j) { edit(j["normalizer"]["normalizers"][i]); });
  };
  EXPECT_THAT(normalizer(0, [](json& n) { n.erase("prepend"); }),
              HasSubstr("$.normalizer.normalizers[0]: member \"prepend\" is missing"));
  EXPECT_THAT(normalizer(1, [](json& n) { n.erase("content"); }),
              HasSubstr("\"content\" is missing"));
  EXPECT_THAT(normalizer(1, [](json& n) { n["pattern"] = json::object(); }),
              HasSubstr("either \"Regex\" or \"String\""));
  EXPECT_THAT(normalizer(1,
                         [](json& n) {
                           n["pattern"] = {{"Regex", "("}};
                         }),
              HasSubstr("pattern.Regex: regular expression, byte "));
  EXPECT_THAT(normalizer(1,
                         [](json& n) {
                           n = {{"type", "Strip"}, {"strip_left", true}};
                         }),
              HasSubstr("\"strip_right\" is missing"));

  const auto decoder = [](int i, const std::function<void(json&)>& edit) {
    return RefusalOf("llama2", [&](json& j) { edit(j["decoder"]["decoders"][i]); });
  };
  EXPECT_THAT(
      decoder(0,
              [](json& d) {
                d["pattern"] = {{"Regex", "a"}};
              }),
      HasSubstr("$.decoder.decoders[0].pattern: a Replace decoder with a Regex; supported"));
  EXPECT_THAT(decoder(0, [](json& d) { d["pattern"]["String"] = ""; }), HasSubstr("is empty"));
  EXPECT_THAT(decoder(0, [](json& d) { d["content"] = std::string(600, 'x'); }),
              HasSubstr("has 600 bytes; supported: at most 512"));
  EXPECT_THAT(decoder(3, [](json& d) { d["content"] = "ab"; }),
              HasSubstr("found \"ab\", expected a string of one character"));
  EXPECT_THAT(decoder(3, [](json& d) { d["start"] = -1; }),
              HasSubstr("$.decoder.decoders[3].start: found -1, expected an integer from 0 to"));
  EXPECT_THAT(decoder(3,
                      [](json& d) {
                        d = {{"type", "ByteLevel"}};
                      }),
              HasSubstr("after ByteLevel or Fuse only \"Strip\" and \"Metaspace\""));
  EXPECT_THAT(decoder(3,
                      [](json& d) {
                        d = {{"type", "ByteFallback"}};
                      }),
              HasSubstr("or Fuse only"));
  EXPECT_THAT(decoder(2, [](json& d) { d = {{"type", "ByteFallback"}}; }), HasSubstr("one \"Byte"));
  EXPECT_THAT(RefusalOf("llama2",
                        [](json& j) {
                          std::swap(j["decoder"]["decoders"][0], j["decoder"]["decoders"][3]);
                        }),
              HasSubstr("$.decoder.decoders[3].type is \"Replace\"; supported: after"));

  const auto metaspace = [](const std::function<void(json&)>& edit) {
    return RefusalOf("mistral3", [&](json& j) { edit(j["pre_tokenizer"]); });
  };
  EXPECT_THAT(metaspace([](json& p) { p["replacement"] = ""; }),
              HasSubstr("$.pre_tokenizer.replacement: found \"\", expected a string of one char"));
  EXPECT_THAT(metaspace([](json& p) { p["prepend_scheme"] = "last"; }),
              HasSubstr("is \"last\"; supported: \"always\", \"first\", \"never\""));
  EXPECT_THAT(metaspace([](json& p) { p["add_prefix_space"] = false; }),
              HasSubstr("add_prefix_space is false, but prepend_scheme is not \"never\""));
  EXPECT_THAT(metaspace([](json& p) {
                p = {{"type", "Sequence"},
                     {"pretokenizers", {{{"type", "Metaspace"}, {"replacement", "_"}}, p}}};
              }),
              HasSubstr("\"first\" after another step that changes the text"));
  EXPECT_THAT(
      RefusalOf("mistral3",
                [](json& j) {
                  j["normalizer"] = {{"type", "NFC"}};
                }),
      HasSubstr("$.normalizer: supported before a Metaspace with prepend_scheme \"first\""));
  EXPECT_THAT(
      Refusal([](json& j) {
        j["pre_tokenizer"]["pretokenizers"].push_back(j["pre_tokenizer"]["pretokenizers"][1]);
      }),
      HasSubstr("$.pre_tokenizer.pretokenizers[2].type is \"ByteLevel\"; supported: after"));
}

TEST(TokenizerFileTest, VocabularyMustBeConsistent) {
  EXPECT_THAT(Refusal([](json& j) { j["model"]["vocab"]["Ġthe"] = -1; }),
              HasSubstr("token \"Ġthe\" has id -1"));
  EXPECT_THAT(Refusal([](json& j) { j["model"]["vocab"]["Ġthe"] = 1.5; }),
              HasSubstr("token \"Ġthe\" has id 1.5"));
  EXPECT_THAT(Refusal([](json& j) { j["model"]["vocab"]["Ġthe"] = 18446744073709551615u; }),
              HasSubstr("expected an integer from 0 to 4194303"));
  EXPECT_THAT(Refusal([](json& j) { j["model"]["vocab"]["Ġthe"] = 2147483647; }),
              HasSubstr("expected an integer from 0 to 4194303"));
  EXPECT_THAT(Refusal([](json& j) { j["model"]["vocab"]["new"] = 5; }),
              HasSubstr("id 5 is given to"));
  EXPECT_THAT(
      Refusal([](json& j) { j["model"]["vocab"].erase("é"); }),
      HasSubstr("$.added_tokens[0]: id 1999 is given to \"<|begin_of_text|>\" here and to"));
  std::string twice = ReadTestData("llama3.tokenizer.json");
  twice.insert(twice.find("\"vocab\":{") + 9, "\"!\":0,");
  EXPECT_THAT(std::string(Load(twice).message()), HasSubstr("token \"!\" occurs twice"));
}

// A byte-level vocabulary that lacks the byte of "b". The ids are those that tokenizers 0.21.4
// gives.
TEST(TokenizerFileTest, BytesWithoutATokenAreDroppedFromTexts) {
  json file = {{"model",
                {{"type", "BPE"},
                 {"vocab", {{"a", 0}, {"c", 1}, {"ac", 2}, {"Ġ", 3}}},
                 {"merges", {"a c"}}}},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
               {"decoder", {{"type", "ByteLevel"}}}};
  EXPECT_THAT(WarningsOf(file), testing::ElementsAre(HasSubstr(
                                    "the vocabulary has no token for 253 of the 256 bytes, "
                                    "and there is no unk_token: texts lose them")));
  const auto tokenizer = *Tokenizer::FromJson(file.dump(), "t.json");
  const auto ids = [](const Tokenizer& of, absl::string_view text, size_t dropped) {
    size_t bytes = 0;
    const auto got = of.Encode(text, {.add_special = false, .dropped_bytes = &bytes});
    EXPECT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(bytes, dropped) << text;
    return *got;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(ids(*tokenizer, "ac", 0), (Ids{2}));
  EXPECT_EQ(ids(*tokenizer, "abc", 1), (Ids{2}));  // "a" and "c" merge
  EXPECT_EQ(ids(*tokenizer, "bbb", 3), (Ids{}));
  EXPECT_EQ(ids(*tokenizer, "a \u00e9c", 2), (Ids{0, 3, 1}));
  const std::string long_text = std::string(50000, 'b') + "ac" + std::string(50000, 'b');
  EXPECT_EQ(ids(*tokenizer, long_text, 100000), (Ids{2}));
  // An unk_token stands for each of them.
  file["model"]["unk_token"] = "Ġ";
  EXPECT_THAT(WarningsOf(file), testing::IsEmpty());
  EXPECT_EQ(ids(**Tokenizer::FromJson(file.dump(), "t.json"), "abc", 0), (Ids{0, 3, 1}));
}

TEST(TokenizerFileTest, MergesMustBeOfTokens) {
  const auto with_merge = [](json merge) {
    return [merge](json& j) { j["model"]["merges"][7] = merge; };
  };
  EXPECT_THAT(Refusal(with_merge({"qqq", "a"})),
              HasSubstr("$.model.merges[7]: merges \"qqq\" and \"a\", but \"qqq\" is not a token"));
  EXPECT_THAT(Refusal(with_merge("x qqq")), HasSubstr("\"qqq\" is not a token"));
  EXPECT_THAT(Refusal(with_merge("~ ~")), HasSubstr("but \"~~\" is not a token"));
  for (const json& merge : {json("a"), json("a b c"), json(""), json({"a"}), json({"a", "b", "c"}),
                            json({1, 2}), json(7), json(nullptr), json::object()}) {
    EXPECT_THAT(Refusal(with_merge(merge)), HasSubstr("$.model.merges[7]: found")) << merge;
  }
  EXPECT_THAT(Refusal(with_merge({"a", "<|eot_id|>"})),
              HasSubstr("is not a token"));  // an added token is not in the model's vocabulary
}

TEST(TokenizerFileTest, AddedTokensMustAgreeWithTheVocabulary) {
  json file = TestJson();
  file["added_tokens"][0]["id"] = 5;
  EXPECT_THAT(WarningsOf(file), testing::ElementsAre(HasSubstr(
                                    "t.json: added tokens have other ids than in the file, "
                                    "as the Hugging Face library numbers them: "
                                    "\"<|begin_of_text|>\" has 2000 and not 5")));
  EXPECT_EQ((*Tokenizer::FromJson(file.dump(), "t.json"))->TokenToId("<|begin_of_text|>"), 2000);
  file = TestJson();
  file["added_tokens"][0]["content"] = "!";
  EXPECT_THAT(WarningsOf(file), testing::ElementsAre(HasSubstr("\"!\" has 0 and not 2000")));
  EXPECT_THAT(Refusal([](json& j) { j["added_tokens"][0]["id"] = 1LL << 40; }),
              HasSubstr("expected an integer from 0 to"));
  EXPECT_THAT(Refusal([](json& j) { j["added_tokens"][0]["content"] = std::string(513, 'x'); }),
              HasSubstr("of 513 bytes"));
  EXPECT_THAT(Refusal([](json& j) { j["added_tokens"].clear(); }),
              HasSubstr("no token has id"));  // the template uses the id of a removed token
}

// The ids are those that tokenizers 0.21.4 gives.
TEST(TokenizerFileTest, AddedTokensAreNumberedBehindTheModel) {
  json vocab;
  for (int i = 0; i < 304; ++i) vocab[absl::StrCat("t", i)] = i;
  json file = {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}},
               {"added_tokens",
                {{{"id", 311}, {"content", "<x>"}, {"special", true}},
                 {{"id", 90}, {"content", "t90"}, {"special", true}},
                 {{"id", 300}, {"content", ""}},
                 {{"id", 313}, {"content", "<y>"}, {"special", true}}}},
               {"decoder", {{"type", "Fuse"}}}};
  const auto tokenizer = Tokenizer::FromJson(file.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->TokenToId("<x>"), 304);
  EXPECT_EQ((*tokenizer)->TokenToId("t90"), 90);
  EXPECT_EQ((*tokenizer)->TokenToId("<y>"), 305);
  EXPECT_EQ((*tokenizer)->vocab_size(), 306);
  const auto ids = (*tokenizer)->Encode("<y>t90<x>", {.parse_special = true, .add_special = false});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, (std::vector<TokenId>{305, 90, 304}));
}

TEST(TokenizerFileTest, TemplatesMustBeWhole) {
  const auto change = [](const std::function<void(json&)>& edit) {
    return [edit](json& j) { edit(j["post_processor"]["processors"][1]); };
  };
  EXPECT_THAT(Refusal(change([](json& t) { t["single"] = json::array(); })),
              HasSubstr("the text (Sequence A) is missing"));
  EXPECT_THAT(Refusal(change([](json& t) { t["single"][1]["Sequence"]["id"] = "B"; })),
              HasSubstr("is \"B\"; supported: \"A\""));
  EXPECT_THAT(Refusal(change([](json& t) { t["single"].push_back(t["single"][1]); })),
              HasSubstr("twice"));
  EXPECT_THAT(Refusal(change([](json& t) { t["single"][0]["SpecialToken"]["id"] = "x"; })),
              HasSubstr("\"x\" is missing"));
  EXPECT_THAT(
      Refusal(change([](json& t) { t["special_tokens"]["<|begin_of_text|>"]["ids"][0] = 99999; })),
      HasSubstr("no token has id 99999"));
  EXPECT_THAT(Refusal([](json& j) {
                j["post_processor"]["processors"].push_back(j["post_processor"]["processors"][1]);
              }),
              HasSubstr("second TemplateProcessing"));
}

TEST(TokenizerFileTest, SequencesWithoutEndAreRefused) {
  json pre = {{"type", "ByteLevel"}}, normalizer = {{"type", "NFC"}},
       post = {{"type", "ByteLevel"}}, decoder = {{"type", "ByteLevel"}};
  for (int i = 0; i < 100; ++i) {
    pre = {{"type", "Sequence"}, {"pretokenizers", {pre}}};
    normalizer = {{"type", "Sequence"}, {"normalizers", {normalizer}}};
    post = {{"type", "Sequence"}, {"processors", {post}}};
    decoder = {{"type", "Sequence"}, {"decoders", {decoder}}};
  }
  EXPECT_THAT(Refusal([&](json& j) { j["pre_tokenizer"] = pre; }), HasSubstr("too deeply"));
  EXPECT_THAT(Refusal([&](json& j) { j["normalizer"] = normalizer; }), HasSubstr("too deeply"));
  EXPECT_THAT(Refusal([&](json& j) { j["post_processor"] = post; }), HasSubstr("too deeply"));
  EXPECT_THAT(Refusal([&](json& j) { j["decoder"] = decoder; }), HasSubstr("too deeply"));
}

TEST(TokenizerFileTest, DecoderStepsThatMultiplyAreRefused) {
  const auto with_steps = [](int steps, int bytes) {
    json file = TestJson("llama2");
    json decoders = json::array();
    for (int i = 0; i < steps; ++i) {
      decoders.push_back({{"type", "Replace"},
                          {"pattern", {{"String", "a"}}},
                          {"content", std::string(bytes, 'a')}});
    }
    decoders.push_back({{"type", "ByteFallback"}});
    for (int i = 0; i < steps; ++i) decoders.push_back(decoders[i]);
    file["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    return Load(file.dump());
  };
  EXPECT_EQ(with_steps(2, 500).message(),
            "t.json: $.decoder.decoders[1]: the steps up to here make a text up to 250000 times as "
            "long; supported: at most 512 times");
  // The limit of 512 is for all steps of the decoder together. Here the step before ByteFallback
  // makes a text 23 times as long. The step after ByteFallback does so again: 23 * 23 = 529.
  EXPECT_EQ(with_steps(1, 23).message(),
            "t.json: $.decoder.decoders[2]: the steps up to here make a text up to 529 times as "
            "long; supported: at most 512 times");
  EXPECT_TRUE(with_steps(1, 22).ok());
  EXPECT_TRUE(with_steps(20, 1).ok());
}

TEST(TokenizerFileTest, TokenWhoseTextMayBecomeTooLongIsRefused) {
  const auto with_token = [](size_t bytes) {
    return [bytes](json& j) {
      j["decoder"] = {
          {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(512, 'a')}};
      j["model"]["vocab"][std::string(bytes, 'a')] = 5000;
      j["post_processor"] = nullptr;
    };
  };
  EXPECT_THAT(
      Refusal(with_token(2049)),
      HasSubstr(
          "$.decoder: may turn the token 5000 into 1049088 bytes; supported: at most 1048576"));
  json file = TestJson();
  with_token(2048)(file);
  EXPECT_TRUE(Load(file.dump()).ok());
}

// Changes bytes or JSON values at random. The result must be an error or a tokeniser that works.
class MutationTest : public testing::TestWithParam<std::string> {
 protected:
  static void TryOut(const std::string& text) {
    const auto tokenizer = Tokenizer::FromJson(text, "t.json");
    if (!tokenizer.ok()) {
      EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
      return;
    }
    const auto ids = (*tokenizer)
                         ->Encode("Hello w\u00f6rld's 123 <|im_start|>\n\n  \U0001F600 [MASK] ",
                                  {.parse_special = true});
    if (ids.ok()) (*tokenizer)->Decode(*ids, true);
  }
};
INSTANTIATE_TEST_SUITE_P(Tokenizers, MutationTest, testing::ValuesIn(TestTokenizers()),
                         [](const auto& info) { return info.param; });

TEST_P(MutationTest, ChangedBytesNeverCrash) {
  const std::string whole = ReadTestData(GetParam() + ".tokenizer.json");
  TestLcg rng(11);
  for (int round = 0; round < 60; ++round) {
    std::string text = whole;
    for (uint64_t changes = 1 + rng.Below(4); changes > 0; --changes) {
      // Half of the changes hit the first two kilobytes, which hold the structure of the file.
      const size_t at =
          rng.Below(rng.Below(2) == 0 ? text.size() : std::min<size_t>(text.size(), 2048));
      switch (rng.Below(4)) {
        case 0:
          text[at] = static_cast<char>(rng.Below(256));
          break;
        case 1:
          text.erase(at, 1 + rng.Below(8));
          break;
        case 2:
          text.insert(at, 1, "{}[]\",:0-9eE.\\ntf"[rng.Below(17)]);
          break;
        default:
          text.insert(at, text.substr(rng.Below(text.size()), rng.Below(40)));
          break;
      }
    }
    TryOut(text);
  }
}

TEST_P(MutationTest, ChangedValuesNeverCrash) {
  const json whole = TestJson(GetParam());
  const std::vector<json> odd = {nullptr,
                                 true,
                                 0,
                                 -1,
                                 1.5,
                                 1e300,
                                 4194303,
                                 4194304,
                                 18446744073709551615u,
                                 "",
                                 "a",
                                 "\\p{L}+",
                                 "(",
                                 "(?i:a)*",
                                 "\u00e9",
                                 std::string(600, 'x'),
                                 json::array(),
                                 json::object(),
                                 json::array({1, "a"}),
                                 "Sequence",
                                 "NFC",
                                 "ByteLevel",
                                 "Metaspace",
                                 "Strip",
                                 "ByteFallback",
                                 "Split",
                                 "Removed",
                                 "Ġ",
                                 "<|im_start|>"};
  TestLcg rng(12);
  for (int round = 0; round < 60; ++round) {
    json file = whole;
    for (uint64_t changes = 1 + rng.Below(3); changes > 0; --changes) {
      json* node = &file;
      while (node->is_structured() && !node->empty() && (node == &file || rng.Below(6) != 0)) {
        auto child = node->begin();
        std::advance(child, rng.Below(node->size()));
        node = &*child;
      }
      *node = odd[rng.Below(odd.size())];
    }
    TryOut(file.dump());
  }
}

}  // namespace
}  // namespace baton
