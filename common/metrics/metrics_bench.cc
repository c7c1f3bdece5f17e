// Measures the cost of metrics: for the loop that updates them, and for writing a page.

#include <benchmark/benchmark.h>

#include "common/metrics/counter.h"
#include "common/metrics/histogram.h"
#include "common/metrics/metric_registry.h"

namespace baton {
namespace {

// Updates the metrics of a decode step of 64 sequences: its time, its batch, and one token per
// sequence.
void StepOf64(benchmark::State& state) {
  Histogram seconds(SecondsBounds()), batch(BatchBounds());
  Counter tokens;
  double time = 1e-4;
  for (auto _ : state) {
    seconds.Observe(time);
    batch.Observe(64.0);
    for (int i = 0; i < 64; ++i) tokens.Add();
    time = time < 1 ? time * 1.01 : 1e-4;
  }
}
BENCHMARK(StepOf64);

void Observe(benchmark::State& state) {
  Histogram seconds(SecondsBounds());
  double time = 1e-4;
  for (auto _ : state) {
    seconds.Observe(time);
    time = time < 1 ? time * 1.01 : 1e-4;
  }
}
BENCHMARK(Observe);

// Writes a page of metrics that is as large as the page of a router.
void Page(benchmark::State& state) {
  Histogram seconds(SecondsBounds());
  MetricRegistry registry;
  for (int i = 0; i < 20; ++i) {
    registry.AddHistogram("baton_bench_seconds", "Time.", {{"i", std::to_string(i)}}, &seconds);
  }
  size_t bytes = 0;
  for (auto _ : state) bytes += registry.Text().size();
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}
BENCHMARK(Page);

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();
