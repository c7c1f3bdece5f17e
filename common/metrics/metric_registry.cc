#include "common/metrics/metric_registry.h"

#include <algorithm>
#include <limits>

#include <prometheus/check_names.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "absl/strings/match.h"
#include "common/base/check.h"

namespace baton {
namespace {

prometheus::ClientMetric::Histogram Cumulative(const Histogram& histogram) {
  const Histogram::Snapshot snapshot = histogram.Take();
  prometheus::ClientMetric::Histogram shown;
  for (size_t i = 0; i < snapshot.counts.size(); ++i) {
    shown.sample_count += snapshot.counts[i];
    shown.bucket.push_back({shown.sample_count, i < histogram.bounds().size()
                                                    ? histogram.bounds()[i]
                                                    : std::numeric_limits<double>::infinity()});
  }
  shown.sample_sum = snapshot.sum;
  return shown;
}

}  // namespace

void MetricRegistry::AddCounter(const std::string& name, const std::string& help,
                                const Labels& labels, const Counter* counter) {
  AddCounter(name, help, labels, [counter] { return static_cast<double>(counter->value()); });
}

void MetricRegistry::AddCounter(const std::string& name, const std::string& help,
                                const Labels& labels, std::function<double()> value) {
  BATON_CHECK(absl::EndsWith(name, "_total")) << "counter " << name << " must end in _total";
  Add(name, help, Type::kCounter, {labels, std::move(value)});
}

void MetricRegistry::AddGauge(const std::string& name, const std::string& help,
                              const Labels& labels, std::function<double()> value) {
  BATON_CHECK(!absl::EndsWith(name, "_total")) << "gauge " << name << " must not end in _total";
  Add(name, help, Type::kGauge, {labels, std::move(value)});
}

void MetricRegistry::AddHistogram(const std::string& name, const std::string& help,
                                  const Labels& labels, const Histogram* histogram) {
  Add(name, help, Type::kHistogram, {labels, nullptr, histogram});
}

void MetricRegistry::AddCounters(const std::string& name, const std::string& help,
                                 const std::string& label, std::function<LabelledValues()> values) {
  BATON_CHECK(absl::EndsWith(name, "_total")) << "counter " << name << " must end in _total";
  BATON_CHECK(prometheus::CheckLabelName(label)) << "no label of " << name << ": " << label;
  Member member;
  member.label = label;
  member.values = std::move(values);
  Add(name, help, Type::kCounter, std::move(member));
}

void MetricRegistry::Add(const std::string& name, const std::string& help, Type type,
                         Member member) {
  BATON_CHECK(prometheus::CheckMetricName(name)) << "no name of a metric: " << name;
  // prometheus-cpp writes the help text without escaping it.
  BATON_CHECK(!help.empty() && help.find_first_of("\n\\") == help.npos)
      << name << " has no help of one plain line";
  for (const auto& [label, value] : member.labels) {
    BATON_CHECK(prometheus::CheckLabelName(label) && label != "le")
        << "no label of " << name << ": " << label;
  }
  Family& family = families_[name];
  if (family.members.empty()) {
    family.type = type;
    family.help = help;
  }
  BATON_CHECK(family.type == type && family.help == help) << name << " means two things";
  for (const Member& other : family.members) {
    BATON_CHECK(other.labels != member.labels) << name << " is there twice with the same labels";
  }
  family.members.push_back(std::move(member));
}

std::string MetricRegistry::Text() const {
  std::vector<prometheus::MetricFamily> shown;
  for (const auto& [name, family] : families_) {
    prometheus::MetricFamily& next = shown.emplace_back();
    next.name = name;
    next.help = family.help;
    next.type = family.type == Type::kCounter ? prometheus::MetricType::Counter
                : family.type == Type::kGauge ? prometheus::MetricType::Gauge
                                              : prometheus::MetricType::Histogram;
    for (const Member& member : family.members) {
      if (member.values) {
        for (const auto& [label, value] : member.values()) {
          prometheus::ClientMetric& metric = next.metric.emplace_back();
          metric.label.push_back({member.label, label});
          metric.counter.value = value;
        }
        continue;
      }
      prometheus::ClientMetric& metric = next.metric.emplace_back();
      for (const auto& [label, value] : member.labels) metric.label.push_back({label, value});
      if (family.type == Type::kCounter) metric.counter.value = member.value();
      if (family.type == Type::kGauge) metric.gauge.value = member.value();
      if (family.type == Type::kHistogram) metric.histogram = Cumulative(*member.histogram);
    }
  }
  return prometheus::TextSerializer().Serialize(shown);
}

std::vector<std::string> MetricRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, family] : families_) names.push_back(name);
  return names;
}

}  // namespace baton
