// Throughput of Tokenizer, and its time on texts made to be slow. Run with a tokenizer.json of real
// size:
//   tokenizer_bench FILE [benchmark flags]
// without one it takes a small tokeniser of testdata/, whose words fall into more tokens.

#include <cstdio>
#include <string>

#include <benchmark/benchmark.h>

#include "common/base/check.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {
namespace {

const Tokenizer* tokenizer = nullptr;

std::string Repeated(absl::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text.append(unit.data(), unit.size());
  return text;
}

// Words drawn by Zipf's law from a list that the tokenisers have seen and one that they have not.
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
    const uint64_t draw = (state >> 33) % 1000;
    const size_t rank = std::size(kWords) * draw * draw / 1000 / 1000;
    text.append(kWords[rank].data(), kWords[rank].size());
    text += word % 13 == 12 ? ". " : word % 97 == 96 ? ",\n\n" : " ";
  }
  return text;
}

void Encode(benchmark::State& state, const std::string& text) {
  size_t tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer->Encode(text);
    BATON_CHECK(ids.ok()) << ids.status();
    tokens = ids->size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
}

void Decode(benchmark::State& state) {
  const auto ids = tokenizer->Encode(English(1 << 20)).value();
  for (auto _ : state) {
    StreamDecoder decoder(tokenizer, true);
    size_t bytes = 0;
    for (const TokenId id : ids) bytes += decoder.Push(id).size();
    benchmark::DoNotOptimize(bytes);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}

void Register() {
  constexpr size_t kMegabyte = 1 << 20;
  const auto encode = [](const char* name, std::string text) {
    benchmark::RegisterBenchmark(name, [text](benchmark::State& state) {
      Encode(state, text);
    })->Unit(benchmark::kMillisecond);
  };
  encode("English1MB", English(kMegabyte));
  encode("English1KB", English(1 << 10));
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
  benchmark::RegisterBenchmark("StreamDecode", Decode);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const bool given = argc > 1 && argv[1][0] != '-';
  const std::string path =
      given ? argv[1] : BATON_SOURCE_DIR "/common/tokenizer/testdata/qwen2.tokenizer.json";
  const auto loaded = baton::Tokenizer::FromFile(path);
  if (!loaded.ok()) {
    fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
    return 1;
  }
  baton::tokenizer = loaded->get();
  printf("%s: %d ids\n", path.c_str(), baton::tokenizer->vocab_size());
  if (given) {
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  benchmark::Initialize(&argc, argv);
  baton::Register();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
