#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/metrics/counter.h"
#include "common/metrics/gauge.h"
#include "common/metrics/histogram.h"
#include "common/metrics/metric_registry.h"
#include "router/core/phase_micros.h"
#include "router/core/slo_verdict.h"

namespace baton {

// Counters by caller. Any thread. The first kNames callers have counters of their own, and all
// others share those of kOther.
class CallerMetrics {
 public:
  static constexpr size_t kNames = 50;
  static constexpr char kOther[] = "other";
  struct One {
    Counter requests;  // Answers that were asked for.
    Counter refused;   // Answers that were refused because of a limit or of overload.
    Counter tokens;    // Tokens that were computed, of prompts and answers.
  };
  CallerMetrics() { callers_[kOther]; }
  One& Of(const std::string& caller);
  // Returns the value of a counter of each caller.
  std::vector<std::pair<std::string, double>> Values(Counter One::*counter) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, One> callers_ ABSL_GUARDED_BY(mutex_);  // Has kOther too.
};

// Metrics of the router's core on requests and workers. Their times are those passed to the core,
// not those of a clock. The core's thread writes, and any thread may read.
struct RequestMetrics {
  static constexpr int kCodes = 17;  // gRPC status codes, OK included.
  // Phases of PhaseMicros, in the order in which a request passes through them.
  static constexpr absl::string_view kPhases[] = {
      "queue", "prefill", "handover_hidden", "handover_exposed", "decode_wait", "decode"};
  // State of a worker that has attached. kEjected: ready, but kept from requests because it failed
  // too many. kLost: its stream is closed, or its reports have stopped.
  enum WorkerState { kReady, kDraining, kLost, kEjected };
  static constexpr absl::string_view kWorkerStates[] = {"ready", "draining", "lost", "ejected"};
  // Reason why a ready worker gets no requests.
  enum UnusedReason { kOtherIdentity, kNoPartner };
  static constexpr absl::string_view kUnusedReasons[] = {"other_identity", "no_partner"};

  // Metrics of the requests that were served in one mode.
  struct Served {
    std::array<Counter, kCodes> ended;  // Client RPCs, by status.
    Histogram ttft{SecondsBounds()};
    Histogram tpot{SecondsBounds()};  // Only answers of two tokens or more.
    // Durations of the answers that ended with OK. `phases` has the time that the same answers
    // spent in each phase.
    Histogram duration{SecondsBounds()};
    std::array<Histogram, std::size(kPhases)> phases{
        Histogram(SecondsBounds()), Histogram(SecondsBounds()), Histogram(SecondsBounds()),
        Histogram(SecondsBounds()), Histogram(SecondsBounds()), Histogram(SecondsBounds())};

    // Counts a client RPC that ended with `status`.
    void Ended(const absl::Status& status);
    // Counts an answer that ended with OK after `tokens` tokens.
    void Finished(const PhaseMicros& timing, size_t tokens);
  };
  Served disaggregated, colocated;

  Counter prompt_tokens;     // Prompt tokens, counted for each answer that entered the queue.
  Counter generated_tokens;  // Answer tokens, counted as they come, each position once.
  Histogram prompt_lengths{TokensBounds()};  // Prompt lengths of answers that ended with OK.
  Histogram answer_lengths{TokensBounds()};
  // Answers whose request has latency targets. An answer that its client cancelled is not judged.
  Counter slo_met, slo_missed, slo_met_tokens, slo_missed_tokens;
  // Answers that missed a target, indexed by the phase to which the miss is attributed
  // (SloVerdict::lost_to). Entry 0 counts failed requests.
  std::array<Counter, kSloPhases> slo_lost;
  Counter slow_clients;  // Requests ended because their client read too slowly.
  std::array<Gauge, std::size(kWorkerStates)> prefill_workers, decode_workers;
  std::array<Gauge, std::size(kUnusedReasons)> unused_prefill, unused_decode;
  // Requests that workers of each role have failed, and ejections of such workers.
  Counter prefill_failures, decode_failures, prefill_ejections, decode_ejections;
  // Requests that workers of each role have served.
  Counter prefill_successes, decode_successes;
  // Answers that failed because they were not tried again: because too many of the latest attempts
  // were retries, because too many of their attempts in a row brought no token, or because there
  // were too many attempts in all.
  Counter retries_refused, broken_too_often, tried_too_often;
  // Answers that failed because there was no usable worker for --pair-wait, or none with room for
  // --room-wait.
  Counter no_worker, no_room;
  // Tokens that were refused because the workers of a role have too much to do: those of prompts
  // for prefill workers, and the expected ones of answers for decode workers.
  Counter prefill_refused_tokens, decode_refused_tokens;
  CallerMetrics callers;
  // Predicted time until a request that comes now would begin, for the work that waits for each
  // role, in milliseconds.
  Gauge prefill_wait_ms, decode_wait_ms;
  // Expected tokens of an answer whose length the client does not limit; 0: not known. Not
  // exported.
  Gauge expected_answer;

  Gauge prefix_index_bytes, prefix_index_names;  // Memory of the prefix index, and names in it.
  // Names that the prefix index evicted to make room; changes and recent prompts that found no
  // room.
  Counter prefix_index_evictions, prefix_index_dropped;
  // Time from a change of a worker's prefix cache until the index had it. One value per message.
  Histogram cache_event_lag{SecondsBounds()};
  // Prompt tokens that the worker that computes the prompt was expected to have cached.
  Counter expected_prefill_hits, expected_decode_hits;

  // Counts the verdict on an answer of `tokens` tokens that ended with OK.
  void Judged(const SloVerdict& verdict, size_t tokens);
  // Counts `answers` answers that have latency targets and ended without OK after `tokens` tokens
  // in all. Cancelled answers are not counted.
  void Failed(const absl::Status& status, size_t tokens, int answers = 1);
  // Counts the tokens of a refused request for the role whose workers are short.
  void RefusedTokens(uint64_t prompt, double answer, bool decode_is_short);
  // Adds all metrics to the registry. `this` outlives the registry's last Text().
  void AddTo(MetricRegistry* registry) const;
};

// Returns the name of a phase to which a missed target is attributed, for example "decode_wait".
// Returns "failed" for an unspecified phase.
std::string SloPhaseName(SloPhase phase);

// Returns the mean time per token after the first, in seconds; 0 for answers of less than two
// tokens.
double TpotSeconds(const PhaseMicros& timing, size_t tokens);

}  // namespace baton
