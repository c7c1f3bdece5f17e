#include "tests/goodput/load/arrivals.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr double kHighestRate = 10'000;
constexpr double kLowestRate = 1e-4;
constexpr double kMicrosecond = 1e-6;  // Schedules are rounded to whole microseconds.

absl::Status CheckWithin(const char* what, double value, double min, double max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", value, "; it takes ", min, " to ", max));
}

// Returns the times of the trace's rows. Rows that share a time are spread at random over the
// interval until the next time in the trace.
std::vector<double> SpreadTimes(const Trace& trace, RandomStream* random) {
  std::vector<double> times;
  for (size_t first = 0; first < trace.rows.size();) {
    size_t end = first + 1;
    while (end < trace.rows.size() && trace.rows[end].at_s == trace.rows[first].at_s) ++end;
    const double from_s = trace.rows[first].at_s;
    const double to_s = end < trace.rows.size() ? trace.rows[end].at_s : trace.Period();
    for (size_t i = first; i < end; ++i) {
      times.push_back(end - first == 1 ? from_s
                                       : from_s + (1 - random->Uniform()) * (to_s - from_s));
    }
    first = end;
  }
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace

absl::Status CheckArrivals(const ArrivalSpec& spec) {
  if (spec.kind != ArrivalKind::kTrace || spec.rate != 0) {
    absl::Status status = CheckWithin("the rate", spec.rate, kLowestRate, kHighestRate);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(status.message(), " requests per second"));
    }
  }
  if (spec.kind == ArrivalKind::kGamma)
    return CheckWithin("the coefficient of variation", spec.cv, 0.05, 50);
  if (spec.kind == ArrivalKind::kOnOff) {
    absl::Status status = CheckWithin("the time on", spec.on_s, 0.001, 1e6);
    status.Update(CheckWithin("the time off", spec.off_s, 0.001, 1e6));
    return status;
  }
  return absl::OkStatus();
}

size_t FirstRow(uint64_t seed, size_t rows) {
  return RandomStream(seed, RandomStream::kRows).Below(static_cast<uint32_t>(rows));
}

Arrivals::Arrivals(const ArrivalSpec& spec, const Trace* trace, uint64_t seed, const Parts& parts)
    : spec_(spec),
      parts_(parts),
      trace_(trace),
      random_(seed, RandomStream::kArrivals, 0),
      periods_(seed, RandomStream::kArrivals, 1) {
  if (spec_.kind == ArrivalKind::kOnOff &&
      periods_.Uniform() * (spec_.on_s + spec_.off_s) <= spec_.on_s) {
    on_left_s_ = spec_.on_s * periods_.Exponential();
  }
  if (spec_.kind != ArrivalKind::kTrace) return;
  first_row_ = FirstRow(seed, trace->rows.size());
  if (spec_.spread) spread_s_ = SpreadTimes(*trace, &random_);
}

double Arrivals::NextOnOff() {
  double gap_s = random_.Exponential() * spec_.on_s / (spec_.on_s + spec_.off_s) / spec_.rate;
  while (gap_s > on_left_s_) {
    gap_s -= on_left_s_;
    now_s_ += on_left_s_ + spec_.off_s * periods_.Exponential();
    on_left_s_ = spec_.on_s * periods_.Exponential();
  }
  on_left_s_ -= gap_s;
  return now_s_ += gap_s;
}

// Returns the time of the row that is `count` rows after the first one. The trace repeats at its
// end.
double Arrivals::TraceTime(size_t count) const {
  const size_t rows = trace_->rows.size();
  const size_t row = (first_row_ + count) % rows;
  const double passes_s = static_cast<double>((first_row_ + count) / rows) * trace_->Period();
  return passes_s + (spread_s_.empty() ? trace_->rows[row].at_s : spread_s_[row]);
}

void Arrivals::NextPart() {
  const bool warmup = part_end_ == 0 && part_end_s_ == 0 && parts_.warmup_s > 0;
  const double length_s = warmup ? parts_.warmup_s : parts_.window_s;
  const auto rows = static_cast<size_t>(std::round(spec_.rate * length_s));
  part_begin_ = part_end_;
  part_begin_s_ = part_end_s_;
  part_end_ += warmup ? rows : std::max<size_t>(rows, 1);
  part_end_s_ += length_s;
}

double Arrivals::NextTrace() {
  if (spec_.rate == 0) return TraceTime(count_++) - TraceTime(0);
  while (count_ == part_end_) NextPart();
  const double from_s = TraceTime(part_begin_), span_s = TraceTime(part_end_) - from_s;
  const double share = span_s > 0 ? (TraceTime(count_) - from_s) / span_s : 0;
  ++count_;
  // A row at the end of this part may have the same time as the first row of the next part. Its
  // request must still arrive before this part ends.
  const double last_s = std::max(part_begin_s_, part_end_s_ - kMicrosecond);
  return std::min(part_begin_s_ + share * (part_end_s_ - part_begin_s_), last_s);
}

double Arrivals::Next() {
  switch (spec_.kind) {
    case ArrivalKind::kPoisson:
      return now_s_ += random_.Exponential() / spec_.rate;
    case ArrivalKind::kGamma: {
      const double shape = 1 / (spec_.cv * spec_.cv);
      return now_s_ += random_.Gamma(shape) / shape / spec_.rate;
    }
    case ArrivalKind::kUniform:
      return static_cast<double>(++count_) / spec_.rate;
    case ArrivalKind::kOnOff:
      return NextOnOff();
    case ArrivalKind::kTrace:
      return NextTrace();
  }
  return now_s_;
}

}  // namespace baton
