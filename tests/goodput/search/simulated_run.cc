#include "tests/goodput/search/simulated_run.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/goodput/search/statistics.h"

namespace baton {
namespace {

constexpr double kWarmup = 5;

double Unit(Draws* draws) { return (draws->Next() >> 11) * 0x1p-53; }
double Exponential(Draws* draws) { return -std::log1p(-Unit(draws)); }
double Microsecond(double seconds) { return std::round(seconds * 1e6) / 1e6; }

MetricSeries Series(const char* source, std::string name) {
  return {.source = source, .name = std::move(name)};
}

}  // namespace

RunResult SimulatedRun(const SimulatedLoad& load) {
  RunResult run;
  run.tool_version = "0.1.0";
  run.started_at = "2026-11-21T12:00:00Z";
  run.spec = {{"prompt_tokens", absl::StrCat(load.prompt_tokens)},
              {"output_tokens", absl::StrCat(load.output_tokens)},
              {"arrivals", "poisson"},
              {"rate", absl::StrCat(load.rate)}};
  run.rate = load.rate;
  run.mode = load.mode;
  run.seed = load.seed;
  run.server = {.endpoint = "127.0.0.1:50051",
                .model = "demo",
                .architecture = "LlamaForCausalLM",
                .fingerprint = "0123abcd",
                .context_tokens = 4096,
                .vocab_size = 32000,
                .prefill_workers = 1,
                .decode_workers = 1};
  run.targets = load.targets;
  run.window_begin_s = kWarmup;
  run.window_end_s = kWarmup + load.window_s;

  Draws draws(load.seed * 7919);
  // For each worker, the time at which it has computed all prompts given to it.
  std::array<double, 2> free_at = {0, 0};
  std::array<std::vector<double>, 2> decodes;  // For each worker, the end times of its sequences.
  double at = 0;
  for (uint32_t index = 0; at < run.window_end_s; ++index) {
    at += Exponential(&draws) / load.rate;
    const uint32_t prompt =
        16 + static_cast<uint32_t>(load.prompt_tokens * (0.2 + 0.8 * Exponential(&draws)));
    const uint32_t output = 2 + static_cast<uint32_t>(load.output_tokens * (0.5 + Unit(&draws)));
    const bool split = load.mode == "disaggregated" || (load.mode == "auto" && prompt > 200);
    size_t worker = split ? 0 : (free_at[0] <= free_at[1] ? 0 : 1);
    if (load.mode == "auto" && !split) worker = 1;
    const size_t decoder = split ? 1 : worker;

    RequestRecord record;
    record.index = index;
    record.mode = load.mode;
    record.scheduled_s = Microsecond(at);
    record.sent_s = Microsecond(at + 20e-6 * Exponential(&draws));
    record.measured = at >= run.window_begin_s && at < run.window_end_s;
    record.prompt_tokens = prompt;
    record.wanted_tokens = output;
    record.outcome = Outcome::kCompleted;
    record.status = "OK";
    record.finish_reason = "length";
    record.link = split ? "shm" : "";
    const auto active = [&](size_t of, double when) {
      return static_cast<double>(std::count_if(decodes[of].begin(), decodes[of].end(),
                                               [&](double end) { return end > when; }));
    };
    const double begin = std::max(at + 0.001, free_at[worker]);
    const double slowed = split ? 1 : 1 + 0.12 * active(worker, begin);
    const double prefill = prompt * 0.35e-3 * slowed;
    free_at[worker] = begin + prefill;
    const double first = begin + prefill + 0.002;
    const double handover = split ? 0.0015 + prompt * 4e-6 : 0;
    const double busy = split ? 0 : std::min(1.0, load.rate * prompt * 0.35e-3 / 2);
    const double step = 0.018 * (1 + 0.09 * active(decoder, first)) * (1 + 0.6 * busy);
    double token = first;
    record.token_s.push_back(Microsecond(token));
    token += handover;
    for (uint32_t i = 1; i < output; ++i) {
      token += step * (0.85 + 0.3 * Unit(&draws));
      record.token_s.push_back(Microsecond(token));
    }
    record.ended_s = Microsecond(token + 0.0005);
    decodes[decoder].push_back(token);
    record.has_phases = true;
    record.phases = {.queue_s = begin - at - 0.0005,
                     .prefill_s = prefill,
                     .handover_hidden_s = handover / 2,
                     .handover_exposed_s = handover,
                     .decode_s = token - first - handover,
                     .ttft_s = first - at - 0.0008,
                     .total_s = token - at - 0.001};
    if (begin - at > 3) {  // The worker's queue is full if a prompt would wait for more than 3 s.
      record.outcome = Outcome::kRejected;
      record.status = "RESOURCE_EXHAUSTED";
      record.message = "the queue is full";
      record.token_s.clear();
      record.ended_s = record.sent_s + 0.001;
      record.has_phases = false;
      free_at[worker] = begin;
      decodes[decoder].pop_back();
    }
    run.records.push_back(std::move(record));
  }
  run.timeline = {Series("127.0.0.1:9100", "baton_router_requests_waiting"),
                  Series("127.0.0.1:9102", "baton_decode_batch_sequences"),
                  Series("127.0.0.1:9102", "baton_decode_kv_blocks{state=\"used\"}")};
  for (double second = 0; second < run.window_end_s; second += 0.5) {
    double waiting = 0, decoding = 0, blocks = 0;
    for (const RequestRecord& record : run.records) {
      if (record.token_s.empty() || record.scheduled_s > second || record.ended_s < second)
        continue;
      const bool has_token = record.token_s[0] <= second;
      (has_token ? decoding : waiting) += 1;
      if (has_token) blocks += std::ceil((record.prompt_tokens + record.wanted_tokens) / 16.0);
    }
    run.timeline[0].points.push_back({second, waiting});
    run.timeline[1].points.push_back({second, decoding});
    run.timeline[2].points.push_back({second, blocks});
  }
  return run;
}

}  // namespace baton
