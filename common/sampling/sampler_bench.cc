// Measures sampling one token from the vocabulary of Llama 3: the cost that a sequence adds to a
// step.

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/sampling/sampler.h"

namespace baton {
namespace {

constexpr int kVocab = 128256;

// Returns 128k logits around 0, of which 200 stand out by up to `peak`. With a peak of 18, the best
// tokens have about the probability that a confident model gives them. With a peak of 8, top_p
// keeps thousands of tokens.
std::vector<float> Logits(float peak) {
  std::mt19937 random(7);
  std::normal_distribution<float> tail(0, 2.2f);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = tail(random);
  for (int i = 0; i < 200; ++i) logits[random() % kVocab] = peak - 0.08f * static_cast<float>(i);
  return logits;
}

void Sample(benchmark::State& state, float peak, SamplingOptions options) {
  std::vector<float> logits = Logits(peak);
  Sampler sampler;
  // The history has 4,000 tokens, half of them generated. About 3,900 are different.
  std::mt19937 random(9);
  std::vector<TokenId> tokens(4000);
  for (TokenId& id : tokens) id = static_cast<TokenId>(random() % kVocab);
  const TokenHistory history(tokens, 2000);
  int position = 4000;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        sampler.Sample(absl::MakeSpan(logits), options, position++, 2000, &history)->id);
  }
}

// Measures TokenHistory: the cost of each generated token (Append), and the cost of each new
// sequence (Count).
void Append(benchmark::State& state) {
  std::mt19937 random(9);
  TokenHistory history({}, 0);
  for (auto _ : state) history.Append(static_cast<TokenId>(random() % kVocab));
}
void Count(benchmark::State& state) {
  std::mt19937 random(9);
  std::vector<TokenId> tokens(100000);
  for (TokenId& id : tokens) id = static_cast<TokenId>(random() % kVocab);
  for (auto _ : state) benchmark::DoNotOptimize(TokenHistory(tokens, 100000).distinct().size());
}

SamplingOptions With(const std::function<void(SamplingOptions&)>& change) {
  SamplingOptions options;
  options.temperature = 0.8f;
  options.seed = 1;
  change(options);
  return options;
}

void RegisterAll() {
  const std::vector<std::pair<std::string, SamplingOptions>> all = {
      {"greedy", With([](auto& o) { o.temperature = 0; })},
      {"min_tokens", With([](auto& o) {
         o.temperature = 0;
         o.min_tokens = 10000;
         o.stop_tokens = {1, 2};
       })},
      {"temperature", With([](auto&) {})},
      {"top_k_50", With([](auto& o) { o.top_k = 50; })},
      {"top_k_5000", With([](auto& o) { o.top_k = 5000; })},
      {"top_p_95", With([](auto& o) { o.top_p = 0.95f; })},
      {"top_k_50_top_p_95", With([](auto& o) {
         o.top_k = 50;
         o.top_p = 0.95f;
       })},
      {"min_p_05", With([](auto& o) { o.min_p = 0.05f; })},
      {"greedy_penalties", With([](auto& o) {
         o.temperature = 0;
         o.repetition_penalty = 1.1f;
         o.frequency_penalty = 0.1f;
         o.presence_penalty = 0.1f;
       })},
      {"greedy_bias_and_bad_words", With([](auto& o) {
         o.temperature = 0;
         for (TokenId id = 0; id < 300; ++id) o.logit_bias.emplace_back(id * 7, 1.0f);
         for (TokenId id = 0; id < 256; ++id) o.bad_words.push_back({id * 5, id});
       })},
      {"greedy_logprobs_0", With([](auto& o) {
         o.temperature = 0;
         o.logprobs = 0;
       })},
      {"greedy_logprobs_20", With([](auto& o) {
         o.temperature = 0;
         o.logprobs = 20;
       })},
  };
  benchmark::RegisterBenchmark("history_append", Append);
  benchmark::RegisterBenchmark("history_of_100000", Count)->Unit(benchmark::kMicrosecond);
  for (const auto& [name, options] : all) {
    for (const auto& [shape, peak] : {std::pair<std::string, float>{"sure", 18}, {"open", 8}}) {
      benchmark::RegisterBenchmark((name + "/" + shape).c_str(), [peak = peak, options = options](
                                                                     benchmark::State& state) {
        Sample(state, peak, options);
      })->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
