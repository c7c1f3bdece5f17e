#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// One line of a metrics page that holds a value.
struct MetricSample {
  std::string name;  // includes the suffix _bucket, _sum or _count of a histogram
  std::map<std::string, std::string> labels;
  double value = 0;
};

struct MetricFamily {
  std::string name;
  std::string help;
  std::string type;  // counter, gauge or histogram
  std::vector<MetricSample> samples;
};

// A parsed page of metrics, as a reader of MetricRegistry::Text() sees it.
struct Exposition {
  std::vector<MetricFamily> families;

  const MetricFamily* Find(absl::string_view family) const;
  // Returns the value of the sample with exactly these labels, or nothing if there is none.
  std::optional<double> Value(absl::string_view sample,
                              const std::map<std::string, std::string>& labels = {}) const;
  // Returns the sum of all samples with this name, whatever their labels; 0 if there are none.
  double Sum(absl::string_view sample) const;
};

// Parses Prometheus' text format 0.0.4, as strictly as we write it. Returns InvalidArgument, with
// line number and reason, for:
// - lines that are not HELP, TYPE or a sample
// - a family without HELP or TYPE, or in two places
// - names and labels that the format does not allow, or that occur twice
// - counters that do not end in _total, or are negative
// - histograms whose buckets do not ascend, are not cumulative, or do not end in +Inf with the
//   count
absl::StatusOr<Exposition> ParseExposition(absl::string_view text);

}  // namespace baton
