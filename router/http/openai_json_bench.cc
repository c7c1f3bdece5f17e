#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "common/tokenizer/tokenizer.h"
#include "router/http/completion_answer.h"
#include "router/http/completion_request.h"

namespace baton {
namespace {

const Tokenizer& DemoTokenizer() {
  static const auto* const tokenizer =
      Tokenizer::FromFile(BATON_SOURCE_DIR "/common/model/demo/tokenizer.json").value().release();
  return *tokenizer;
}

// Formats one token of a stream, with `logprobs` alternatives unless that is negative.
void FormatToken(benchmark::State& state) {
  CompletionShape shape = {.stream = true};
  AnswerDelta delta = {.text = " word", .tokens = {v1::Token()}, .text_ends = {5}};
  delta.tokens[0].set_token_id(300);
  if (state.range(0) >= 0) {
    shape.logprobs = static_cast<int>(state.range(0));
    delta.tokens[0].set_logprob(-0.123f);
    for (int i = 0; i < state.range(0); ++i) {
      delta.tokens[0].add_top()->set_token_id(300 + i);
      delta.tokens[0].mutable_top(i)->set_logprob(-0.123f - static_cast<float>(i));
    }
  }
  CompletionAnswer answer(
      shape,
      {.id = "cmpl-0123456789abcdef", .model = "meta-llama/Llama-3", .system_fingerprint = "f/n"},
      &DemoTokenizer(), 1);
  std::string out;
  int64_t bytes = 0;
  for (auto _ : state) {
    answer.Add(0, delta);
    out.clear();
    answer.Fill(16384, &out);
    bytes += static_cast<int64_t>(out.size());
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK(FormatToken)->Arg(-1)->Arg(0)->Arg(5)->Arg(20);

void ParseTextRequest(benchmark::State& state) {
  const std::string body = absl::StrCat(R"({"model": "m", "prompt": ")",
                                        std::string(static_cast<size_t>(state.range(0)), 'x'),
                                        R"(", "max_tokens": 64, "stream": true, "seed": 7})");
  for (auto _ : state) benchmark::DoNotOptimize(ParseCompletionRequest(body, {}));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}
BENCHMARK(ParseTextRequest)->Arg(100)->Arg(1 << 20);

void ParseIdsRequest(benchmark::State& state) {
  std::string body = R"({"prompt": [0)";
  for (int i = 1; i < state.range(0); ++i) absl::StrAppend(&body, ",", i * 7 % 128000);
  body += "]}";
  for (auto _ : state) benchmark::DoNotOptimize(ParseCompletionRequest(body, {}));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}
BENCHMARK(ParseIdsRequest)->Arg(100000);

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();
