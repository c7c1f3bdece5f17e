// Measures the throughput of Tokenizer, and its time on texts that are made to be slow. Run it with
// files of real size:
//   tokenizer_bench tokenizer.json... [benchmark flags]
// Without a file it takes the small tokenisers of testdata/, which split words into more tokens.

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {
namespace {

std::string Repeated(absl::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text.append(unit.data(), unit.size());
  return text;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  BATON_CHECK(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns words with Zipf-like frequencies. Only some of these words were used to train the
// tokenisers.
std::string English(size_t bytes) {
  constexpr absl::string_view kWords[] = {"the",
                                          "of",
                                          "and",
                                          "to",
                                          "a",
                                          "in",
                                          "is",
                                          "it",
                                          "that",
                                          "computer",
                                          "memory",
                                          "number",
                                          "answer",
                                          "light",
                                          "people",
                                          "machine",
                                          "instructions",
                                          "because",
                                          "between",
                                          "understanding",
                                          "yesterday",
                                          "quickly",
                                          "river",
                                          "mountain",
                                          "government",
                                          "international",
                                          "development",
                                          "particular",
                                          "question",
                                          "children",
                                          "explained",
                                          "Sunday",
                                          "philosophy",
                                          "temperature",
                                          "neighbourhood",
                                          "responsibility",
                                          "chrysanthemum",
                                          "kaleidoscope",
                                          "Mississippi"};
  std::string text;
  uint64_t state = 1;
  for (int word = 0; text.size() < bytes; ++word) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t sample = (state >> 33) % 1000;
    const size_t rank = std::size(kWords) * sample * sample / 1000 / 1000;
    text.append(kWords[rank].data(), kWords[rank].size());
    text += word % 13 == 12 ? ". " : word % 97 == 96 ? ",\n\n" : " ";
  }
  return text;
}

// Returns text without spaces. If a tokeniser has no pre-tokeniser, the whole text is one word.
std::string OneLine(size_t bytes) {
  std::string text = English(bytes + bytes / 4);
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return !isalpha(c); }),
             text.end());
  return text;
}

void Encode(benchmark::State& state, const Tokenizer* tokenizer, const std::string& text) {
  size_t tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer->Encode(text);
    BATON_CHECK(ids.ok()) << ids.status();
    tokens = ids->size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
}

void Decode(benchmark::State& state, const Tokenizer* tokenizer) {
  const auto ids = tokenizer->Encode(English(1 << 20)).value();
  for (auto _ : state) {
    StreamDecoder decoder(tokenizer, true);
    size_t bytes = 0;
    for (const TokenId id : ids) bytes += decoder.Push(id).size();
    benchmark::DoNotOptimize(bytes);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}

void Register(const std::string& form, const Tokenizer* tokenizer) {
  constexpr size_t kMegabyte = 1 << 20;
  const auto encode = [&](const char* name, std::string text) {
    benchmark::RegisterBenchmark((form + "/" + name).c_str(), [=](benchmark::State& state) {
      Encode(state, tokenizer, text);
    })->Unit(benchmark::kMillisecond);
  };
  encode("License1MB", Repeated(ReadFile(BATON_SOURCE_DIR "/LICENSE"), kMegabyte));
  encode("English1MB", English(kMegabyte));
  encode("English1KB", English(1 << 10));
  encode("OneLine1MB", OneLine(kMegabyte));
  encode("OneLetter1MB", std::string(kMegabyte, 'a'));
  encode("Spaces1MB", std::string(kMegabyte, ' '));
  encode("Newlines1MB", std::string(kMegabyte, '\n'));
  encode("Emoji1MB", Repeated("\U0001F600", kMegabyte));
  encode("Thai1MB",
         Repeated("\u0E01\u0E32\u0E23\u0E40\u0E14\u0E34\u0E19\u0E17\u0E32\u0E07", kMegabyte));
  encode("Han1MB", Repeated("\u4EBA\u5DE5\u667A\u80FD", kMegabyte));
  encode("Digits1MB", Repeated("1\u06622", kMegabyte));
  encode("Punctuation1MB", Repeated("!?-", kMegabyte));
  encode("Marks1MB", Repeated("\u0301\u0316", kMegabyte));
  encode("Jamo1MB", Repeated("\u1112\u1161\u11AB", kMegabyte));
  encode("Specials1MB", Repeated("<|im_start|>", kMegabyte));
  encode("HalfSpecials1MB", Repeated("<|im_start", kMegabyte));
  benchmark::RegisterBenchmark((form + "/StreamDecode").c_str(),
                               [=](benchmark::State& state) { Decode(state, tokenizer); });
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  std::vector<std::string> paths;
  for (; argc > 1 && argv[1][0] != '-'; --argc, ++argv) {
    paths.emplace_back(argv[1]);
    argv[1] = argv[0];
  }
  if (paths.empty()) {
    for (const char* form :
         {"gpt2", "llama3", "qwen2", "o200k", "tekken", "deepseek", "deepseek_coder", "falcon",
          "llama2", "phi3", "mistral3", "gemma", "metaspace"}) {
      paths.push_back(
          absl::StrCat(BATON_SOURCE_DIR "/common/tokenizer/testdata/", form, ".tokenizer.json"));
    }
  }
  benchmark::Initialize(&argc, argv);
  std::vector<std::unique_ptr<const baton::Tokenizer>> tokenizers;
  for (const std::string& path : paths) {
    auto loaded = baton::Tokenizer::FromFile(path);
    if (!loaded.ok()) {
      fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
      return 1;
    }
    tokenizers.push_back(*std::move(loaded));
    const std::string file = path.substr(path.rfind('/') + 1);
    baton::Register(file.substr(0, file.find('.')), tokenizers.back().get());
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
