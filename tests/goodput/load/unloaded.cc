#include "tests/goodput/load/unloaded.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "tests/goodput/load/open_streams.h"
#include "tests/goodput/load/prompt_maker.h"
#include "tests/goodput/load/schedule.h"
#include "tests/goodput/load/server_connection.h"
#include "tests/goodput/results/verdict.h"

namespace baton {
namespace {

constexpr uint32_t kProbes = 5;
// Number of requests of the workload over which the median lengths are computed.
constexpr uint32_t kAmong = 1000;
// Limits on the output tokens of a probe: enough tokens to measure a pace, but few enough to end
// soon.
constexpr uint32_t kMinOutput = 8, kMaxOutput = 64;

uint32_t Median(std::vector<uint32_t> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Replaces the requests of the schedule by probes that have the median lengths. Returns the median
// length of the answers.
uint32_t MakeProbes(uint32_t context_tokens, Schedule* schedule) {
  std::vector<uint32_t> prompts, outputs;
  for (uint32_t i = schedule->first_measured; i < schedule->end_measured; ++i) {
    prompts.push_back(schedule->requests[i].prompt_tokens);
    outputs.push_back(schedule->requests[i].output_tokens);
  }
  const uint32_t prompt = Median(std::move(prompts)), answer = Median(std::move(outputs));
  // The length of a text can't be changed. So the probes use the texts whose lengths are nearest to
  // the median, each text once if there are enough.
  std::map<uint32_t, PlannedRequest> by_row;
  for (uint32_t i = schedule->first_measured; i < schedule->end_measured; ++i)
    by_row.emplace(schedule->prompts.empty() ? 0 : schedule->requests[i].row,
                   schedule->requests[i]);
  std::vector<PlannedRequest> probes;
  for (const auto& [row, request] : by_row) probes.push_back(request);
  const auto distance = [&](const PlannedRequest& probe) {
    return std::abs(static_cast<double>(probe.prompt_tokens) - prompt);
  };
  std::stable_sort(probes.begin(), probes.end(),
                   [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  if (schedule->prompts.empty()) probes[0].prompt_tokens = prompt;
  schedule->requests.clear();
  for (uint32_t i = 0; i <= kProbes; ++i) {
    PlannedRequest& probe = schedule->requests.emplace_back(probes[i % probes.size()]);
    const uint32_t room = context_tokens - std::min(context_tokens - 1, probe.prompt_tokens);
    probe.output_tokens = std::min(std::clamp(answer, kMinOutput, kMaxOutput), room);
  }
  // Removes the trace's shared blocks, so that no part of a probe can be in a cache.
  schedule->trace.rows.clear();
  return answer;
}

double MedianOf(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

}  // namespace

absl::StatusOr<UnloadedLatency> MeasureUnloaded(const LoadSpec& spec, StopFlag* stop) {
  ASSIGN_OR_RETURN(auto server, ServerConnection::Open(spec, 1, stop));
  const uint32_t context_tokens = ContextOf(server->server());
  LoadSpec own = spec;
  own.prompt_salt = RandomU64() | 1;  // The random salt gives prompts that no other load sends.
  // Plans 1,000 evenly spaced requests instead of the load's own arrivals, because a window may
  // hold few requests or none.
  own.workload.arrivals = {.kind = ArrivalKind::kUniform, .rate = kAmong};
  own.warmup = absl::ZeroDuration();
  own.duration = absl::Seconds(1);
  own.tail = false;
  own.max_requests = 0;
  ASSIGN_OR_RETURN(Schedule schedule,
                   MakeSchedule(own, context_tokens, [&](const std::string& text) {
                     return server->Tokenize(text, stop);
                   }));
  const uint32_t answer_tokens = MakeProbes(context_tokens, &schedule);
  std::vector<int32_t> tokens;
  if (schedule.prompts.empty()) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ordinary, server->OrdinaryTokens());
    tokens = std::move(ordinary);
  }
  const PromptMaker maker(own, schedule, tokens, absl::StrFormat("unloaded-%08x", RandomU64()));
  std::vector<double> ttft, tpot;
  std::vector<uint32_t> prompt_tokens;
  UnloadedLatency unloaded{.output_tokens = schedule.requests[0].output_tokens,
                           .answer_tokens = answer_tokens,
                           .probes = kProbes};
  for (uint32_t i = 0; i <= kProbes; ++i) {
    OpenStreams streams({}, stop);
    const OutgoingRequest request = server->Prepare(maker.Make(i));
    streams.Start({.index = i,
                   .mode = spec.mode,
                   .wanted_tokens = schedule.requests[i].output_tokens,
                   .forced_length = spec.workload.forced_length},
                  RequestStream::Clock::now(), false, server.get(), request, spec.request_timeout);
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
    if (i == 0) continue;
    prompt_tokens.push_back(record.prompt_tokens);
    ttft.push_back(Ttft(record));
    if (record.token_s.size() > 1) tpot.push_back(Tpot(record));
  }
  unloaded.prompt_tokens = Median(std::move(prompt_tokens));
  unloaded.ttft_s = MedianOf(std::move(ttft));
  unloaded.tpot_s = MedianOf(std::move(tpot));
  return unloaded;
}

}  // namespace baton
