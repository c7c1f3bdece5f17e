// Tests every tokenisation step that uses Unicode tables instead of a pattern, with every
// character.

#include <functional>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/tokenizer_testdata.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

// A step to test: puts the character `c` into one or more texts, runs the step on them, and calls
// `result` for each text that the step returns.
using Step = std::function<void(const std::string& c, std::function<void(absl::string_view)>)>;

Step NormalizerStep(const std::string& json) {
  const std::shared_ptr<const JsonFile> file = JsonFile::Parse(json, "step").value();
  const auto normalizer = std::make_shared<Normalizer>(Normalizer::FromJson(file->root()).value());
  return [normalizer](const std::string& c, std::function<void(absl::string_view)> result) {
    EncodeStop never;
    std::string buffer;
    result(
        normalizer->Normalize(absl::StrCat(c, "a", c, "\u0301\u0323", c), &never, &buffer).value());
  };
}

Step PreTokenizerStep(const std::string& json) {
  const std::shared_ptr<const JsonFile> file = JsonFile::Parse(json, "step").value();
  const auto splitter =
      std::make_shared<PreTokenizer>(PreTokenizer::FromJson(file->root()).value());
  return [splitter](const std::string& c, std::function<void(absl::string_view)> result) {
    const std::string text = absl::StrCat("a", c, "a", c);
    ASSERT_TRUE(splitter
                    ->Split(text, true,
                            [&](absl::string_view word) {
                              result(word);
                              return absl::OkStatus();
                            })
                    .ok());
  };
}

TEST(CharacterTest, GoldenEveryCharacterIsWhatTheReferenceTakesItFor) {
  std::map<std::string, Step> steps;
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD"})
    steps[form] = NormalizerStep(absl::StrCat(R"({"type": ")", form, "\"}"));
  steps["Strip"] = NormalizerStep(R"({"type": "Strip", "strip_left": true, "strip_right": true})");
  steps["Digits"] = PreTokenizerStep(R"({"type": "Digits", "individual_digits": true})");
  steps["Punctuation"] = PreTokenizerStep(R"({"type": "Punctuation"})");
  steps["WhitespaceSplit"] = PreTokenizerStep(R"({"type": "WhitespaceSplit"})");

  std::istringstream golden(ReadTestData("characters.txt"));
  std::string name, expected;
  char32_t first = 0;
  int lines = 0;
  for (uint32_t begin = 0; golden >> name >> std::hex >> begin >> expected; ++lines) {
    const Step& step = steps.at(name);
    first = begin;
    uint64_t hash = kFnvStart;
    for (char32_t code = first; code < first + 0x1000; ++code) {
      if (code >= 0xD800 && code < 0xE000) continue;
      std::string c;
      AppendUtf8(code, &c);
      step(c, [&hash](absl::string_view text) { hash = Fnv(Fnv(hash, text), "\xFF"); });
    }
    EXPECT_EQ(absl::StrFormat("%08x", hash >> 32), expected)
        << name << " of U+" << std::hex << uint32_t{first} << " and on";
  }
  EXPECT_EQ(lines, 8 * 0x50);
}

}  // namespace
}  // namespace baton
