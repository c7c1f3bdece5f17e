#include "tests/goodput/results/verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/goodput/results/run_file.h"

namespace baton {
namespace {

constexpr double kLate_s = 1e-3;

// Times are whole microseconds, held as doubles. The rounding error of a difference of two times is
// below this number.
constexpr double kRounding_s = 1e-9;

bool Met(double value, const std::optional<double>& target, double factor = 1) {
  return !target.has_value() || value <= factor * *target + kRounding_s;
}

std::array<PromptQuartile, 4> QuartilesOf(const std::vector<const RequestRecord*>& measured,
                                          const SloTargets& targets) {
  std::vector<const RequestRecord*> sorted = measured;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return a->prompt_tokens < b->prompt_tokens;
  });
  std::array<PromptQuartile, 4> quartiles;
  for (size_t i = 0; i < sorted.size(); ++i) {
    PromptQuartile& quartile = quartiles[i * 4 / sorted.size()];
    if (quartile.offered++ == 0) quartile.shortest_tokens = sorted[i]->prompt_tokens;
    quartile.longest_tokens = sorted[i]->prompt_tokens;
    quartile.good += Judge(*sorted[i], targets).good;
  }
  return quartiles;
}

void Add(const PhaseTimes& more, PhaseTimes* sum, double weight) {
  sum->queue_s += weight * more.queue_s;
  sum->prefill_s += weight * more.prefill_s;
  sum->handover_hidden_s += weight * more.handover_hidden_s;
  sum->handover_exposed_s += weight * more.handover_exposed_s;
  sum->decode_wait_s += weight * more.decode_wait_s;
  sum->decode_s += weight * more.decode_s;
  sum->ttft_s += weight * more.ttft_s;
  sum->total_s += weight * more.total_s;
}

PhaseTimes MeanPhases(const std::vector<const RequestRecord*>& measured, uint32_t with_phases) {
  PhaseTimes mean;
  for (const RequestRecord* record : measured) {
    if (record->has_phases) Add(record->phases, &mean, 1.0 / with_phases);
  }
  return mean;
}

}  // namespace

double Ttft(const RequestRecord& record) {
  if (record.token_s.empty()) return std::numeric_limits<double>::infinity();
  return record.token_s.front() - record.scheduled_s;
}

double Tpot(const RequestRecord& record) {
  const size_t tokens = record.token_s.size();
  if (tokens < 2) return 0;
  return (record.token_s.back() - record.token_s.front()) / static_cast<double>(tokens - 1);
}

double W10(const RequestRecord& record) {
  if (record.token_s.size() < 2) return 0;
  std::vector<double> gaps;
  gaps.reserve(record.token_s.size() - 1);
  for (size_t i = 1; i < record.token_s.size(); ++i)
    gaps.push_back(record.token_s[i] - record.token_s[i - 1]);
  const size_t worst = (gaps.size() + 9) / 10;
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<ptrdiff_t>(worst - 1), gaps.end(),
                   std::greater<double>());
  return std::accumulate(gaps.begin(), gaps.begin() + static_cast<ptrdiff_t>(worst), 0.0) /
         static_cast<double>(worst);
}

double EndToEnd(const RequestRecord& record) {
  if (record.token_s.empty()) return std::numeric_limits<double>::infinity();
  return record.token_s.back() - record.scheduled_s;
}

Judgement Judge(const RequestRecord& record, const SloTargets& targets) {
  Judgement judgement;
  if (record.outcome != Outcome::kCompleted) return judgement;
  judgement.ttft_met = Met(Ttft(record), targets.ttft_s);
  judgement.tpot_met = Met(Tpot(record), targets.tpot_s);
  judgement.w10_met = Met(W10(record), targets.tpot_s, 2);
  judgement.e2e_met = Met(EndToEnd(record), targets.e2e_s);
  judgement.good = judgement.ttft_met && judgement.tpot_met && judgement.e2e_met;
  judgement.strict = judgement.good && judgement.w10_met;
  return judgement;
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const size_t index =
      static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(values.size())) - 1);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(index), values.end());
  return values[index];
}

Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = static_cast<uint32_t>(values.size()),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = Percentile(values, 0.5),
          .p90 = Percentile(values, 0.9),
          .p99 = Percentile(values, 0.99),
          .max = *std::max_element(values.begin(), values.end())};
}

ClientLag LagOf(absl::Span<const RequestRecord> records) {
  std::vector<double> lags;
  ClientLag lag;
  for (const RequestRecord& record : records) {
    if (record.sent_s < 0) continue;
    lags.push_back(record.sent_s - record.scheduled_s);
    lag.late += lags.back() > kLate_s;
    lag.worst_s = std::max(lag.worst_s, lags.back());
  }
  lag.sent = static_cast<uint32_t>(lags.size());
  lag.p99_s = Percentile(std::move(lags), 0.99);
  return lag;
}

Verdict ComputeVerdict(const RunResult& run) {
  Verdict verdict;
  verdict.window_s = run.window_end_s - run.window_begin_s;
  verdict.lag = LagOf(run.records);
  std::vector<const RequestRecord*> measured;
  for (const RequestRecord& record : run.records) {
    if (record.measured) measured.push_back(&record);
  }
  std::vector<double> ttft, tpot, e2e, w10;
  uint64_t good_tokens = 0, tokens = 0;
  for (const RequestRecord* record : measured) {
    const Judgement judgement = Judge(*record, run.targets);
    verdict.outcomes[OutcomeName(record->outcome)]++;
    tokens += record->token_s.size();
    verdict.with_phases += record->has_phases;
    if (record->outcome != Outcome::kCompleted) {
      if (!record->status.empty()) verdict.failures[record->status]++;
      continue;
    }
    verdict.completed++;
    verdict.good += judgement.good;
    if (!judgement.good && !record->lost_to.empty()) verdict.lost_to[record->lost_to]++;
    verdict.strict += judgement.strict;
    verdict.ttft_met += judgement.ttft_met;
    verdict.tpot_met += judgement.tpot_met;
    verdict.w10_met += judgement.w10_met;
    verdict.e2e_met += judgement.e2e_met;
    if (judgement.good) good_tokens += record->token_s.size();
    ttft.push_back(Ttft(*record));
    e2e.push_back(EndToEnd(*record));
    if (record->token_s.size() < 2) {
      verdict.single_token++;
      continue;
    }
    tpot.push_back(Tpot(*record));
    w10.push_back(W10(*record));
  }
  verdict.offered = static_cast<uint32_t>(measured.size());
  if (verdict.window_s > 0) {
    verdict.offered_rate = verdict.offered / verdict.window_s;
    verdict.goodput = verdict.good / verdict.window_s;
    verdict.strict_goodput = verdict.strict / verdict.window_s;
    verdict.token_goodput = static_cast<double>(good_tokens) / verdict.window_s;
    verdict.token_rate = static_cast<double>(tokens) / verdict.window_s;
  }
  if (verdict.offered > 0) {
    verdict.attainment = static_cast<double>(verdict.good) / verdict.offered;
    verdict.strict_attainment = static_cast<double>(verdict.strict) / verdict.offered;
    verdict.quartiles = QuartilesOf(measured, run.targets);
  }
  verdict.ttft = PercentilesOf(std::move(ttft));
  verdict.tpot = PercentilesOf(std::move(tpot));
  verdict.e2e = PercentilesOf(std::move(e2e));
  verdict.w10 = PercentilesOf(std::move(w10));
  verdict.mean_phases = MeanPhases(measured, verdict.with_phases);
  return verdict;
}

}  // namespace baton
