#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// One line of a page of metrics that carries a value.
struct MetricSample {
  std::string name;  // with _bucket, _sum or _count where it is part of a histogram
  std::map<std::string, std::string> labels;
  double value = 0;
};

struct MetricFamily {
  std::string name;
  std::string help;
  std::string type;  // counter, gauge or histogram
  std::vector<MetricSample> samples;
};

// A page of metrics taken apart: what a reader of MetricRegistry::Text() sees.
struct Exposition {
  std::vector<MetricFamily> families;

  const MetricFamily* Find(absl::string_view family) const;
  // The sample with exactly these labels; nothing when there is none.
  std::optional<double> Value(absl::string_view sample,
                              const std::map<std::string, std::string>& labels = {}) const;
  // The sum over all samples of this name, whatever their labels; 0 when there are none.
  double Sum(absl::string_view sample) const;
};

// Reads Prometheus' text format 0.0.4 as strictly as we write it. InvalidArgument with line number
// and reason for: lines that are not HELP, TYPE or a sample; a family without HELP or TYPE, or in
// two places; names and labels that the format does not allow, or given twice; counters that do not
// end in _total, or hold less than 0; histograms whose buckets do not ascend, do not cumulate, or
// do not end in +Inf with the count.
absl::StatusOr<Exposition> ParseExposition(absl::string_view text);

}  // namespace baton
