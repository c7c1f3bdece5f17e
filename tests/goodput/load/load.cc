#include "tests/goodput/load/load.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include <sched.h>
#include <sys/prctl.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/program.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "tests/goodput/load/metrics_scraper.h"
#include "tests/goodput/load/open_streams.h"
#include "tests/goodput/load/prompt_maker.h"
#include "tests/goodput/load/schedule.h"
#include "tests/goodput/load/server_connection.h"
#include "tests/goodput/load/serving_mode.h"
#include "tests/goodput/results/run_checks.h"
#include "tests/goodput/results/verdict.h"
#include "tests/goodput/traces/length_distribution.h"

namespace baton {
namespace {

using Clock = RequestStream::Clock;

constexpr size_t kMadeAhead = 64;  // Max requests that are built before they are due.
// Requests are built ahead of time, but not if a request that waits to be sent is due within this
// time.
constexpr auto kMakingTime = std::chrono::milliseconds(2);
// Time from construction to second 0 of the load.
constexpr auto kLead = std::chrono::milliseconds(100);

absl::Status CheckSpec(const LoadSpec& spec) {
  if (const auto mode = ServingModeOf(spec.mode); !mode.ok()) return mode.status();
  if (spec.channels < 1 || spec.channels > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.channels, " connections; --channels takes 1 to 1024"));
  }
  if (!(spec.temperature >= 0 && spec.temperature <= 100)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a temperature of ", spec.temperature, "; it takes 0 to 100"));
  }
  for (const absl::Duration limit : {spec.connect_timeout, spec.request_timeout}) {
    if (limit < absl::Milliseconds(1) || limit > absl::Hours(24)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a time limit of ", absl::FormatDuration(limit), "; it takes 1ms to 24h"));
    }
  }
  return absl::OkStatus();
}

Clock::duration SinceStart(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6 + 0.5));
}

double SecondsSince(Clock::time_point start) {
  return static_cast<double>(
             std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count()) /
         1e6;
}

// Gives the calling thread real-time priority while this object lives, if the system permits it.
// Without the permission, requests may be sent late, which the load measures as lag. Threads that
// the calling thread starts get the ordinary priority.
class RealTime {
 public:
  RealTime() {
    const sched_param lowest{.sched_priority = 1};
    set_ = sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &lowest) == 0;
  }
  ~RealTime() {
    const sched_param none{};
    if (set_) sched_setscheduler(0, SCHED_OTHER, &none);
  }

 private:
  bool set_ = false;
};

// One load from its first request to its last.
class Load {
 public:
  Load(const LoadSpec& spec, const Schedule& schedule, const PromptMaker& maker,
       ServerConnection* server, StopFlag* stop)
      : spec_(spec),
        schedule_(schedule),
        maker_(maker),
        server_(server),
        stop_(stop),
        start_(Clock::now() + kLead),
        streams_(spec.targets, stop) {}

  // Blocks until the load is over.
  void Run(const std::function<void(const RunProgress&)>& on_progress);

  bool partial() const { return partial_; }
  double stopped_s() const { return stopped_s_; }
  Clock::time_point start() const { return start_; }
  std::vector<RequestRecord> TakeRecords();

 private:
  void SendAll();
  void MakeAhead(uint32_t next);
  void Send(uint32_t index);
  bool IsMeasured(uint32_t index) const {
    return index >= schedule_.first_measured && index < schedule_.end_measured;
  }
  RequestRecord Planned(uint32_t index) const;
  // Returns true if all requests for which the load waits have ended. A load with a tail (requests
  // after the window) waits only for the measured requests, any other load for all requests.
  bool IsOver() const { return spec_.tail ? streams_.open_measured() == 0 : streams_.open() == 0; }
  void TellProgress(const std::function<void(const RunProgress&)>& on_progress, StopFlag* over);

  const LoadSpec& spec_;
  const Schedule& schedule_;
  const PromptMaker& maker_;
  ServerConnection* const server_;
  StopFlag* const stop_;
  const Clock::time_point start_;
  OpenStreams streams_;
  // Requests that are built but not sent. The first of them has the index next_.
  std::deque<OutgoingRequest> made_;
  uint32_t next_ = 0;  // Index of the first request that is not sent yet.
  bool partial_ = false;
  double stopped_s_ = 0;
};

RequestRecord Load::Planned(uint32_t index) const {
  const PlannedRequest& planned = schedule_.requests[index];
  return {.index = index,
          .mode = spec_.mode,
          .measured = IsMeasured(index),
          .scheduled_s = planned.at_s,
          .prompt_tokens = planned.prompt_tokens,
          .wanted_tokens = planned.output_tokens,
          .forced_length = spec_.workload.forced_length};
}

// Builds requests ahead of time, because building a long prompt takes time and would delay the
// sending.
void Load::MakeAhead(uint32_t next) {
  while (made_.size() < kMadeAhead && next + made_.size() < schedule_.requests.size()) {
    const bool due =
        Clock::now() + kMakingTime > start_ + SinceStart(schedule_.requests[next].at_s);
    if (due && !made_.empty()) return;
    made_.push_back(server_->Prepare(maker_.Make(next + static_cast<uint32_t>(made_.size()))));
  }
}

void Load::Send(uint32_t index) {
  streams_.Start(Planned(index), start_, spec_.keep_token_ids, server_, made_.front(),
                 spec_.request_timeout);
  made_.pop_front();
}

void Load::SendAll() {
  // Sets the slack of this thread's timers to 1,000 ns. The default of 50 us would be measured as
  // lag.
  prctl(PR_SET_TIMERSLACK, 1000);
  const RealTime real_time;
  for (; next_ < schedule_.requests.size(); ++next_) {
    const bool in_tail = next_ >= schedule_.end_measured;
    MakeAhead(next_);
    stop_->WaitUntil(start_ + SinceStart(schedule_.requests[next_].at_s),
                     [&] { return in_tail && IsOver(); });
    if (stop_->stopped() || (in_tail && IsOver())) return;
    Send(next_);
  }
}

void Load::Run(const std::function<void(const RunProgress&)>& on_progress) {
  StopFlag over;
  std::thread teller([&] { TellProgress(on_progress, &over); });
  SendAll();
  // This wait ends, because every request has a timeout.
  stop_->WaitUntil(StopFlag::kForever, [&] { return IsOver(); });
  if (stop_->stopped() && (next_ < schedule_.end_measured || !IsOver())) {
    partial_ = true;
    stopped_s_ = std::max(0.0, SecondsSince(start_));
  }
  streams_.StopAll();
  over.Stop();
  teller.join();
}

void Load::TellProgress(const std::function<void(const RunProgress&)>& on_progress,
                        StopFlag* over) {
  // Number of requests sent since the start of the load, sampled once per second. Holds the latest
  // six samples.
  std::deque<uint32_t> sent;
  for (int second = 1; !over->stopped(); ++second) {
    over->WaitUntil(start_ + std::chrono::seconds(second));
    if (!on_progress) continue;
    sent.push_back(streams_.sent());
    if (sent.size() > 6) sent.pop_front();
    // Reads `good` before the number of measured requests, which includes the good ones. So `good`
    // can't exceed that number, even if requests end between the two reads.
    const uint32_t good = streams_.good();
    RunProgress progress{.elapsed_s = std::max(0.0, SecondsSince(start_)),
                         .total_s = schedule_.window_end_s,
                         .sent = sent.back(),
                         .in_flight = streams_.open(),
                         .measured = streams_.ended_measured(),
                         .good = good};
    progress.ended = progress.sent - std::min(progress.sent, progress.in_flight);
    if (sent.size() > 1)
      progress.recent_rate = (sent.back() - sent.front()) / static_cast<double>(sent.size() - 1);
    on_progress(progress);
  }
}

std::vector<RequestRecord> Load::TakeRecords() {
  std::vector<RequestRecord> records = streams_.TakeRecords();
  for (; partial_ && next_ < schedule_.requests.size(); ++next_) {
    if (schedule_.requests[next_].at_s >= stopped_s_) break;
    records.push_back(Planned(next_));
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.index < b.index; });
  return records;
}

}  // namespace

absl::Status CheckLoad(const LoadSpec& spec) {
  absl::Status status = CheckSpec(spec);
  if (status.ok()) status = MakeSchedule(spec, LengthDistribution::kLongest).status();
  return status;
}

absl::StatusOr<RunResult> RunLoad(const LoadSpec& spec, StopFlag* stop,
                                  const std::function<void(const RunProgress&)>& on_progress) {
  RETURN_IF_ERROR(CheckSpec(spec));
  ASSIGN_OR_RETURN(auto server, ServerConnection::Open(spec, spec.channels, stop));
  if (spec.keep_token_ids && !server->GivesTokenIds()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--expect and --expect-write need the ids of the tokens, and ", spec.endpoint,
                     " does not give them: it takes no return_token_ids"));
  }
  ASSIGN_OR_RETURN(const Schedule schedule,
                   MakeSchedule(spec, ContextOf(server->server()), [&](const std::string& text) {
                     return server->Tokenize(text, stop);
                   }));
  std::vector<int32_t> tokens;
  if (schedule.prompts.empty()) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ordinary, server->OrdinaryTokens());
    tokens = std::move(ordinary);
  }
  const PromptMaker maker(spec, schedule, tokens, absl::StrFormat("goodput-%08x", RandomU64()));

  RunResult run;
  run.tool_version = std::string(kVersion);
  run.started_at = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  run.spec = spec.given;
  run.rate = spec.workload.arrivals.rate;
  run.mode = spec.mode;
  run.seed = spec.seed;
  run.server = server->server();
  run.targets = spec.targets;
  run.window_begin_s = schedule.window_begin_s;
  run.window_end_s = schedule.window_end_s;
  run.remarks = schedule.remarks;
  {
    Load load(spec, schedule, maker, server.get(), stop);
    MetricsScraper scraper(spec.metrics_urls, load.start());
    load.Run(on_progress);
    run.timeline = scraper.Finish(&run.remarks);
    run.partial = load.partial();
    run.records = load.TakeRecords();
    server->Remark(&run.remarks);
    if (run.partial) {
      run.window_end_s = std::min(run.window_end_s, load.stopped_s());
      EndWindowAtStop(&run);
    }
  }
  if (spec.keep_token_ids) {
    for (const RequestRecord& record : run.records)
      run.fingerprints.push_back(PromptMaker::Fingerprint(maker.Make(record.index)));
  }
  CheckRun(&run);
  return run;
}

}  // namespace baton
