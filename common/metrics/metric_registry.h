#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/counter.h"
#include "common/metrics/histogram.h"

namespace baton {

// What a process shows of itself: names, help and labels for counters and histograms that their
// owners keep, and for values that are asked for when somebody looks. Filled before it is shown;
// Text() then only reads, from any thread. What it points to outlives its last Text().
//
// Names follow Prometheus: `baton_` first, base units (seconds, bytes), `_total` for counters. The
// values of a label form a small fixed set. A name or label that breaks the text format, and one
// name with two types or helps, is a broken invariant.
class MetricRegistry {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  void AddCounter(const std::string& name, const std::string& help, const Labels& labels,
                  const Counter* counter);
  // `value` never falls. Called from the thread that asks for Text(); must not block for long.
  void AddCounter(const std::string& name, const std::string& help, const Labels& labels,
                  std::function<double()> value);
  void AddGauge(const std::string& name, const std::string& help, const Labels& labels,
                std::function<double()> value);
  void AddHistogram(const std::string& name, const std::string& help, const Labels& labels,
                    const Histogram* histogram);

  // In Prometheus' text format 0.0.4, families by name.
  std::string Text() const;
  // Of the families, as scraped: counters with `_total`, histograms without `_bucket`.
  std::vector<std::string> names() const;

 private:
  enum class Type { kCounter, kGauge, kHistogram };
  struct Member {
    Labels labels;
    std::function<double()> value;         // of a counter or gauge
    const Histogram* histogram = nullptr;  // of a histogram
  };
  struct Family {
    Type type = Type::kCounter;
    std::string help;
    std::vector<Member> members;
  };
  void Add(const std::string& name, const std::string& help, Type type, Member member);

  std::map<std::string, Family> families_;
};

}  // namespace baton
