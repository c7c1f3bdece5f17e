#include "tests/goodput/unloaded.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/random.h"
#include "tests/goodput/open_streams.h"
#include "tests/goodput/prompt_maker.h"
#include "tests/goodput/router_connection.h"
#include "tests/goodput/schedule.h"
#include "tests/goodput/verdict.h"

namespace baton {
namespace {

constexpr uint32_t kProbes = 5;
constexpr uint32_t kLeastOutput = 8, kMostOutput = 64;  // tokens: enough for a pace, soon over

uint32_t Median(std::vector<uint32_t> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Probes of the median lengths in place of the load's requests.
void MakeProbes(uint32_t context_tokens, Schedule* schedule) {
  std::vector<uint32_t> prompts, outputs;
  for (uint32_t i = schedule->first_measured; i < schedule->end_measured; ++i) {
    prompts.push_back(schedule->requests[i].prompt_tokens);
    outputs.push_back(schedule->requests[i].output_tokens);
  }
  PlannedRequest probe;
  probe.prompt_tokens = Median(std::move(prompts));
  probe.output_tokens = std::clamp(Median(std::move(outputs)), kLeastOutput, kMostOutput);
  probe.output_tokens =
      std::min(probe.output_tokens,
               std::max(1u, context_tokens - std::min(context_tokens - 1, probe.prompt_tokens)));
  schedule->trace.rows.clear();  // no shared blocks: nothing of a probe may be in a cache
  schedule->requests.assign(kProbes + 1, probe);
  for (uint32_t i = 0; i <= kProbes && !schedule->prompts.empty(); ++i)
    schedule->requests[i].row = static_cast<uint32_t>(i % schedule->prompts.size());
}

double MedianOf(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

}  // namespace

absl::StatusOr<UnloadedLatency> MeasureUnloaded(const LoadSpec& spec, StopFlag* stop) {
  auto router = RouterConnection::Open({.endpoint = spec.endpoint,
                                        .model = spec.model,
                                        .channels = 1,
                                        .connect_timeout = spec.connect_timeout},
                                       stop);
  if (!router.ok()) return router.status();
  const uint32_t context_tokens = (*router)->server().context_tokens;
  absl::StatusOr<Schedule> schedule = MakeSchedule(spec, context_tokens);
  if (!schedule.ok()) return schedule.status();
  MakeProbes(context_tokens, &*schedule);
  std::vector<int32_t> tokens;
  if (schedule->prompts.empty()) {
    absl::StatusOr<std::vector<int32_t>> ordinary = (*router)->OrdinaryTokens();
    if (!ordinary.ok()) return ordinary.status();
    tokens = *std::move(ordinary);
  }
  LoadSpec own = spec;
  own.prompt_salt = RandomU64() | 1;  // prompts that no other load sends
  const PromptMaker maker(own, *schedule, tokens, absl::StrFormat("unloaded-%08x", RandomU64()));
  std::vector<double> ttft, tpot;
  UnloadedLatency unloaded{.output_tokens = schedule->requests[0].output_tokens, .probes = kProbes};
  for (uint32_t i = 0; i <= kProbes; ++i) {
    OpenStreams streams({}, stop);
    const v1::GenerateRequest request = maker.Make(i);
    streams.Start({.index = i,
                   .mode = spec.mode,
                   .wanted_tokens = schedule->requests[i].output_tokens,
                   .forced_length = spec.workload.forced_length},
                  GenerateStream::Clock::now(), false, (*router)->stub(0), request,
                  spec.request_timeout);
    stop->WaitUntil(StopFlag::kForever, [&] { return streams.open() == 0; });
    streams.StopAll();
    const RequestRecord record = streams.TakeRecords()[0];
    if (stop->stopped())
      return absl::CancelledError("stopped while the unloaded latency was measured");
    if (record.outcome != Outcome::kCompleted) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the unloaded latency can't be measured: a single request of ", record.prompt_tokens,
          " tokens ended with ", record.status, ": ", record.message));
    }
    unloaded.prompt_tokens = std::max(unloaded.prompt_tokens, record.prompt_tokens);
    if (i == 0) continue;
    ttft.push_back(Ttft(record));
    tpot.push_back(Tpot(record));
  }
  unloaded.ttft_s = MedianOf(std::move(ttft));
  unloaded.tpot_s = MedianOf(std::move(tpot));
  return unloaded;
}

}  // namespace baton
