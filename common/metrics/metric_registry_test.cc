#include "common/metrics/metric_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/program.h"
#include "common/metrics/exposition.h"
#include "common/metrics/process_metrics.h"

namespace baton {
namespace {

using testing::ElementsAre;

TEST(MetricRegistryTest, TextIsWhatPrometheusReads) {
  Counter one, two;
  one.Add(3);
  constexpr double kBounds[] = {0.1, 1};
  Histogram histogram(kBounds);
  histogram.Observe(0.1);
  histogram.Observe(0.5);
  histogram.Observe(7);
  MetricRegistry registry;
  registry.AddCounter("x_things_total", "Things \"that\" were.", {{"code", "a\"b\\c\nd"}}, &one);
  registry.AddHistogram("x_seconds", "Time.", {{"mode", "m"}}, &histogram);
  registry.AddCounter("x_things_total", "Things \"that\" were.", {{"code", "OK"}}, &two);
  registry.AddGauge("x_level", "Level.", {}, [] { return -1.5; });
  EXPECT_EQ(registry.Text(),
            "# HELP x_level Level.\n# TYPE x_level gauge\nx_level -1.5\n"
            "# HELP x_seconds Time.\n# TYPE x_seconds histogram\n"
            "x_seconds_count{mode=\"m\"} 3\nx_seconds_sum{mode=\"m\"} 7.6\n"
            "x_seconds_bucket{mode=\"m\",le=\"0.1\"} 1\nx_seconds_bucket{mode=\"m\",le=\"1\"} 2\n"
            "x_seconds_bucket{mode=\"m\",le=\"+Inf\"} 3\n"
            "# HELP x_things_total Things \"that\" were.\n# TYPE x_things_total counter\n"
            "x_things_total{code=\"a\\\"b\\\\c\\nd\"} 3\nx_things_total{code=\"OK\"} 0\n");
  EXPECT_THAT(registry.names(), ElementsAre("x_level", "x_seconds", "x_things_total"));
  const auto page = ParseExposition(registry.Text());
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->Value("x_things_total", {{"code", "a\"b\\c\nd"}}), 3);
  two.Add();
  EXPECT_EQ(ParseExposition(registry.Text())->Sum("x_things_total"), 4);
}

TEST(MetricRegistryTest, EveryBoundIsWrittenAsItWasGiven) {
  Histogram seconds(SecondsBounds()), tokens(TokensBounds());
  MetricRegistry registry;
  registry.AddHistogram("s", "Seconds.", {}, &seconds);
  registry.AddHistogram("t", "Tokens.", {}, &tokens);
  const auto page = ParseExposition(registry.Text());
  ASSERT_TRUE(page.ok()) << page.status();
  for (const char* bound : {"0.0001", "0.0002", "0.001", "0.01", "0.1", "0.2", "20", "500"}) {
    EXPECT_EQ(page->Value("s_bucket", {{"le", bound}}), 0) << bound;
  }
  EXPECT_EQ(page->Value("t_bucket", {{"le", "1048576"}}), 0);
}

TEST(MetricRegistryDeathTest, WhatTheFormatDoesNotAllowIsABrokenInvariant) {
  Counter counter;
  Histogram histogram(BatchBounds());
  MetricRegistry registry;
  registry.AddCounter("a_total", "A.", {}, &counter);
  EXPECT_DEATH(registry.AddCounter("a", "A.", {}, &counter), "must end in _total");
  EXPECT_DEATH(registry.AddGauge("b_total", "B.", {}, [] { return 0.0; }), "must not end");
  EXPECT_DEATH(registry.AddCounter("1_total", "A.", {}, &counter), "no name");
  EXPECT_DEATH(registry.AddCounter("a_total", "B.", {{"x", ""}}, &counter), "two things");
  EXPECT_DEATH(registry.AddCounter("a_total", "A.", {}, &counter), "twice");
  EXPECT_DEATH(registry.AddHistogram("h", "", {}, &histogram), "no help");
  EXPECT_DEATH(registry.AddHistogram("h", "a\nb", {}, &histogram), "one plain line");
  EXPECT_DEATH(registry.AddHistogram("h", "H.", {{"le", "1"}}, &histogram), "no label");
  EXPECT_DEATH(registry.AddHistogram("h", "H.", {{"a-b", "1"}}, &histogram), "no label");
}

TEST(ProcessMetricsTest, SayWhatTheKernelSays) {
  MetricRegistry registry;
  AddProcessMetrics("baton-thing", &registry);
  const auto page = ParseExposition(registry.Text());
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->Value("baton_build_info",
                        {{"program", "baton-thing"}, {"version", std::string(kVersion)}}),
            1);
  const double start = page->Value("process_start_time_seconds").value_or(0);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(start, now + 2);  // the boot time is rounded to whole seconds
  EXPECT_GE(start, now - 3600);
  EXPECT_GE(page->Value("process_resident_memory_bytes").value_or(0), 1 << 20);
  EXPECT_LE(page->Value("process_resident_memory_bytes").value_or(1e18), 1e11);
  EXPECT_GE(page->Value("process_open_fds").value_or(0), 3);
  const double before = page->Value("process_cpu_seconds_total").value_or(1e9);
  volatile uint64_t work = 0;
  double after = before;
  for (int i = 0; i < 1000 && after <= before; ++i) {
    for (int k = 0; k < 1000000; ++k) work = work + 1;
    after = ParseExposition(registry.Text())->Value("process_cpu_seconds_total").value_or(0);
  }
  EXPECT_GT(after, before);
}

}  // namespace
}  // namespace baton
