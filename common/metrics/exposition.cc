#include "common/metrics/exposition.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

using Labels = std::map<std::string, std::string>;

// Removes the longest name from the start of `*text` and returns it. A name is
// [a-zA-Z_:][a-zA-Z0-9_:]*, without the colon for labels.
std::string TakeName(absl::string_view* text, bool colons) {
  size_t size = 0;
  while (size < text->size()) {
    const char c = (*text)[size];
    if (!(absl::ascii_isalpha(c) || c == '_' || (colons && c == ':') ||
          (size > 0 && absl::ascii_isdigit(c)))) {
      break;
    }
    ++size;
  }
  std::string name(text->substr(0, size));
  text->remove_prefix(size);
  return name;
}

bool ParseValue(absl::string_view text, double* value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "NaN") return *value = std::nan(""), true;
  if (text == "+Inf" || text == "Inf") return *value = kInfinity, true;
  if (text == "-Inf") return *value = -kInfinity, true;
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != text.npos) return false;
  return absl::SimpleAtod(text, value);
}

// Parses labels up to the closing brace. `*text` begins after the opening brace; afterwards it
// begins after the closing one.
absl::Status TakeLabels(absl::string_view* text, Labels* labels) {
  while (!absl::ConsumePrefix(text, "}")) {
    const std::string name = TakeName(text, false);
    if (name.empty() || !absl::ConsumePrefix(text, "=\"")) {
      return absl::InvalidArgumentError("a label that is not NAME=\"VALUE\"");
    }
    std::string value;
    while (!absl::ConsumePrefix(text, "\"")) {
      if (text->empty()) return absl::InvalidArgumentError("a label's value without its end");
      char c = text->front();
      text->remove_prefix(1);
      if (c == '\\') {
        if (absl::ConsumePrefix(text, "n")) {
          c = '\n';
        } else if (absl::ConsumePrefix(text, "\"")) {
          c = '"';
        } else if (!absl::ConsumePrefix(text, "\\")) {
          return absl::InvalidArgumentError("an escape that is none of \\n, \\\" and \\\\");
        }
      }
      value += c;
    }
    if (!labels->emplace(name, value).second) {
      return absl::InvalidArgumentError(absl::StrCat("label ", name, " twice"));
    }
    if (!absl::ConsumePrefix(text, ",") && !absl::StartsWith(*text, "}")) {
      return absl::InvalidArgumentError("labels that are not separated by commas");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<MetricSample> ParseSample(absl::string_view line) {
  MetricSample sample;
  sample.name = TakeName(&line, true);
  if (sample.name.empty()) return absl::InvalidArgumentError("a sample without a name");
  if (absl::ConsumePrefix(&line, "{")) {
    RETURN_IF_ERROR(TakeLabels(&line, &sample.labels));
  }
  if (!absl::ConsumePrefix(&line, " ") || !ParseValue(line, &sample.value)) {
    return absl::InvalidArgumentError(absl::StrCat("'", line, "' is no value"));
  }
  return sample;
}

// Parses a metrics page line by line. Checks each metric family when the next family begins.
class Reader {
 public:
  absl::Status Take(absl::string_view line);
  absl::Status CloseFamily();
  Exposition page;

 private:
  absl::Status TakeHelp(absl::string_view line);
  absl::Status TakeType(absl::string_view line);
  absl::Status TakeSample(absl::string_view line);
  absl::Status CheckHistogram(const MetricFamily& family) const;

  std::set<std::string> names_;
  std::set<std::pair<std::string, Labels>> series_;
};

absl::Status Reader::Take(absl::string_view line) {
  if (absl::ConsumePrefix(&line, "# HELP ")) return TakeHelp(line);
  if (absl::ConsumePrefix(&line, "# TYPE ")) return TakeType(line);
  if (absl::StartsWith(line, "#")) return absl::InvalidArgumentError("a comment");
  return TakeSample(line);
}

absl::Status Reader::TakeHelp(absl::string_view line) {
  RETURN_IF_ERROR(CloseFamily());
  MetricFamily family;
  family.name = TakeName(&line, true);
  if (family.name.empty() || !absl::ConsumePrefix(&line, " ") || line.empty()) {
    return absl::InvalidArgumentError("HELP without a name or a text");
  }
  if (!names_.insert(family.name).second) {
    return absl::InvalidArgumentError(absl::StrCat(family.name, " in two places"));
  }
  family.help = std::string(line);
  page.families.push_back(std::move(family));
  return absl::OkStatus();
}

absl::Status Reader::TakeType(absl::string_view line) {
  const std::string name = TakeName(&line, true);
  if (page.families.empty() || page.families.back().name != name ||
      !page.families.back().type.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the TYPE of ", name, " does not follow its HELP"));
  }
  if (line != " counter" && line != " gauge" && line != " histogram") {
    return absl::InvalidArgumentError(absl::StrCat(name, " is of no type that we write:", line));
  }
  if (absl::EndsWith(name, "_total") != (line == " counter")) {
    return absl::InvalidArgumentError(absl::StrCat("_total and counter go together: ", name, line));
  }
  page.families.back().type = std::string(line.substr(1));
  return absl::OkStatus();
}

absl::Status Reader::TakeSample(absl::string_view line) {
  ASSIGN_OR_RETURN(MetricSample sample, ParseSample(line));
  if (page.families.empty() || page.families.back().type.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(sample.name, " without HELP and TYPE"));
  }
  MetricFamily& family = page.families.back();
  absl::string_view suffix = sample.name;
  const bool histogram = family.type == "histogram";
  if (!absl::ConsumePrefix(&suffix, family.name) ||
      (histogram ? suffix != "_bucket" && suffix != "_sum" && suffix != "_count"
                 : !suffix.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat(sample.name, " is no part of ", family.type, " ", family.name));
  }
  if (sample.labels.count("le") != (suffix == "_bucket" ? 1 : 0)) {
    return absl::InvalidArgumentError(absl::StrCat("label le and bucket go together: ", line));
  }
  if (family.type == "counter" && !(sample.value >= 0 && std::isfinite(sample.value))) {
    return absl::InvalidArgumentError(absl::StrCat("a counter that has counted ", line));
  }
  if (!series_.emplace(sample.name, sample.labels).second) {
    return absl::InvalidArgumentError(absl::StrCat("twice: ", line));
  }
  family.samples.push_back(std::move(sample));
  return absl::OkStatus();
}

absl::Status Reader::CheckHistogram(const MetricFamily& family) const {
  struct Seen {
    double bound = -std::numeric_limits<double>::infinity(), below = 0;
    std::optional<double> sum, count;
  };
  std::map<Labels, Seen> members;
  for (const MetricSample& sample : family.samples) {
    Labels labels = sample.labels;
    labels.erase("le");
    Seen& seen = members[labels];
    if (absl::EndsWith(sample.name, "_sum")) {
      seen.sum = sample.value;
    } else if (absl::EndsWith(sample.name, "_count")) {
      seen.count = sample.value;
    } else {
      double bound = 0;
      if (!ParseValue(sample.labels.at("le"), &bound) || !(bound > seen.bound) ||
          sample.value < seen.below) {
        return absl::InvalidArgumentError(
            absl::StrCat("buckets of ", family.name, " do not ascend at ", sample.labels.at("le")));
      }
      seen.bound = bound;
      seen.below = sample.value;
    }
  }
  for (const auto& [labels, seen] : members) {
    if (!seen.sum || !seen.count || !std::isinf(seen.bound) || seen.below != *seen.count) {
      return absl::InvalidArgumentError(absl::StrCat(
          family.name, " is no whole histogram: sum, count and a bucket +Inf that equals it"));
    }
  }
  return absl::OkStatus();
}

absl::Status Reader::CloseFamily() {
  if (page.families.empty()) return absl::OkStatus();
  const MetricFamily& family = page.families.back();
  if (family.type.empty() || family.samples.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(family.name, " has no TYPE or no sample"));
  }
  return family.type == "histogram" ? CheckHistogram(family) : absl::OkStatus();
}

}  // namespace

const MetricFamily* Exposition::Find(absl::string_view family) const {
  for (const MetricFamily& one : families) {
    if (one.name == family) return &one;
  }
  return nullptr;
}

std::optional<double> Exposition::Value(absl::string_view sample, const Labels& labels) const {
  for (const MetricFamily& family : families) {
    if (!absl::StartsWith(sample, family.name)) continue;
    for (const MetricSample& one : family.samples) {
      if (one.name == sample && one.labels == labels) return one.value;
    }
  }
  return std::nullopt;
}

double Exposition::Sum(absl::string_view sample) const {
  double sum = 0;
  for (const MetricFamily& family : families) {
    for (const MetricSample& one : family.samples) {
      if (one.name == sample) sum += one.value;
    }
  }
  return sum;
}

absl::StatusOr<Exposition> ParseExposition(absl::string_view text) {
  Reader reader;
  if (!text.empty() && text.back() != '\n') {
    return absl::InvalidArgumentError("the last line has no end");
  }
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  lines.pop_back();
  int number = 0;
  const auto at = [&number](const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
  };
  for (const absl::string_view line : lines) {
    ++number;
    if (absl::Status status = reader.Take(line); !status.ok()) return at(status);
  }
  if (absl::Status status = reader.CloseFamily(); !status.ok()) return at(status);
  return std::move(reader.page);
}

}  // namespace baton
