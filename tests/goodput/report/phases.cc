#include "tests/goodput/report/phases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/goodput/results/verdict.h"

namespace baton {
namespace {

size_t At(Phase phase) { return static_cast<size_t>(phase); }

// Returns the cause that has the largest number in `parts`.
Loss Largest(const std::vector<std::pair<double, Loss>>& parts) {
  return std::max_element(parts.begin(), parts.end(),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

Loss FirstTokenLoss(const RequestRecord& record) {
  const PhaseTimes& phases = record.phases;
  return Largest({{phases.queue_s, Loss::kQueue},
                  {phases.prefill_s, Loss::kPrefill},
                  {phases.ttft_s - phases.queue_s - phases.prefill_s, Loss::kFirstOther},
                  {Ttft(record) - phases.ttft_s, Loss::kOutside}});
}

Loss PaceLoss(const RequestRecord& record, const SloTargets& targets) {
  const PhaseTimes& phases = record.phases;
  const double gaps = record.token_s.size() - 1.0;
  const double later = record.token_s.back() - record.token_s.front();
  const double allowed = targets.tpot_s ? gaps * *targets.tpot_s : 0;
  const double told = phases.handover_exposed_s + phases.decode_wait_s + phases.decode_s;
  return Largest({{phases.handover_exposed_s, Loss::kHandover},
                  {phases.decode_wait_s, Loss::kDecodeWait},
                  {phases.decode_s - allowed, Loss::kDecode},
                  {later - told, Loss::kOutside}});
}

}  // namespace

const char* PhaseName(size_t phase) {
  constexpr const char* kNames[kPhases] = {"client and network", "queue",  "prefill", "hand-over",
                                           "wait for decode",    "decode", "router"};
  return kNames[phase];
}

int PhaseColor(size_t phase) {
  constexpr int kColorOf[kPhases] = {7, 6, 0, 4, 3, 2, 5};
  return kColorOf[phase];
}

Course CourseOf(const RequestRecord& record) {
  Course course{};
  if (!record.has_phases) return course;
  const PhaseTimes& phases = record.phases;
  course[At(Phase::kQueue)] = phases.queue_s;
  course[At(Phase::kPrefill)] = phases.prefill_s;
  course[At(Phase::kHandover)] = phases.handover_exposed_s;
  course[At(Phase::kDecodeWait)] = phases.decode_wait_s;
  course[At(Phase::kDecode)] = phases.decode_s;
  const double told = std::accumulate(course.begin(), course.end(), 0.0);
  course[At(Phase::kOther)] = std::max(0.0, phases.total_s - told);
  const double end_to_end = EndToEnd(record);
  if (std::isfinite(end_to_end)) {
    course[At(Phase::kOutside)] = std::max(0.0, end_to_end - std::max(phases.total_s, told));
  }
  return course;
}

const char* LossName(size_t loss) {
  constexpr const char* kNames[kLosses] = {"queue before prefill",
                                           "its own prefill",
                                           "waiting in the router",
                                           "hand-over of KV",
                                           "wait for decode",
                                           "decode steps",
                                           "client and network",
                                           "late, not told where",
                                           "rejected",
                                           "timed out",
                                           "failed",
                                           "stopped by the tool"};
  return kNames[loss];
}

Loss LossOf(const RequestRecord& record, const SloTargets& targets) {
  switch (record.outcome) {
    case Outcome::kRejected:
      return Loss::kRejected;
    case Outcome::kTimedOut:
      return Loss::kTimedOut;
    case Outcome::kFailed:
    case Outcome::kWrongLength:
      return Loss::kFailed;
    case Outcome::kStopped:
    case Outcome::kNotSent:
      return Loss::kStopped;
    case Outcome::kCompleted:
      break;
  }
  if (!record.has_phases || record.token_s.empty()) return Loss::kUntold;
  const double first_over = targets.ttft_s ? Ttft(record) - *targets.ttft_s : -1;
  const double gaps = record.token_s.size() - 1.0;
  const double pace_over = targets.tpot_s ? gaps * (Tpot(record) - *targets.tpot_s) : -1;
  if (first_over > 0 || pace_over > 0) {
    return first_over >= pace_over ? FirstTokenLoss(record) : PaceLoss(record, targets);
  }
  // Only the end-to-end target was missed. The cause is sought in the longer part of the answer:
  // before or after the first token.
  return record.token_s.size() > 1 && record.token_s.back() - record.token_s.front() > Ttft(record)
             ? PaceLoss(record, targets)
             : FirstTokenLoss(record);
}

int LossTable::Total(size_t loss) const {
  return std::accumulate(counts[loss].begin(), counts[loss].end(), 0);
}

LossTable LossesOf(const RunResult& run) {
  std::vector<const RequestRecord*> measured;
  for (const RequestRecord& record : run.records) {
    if (record.measured) measured.push_back(&record);
  }
  std::stable_sort(measured.begin(), measured.end(),
                   [](const RequestRecord* a, const RequestRecord* b) {
                     return a->prompt_tokens < b->prompt_tokens;
                   });
  LossTable table;
  for (size_t i = 0; i < measured.size(); ++i) {
    const size_t quartile = i * 4 / measured.size();
    ++table.offered[quartile];
    if (Judge(*measured[i], run.targets).good) continue;
    ++table.counts[static_cast<size_t>(LossOf(*measured[i], run.targets))][quartile];
    ++table.lost;
  }
  return table;
}

}  // namespace baton
