#include "common/tokenizer/tokenizer_testdata.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr absl::string_view kSnippets[] = {"'s",
                                           "'T",
                                           "'re",
                                           "'LL",
                                           "'d",
                                           " the",
                                           "Hello",
                                           "ing",
                                           " word",
                                           "word",
                                           "<|endoftext|>",
                                           "<|im_start|>",
                                           "<|eot_id|>",
                                           "<think>",
                                           "<|",
                                           "|>",
                                           "<ab>",
                                           "<abc>",
                                           "[MASK]",
                                           "[L]",
                                           "[R]",
                                           "<s>",
                                           "\r\n",
                                           "\n\n",
                                           "    ",
                                           "...",
                                           "e\u0301",
                                           "\u1100\u1161",
                                           "\u0627\u0654",
                                           "\U0001f468\u200d\U0001f469",
                                           "\U0001f1e9\U0001f1ea",
                                           "\ufe0f",
                                           "123",
                                           "don't",
                                           "CamelCase",
                                           "\u4eba\u5de5",
                                           "\uac00\u11a7",
                                           "cafe\u0301",
                                           "\u2581",
                                           "\u2581the",
                                           "<0x41>",
                                           "<unk>",
                                           "</s>",
                                           "[INST]",
                                           "<|end|>",
                                           "<\uff5cEOT\uff5c>",
                                           " of the",
                                           "  ",
                                           "\u3000",
                                           "\ufb01",
                                           "\u2460"};
constexpr char32_t kSpaces[] = {0x20,   0x20,   0x20,   0x0A,   0x0A,   0x0D,   0x09,   0x0B,
                                0x0C,   0x85,   0xA0,   0x1680, 0x180E, 0x2003, 0x200A, 0x200B,
                                0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF};
constexpr char32_t kRanges[][2] = {
    {0x80, 0x2FF},      {0x300, 0x36F},      {0x370, 0x1FFF},    {0x2000, 0x2BFF},
    {0x3040, 0x30FF},   {0x4E00, 0x9FFF},    {0x1100, 0x11FF},   {0xAC00, 0xD7A3},
    {0xE000, 0xFFFF},   {0x800, 0xD7FF},     {0x10000, 0x1FFFF}, {0x1F300, 0x1FAFF},
    {0x20000, 0x323AF}, {0x10000, 0x10FFFF}, {0x1AB0, 0x1AFF},   {0x590, 0x8FF}};

}  // namespace

std::vector<std::string> TestTokenizers() {
  if (const char* names = std::getenv("BATON_TOKENIZERS")) return absl::StrSplit(names, ',');
  return {"gpt2",           "llama3", "qwen2",     "o200k",     "tekken", "deepseek",
          "deepseek_coder", "smollm", "falcon",    "llama2",    "phi3",   "gemma",
          "mistral3",       "flags",  "metaspace", "flags_text"};
}

std::string ReadTestData(const std::string& name) {
  const char* folder = std::getenv("BATON_TOKENIZER_TESTDATA");
  const std::string path = absl::StrCat(
      folder != nullptr ? folder : BATON_SOURCE_DIR "/common/tokenizer/testdata", "/", name);
  std::ifstream file(path, std::ios::binary);
  BATON_CHECK(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::unique_ptr<const Tokenizer> LoadTestTokenizer(const std::string& name) {
  auto tokenizer = Tokenizer::FromJson(ReadTestData(name + ".tokenizer.json"), name);
  BATON_CHECK(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<std::string> TestCorpus() {
  std::vector<std::string> texts;
  std::istringstream lines(ReadTestData("corpus.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto file = JsonFile::Parse(line, "corpus.jsonl").value();
    const auto repeated = file->root().Array();
    if (!repeated.ok()) {
      texts.emplace_back(file->root().String().value());
      continue;
    }
    std::string text;
    for (int64_t i = (*repeated)[1].Int(0, 1 << 20).value(); i > 0; --i) {
      absl::StrAppend(&text, (*repeated)[0].String().value());
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

uint64_t TestLcg::Below(uint64_t n) {
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  return (state_ >> 33) % n;
}

std::string RandomTestText(TestLcg* rng) {
  std::string text;
  for (uint64_t left = rng->Below(40); left > 0; --left) {
    const uint64_t kind = rng->Below(10);
    if (kind < 3) {
      AppendUtf8(0x20 + rng->Below(0x5F), &text);
    } else if (kind == 3) {
      AppendUtf8(kSpaces[rng->Below(std::size(kSpaces))], &text);
    } else if (kind == 4) {
      absl::StrAppend(&text, kSnippets[rng->Below(std::size(kSnippets))]);
    } else if (kind == 5) {
      AppendUtf8(0x30 + rng->Below(10), &text);
    } else if (kind == 6) {
      AppendUtf8(rng->Below(0x80), &text);
    } else if (kind == 7 && !text.empty()) {
      const char32_t last = DecodeLastUtf8(text).code;
      for (uint64_t times = 1 + rng->Below(8); times > 0; --times) AppendUtf8(last, &text);
    } else {
      const auto& range = kRanges[rng->Below(std::size(kRanges))];
      AppendUtf8(range[0] + rng->Below(range[1] - range[0] + 1), &text);
    }
  }
  return text;
}

uint64_t Fnv(uint64_t hash, absl::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}
uint64_t Fnv(uint64_t hash, TokenId id) {
  char bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(static_cast<uint32_t>(id) >> (8 * i));
  return Fnv(hash, absl::string_view(bytes, 4));
}

}  // namespace baton
