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

// The metrics that a process shows. Counters and histograms are kept by their owners; other values
// are read at each scrape. Add all metrics before the first Text(). After that the registry is only
// read, from any thread. All objects that were added must outlive the last Text().
//
// Names follow Prometheus: they begin with `baton_`, use base units (seconds, bytes), and end in
// `_total` for counters. The values of a label form a small fixed set. A name or label that breaks
// the text format is a broken invariant, and so is one name with two types or helps.
class MetricRegistry {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  void AddCounter(const std::string& name, const std::string& help, const Labels& labels,
                  const Counter* counter);
  // `value` must never decrease. It is called on the thread that calls Text(), and must not block
  // for long.
  void AddCounter(const std::string& name, const std::string& help, const Labels& labels,
                  std::function<double()> value);
  void AddGauge(const std::string& name, const std::string& help, const Labels& labels,
                std::function<double()> value);
  void AddHistogram(const std::string& name, const std::string& help, const Labels& labels,
                    const Histogram* histogram);
  // Adds counters with one label, whose values are known only at run time: `values` returns a
  // counter for each value of the label, by the same rules as above. It must bound their number.
  using LabelledValues = std::vector<std::pair<std::string, double>>;
  void AddCounters(const std::string& name, const std::string& help, const std::string& label,
                   std::function<LabelledValues()> values);

  // Returns all metrics in Prometheus' text format 0.0.4, with the families sorted by name.
  std::string Text() const;
  // Returns the names of the families as scraped: counters with `_total`, histograms without
  // `_bucket`.
  std::vector<std::string> names() const;

 private:
  enum class Type { kCounter, kGauge, kHistogram };
  struct Member {
    Labels labels;
    std::function<double()> value;         // set for a counter or gauge
    const Histogram* histogram = nullptr;  // set for a histogram
    std::string label;                     // set for counters whose labels are known at run time
    std::function<LabelledValues()> values;
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
