#include "tests/bench/bench_figures.h"

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/json.h"

namespace baton {

void BenchFigures::Add(const Figure& f) {
  std::string line = absl::StrFormat("%-46s %9.4g %-8s", f.name, f.median, f.unit);
  if (f.ratio > 0) absl::StrAppend(&line, absl::StrFormat(" %5.2f of %s", f.ratio, f.of));
  const bool missed = f.target > 0 && !means_nothing_ && !(f.ratio >= f.target);
  if (f.target > 0) {
    absl::StrAppend(&line, absl::StrFormat(" (target %.2f", f.target));
    if (f.good > 0) absl::StrAppend(&line, absl::StrFormat(", good %.2f", f.good));
    absl::StrAppend(&line, missed ? ", BELOW)" : ")");
  }
  if (means_nothing_) absl::StrAppend(&line, " [no device: means nothing]");
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  ++count_;
  if (missed) missed_.push_back(f.name);
  if (json_.empty()) return;
  nlohmann::json json = {{"bench", f.name}, {"unit", f.unit}, {"median", f.median},
                         {"min", f.min},    {"max", f.max},   {"means_nothing", means_nothing_}};
  if (f.ratio > 0) json["ratio"] = f.ratio, json["of"] = f.of;
  if (f.target > 0) json["target"] = f.target;
  if (f.good > 0) json["good"] = f.good;
  std::ofstream file(json_, std::ios::app);
  file << json.dump() << std::endl;
  BATON_CHECK(file.good()) << "can't write " << json_;
}

void BenchFigures::Skip(const std::string& name, absl::string_view why) {
  std::printf("%s: skipped: %s\n", name.c_str(), std::string(why).c_str());
  std::fflush(stdout);
  if (json_.empty()) return;
  const nlohmann::json json = {{"skipped", name}, {"why", std::string(why)}};
  std::ofstream file(json_, std::ios::app);
  file << json.dump() << std::endl;
  BATON_CHECK(file.good()) << "can't write " << json_;
}

}  // namespace baton
