#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"
#include "common/metrics/counter.h"
#include "common/metrics/gauge.h"
#include "common/metrics/histogram.h"
#include "common/metrics/metric_registry.h"

namespace baton {

// What the router's core counts of requests and workers, under the time that it is told. The core's
// thread writes, any thread reads.
struct RequestMetrics {
  static constexpr int kCodes = 17;  // of gRPC, OK among them
  // The phases of v1::Timing, in the order that a request goes through them.
  static constexpr absl::string_view kPhases[] = {
      "queue", "prefill", "handover_hidden", "handover_exposed", "decode_wait", "decode"};
  // Of a worker that has attached; lost: its stream is closed, or its reports have stopped.
  enum WorkerState { kReady, kDraining, kLost };
  static constexpr absl::string_view kWorkerStates[] = {"ready", "draining", "lost"};
  // Why a ready worker is given no requests.
  enum UnusedReason { kOtherIdentity, kNoPartner };
  static constexpr absl::string_view kUnusedReasons[] = {"other_identity", "no_partner"};

  // Of requests that were served in one mode.
  struct Served {
    std::array<Counter, kCodes> ended;  // client RPCs, by status
    Histogram ttft{SecondsBounds()};
    Histogram tpot{SecondsBounds()};      // of answers of two tokens or more
    Histogram duration{SecondsBounds()};  // of answers that ended with OK, as are the phases
    std::array<Histogram, std::size(kPhases)> phases{
        Histogram(SecondsBounds()), Histogram(SecondsBounds()), Histogram(SecondsBounds()),
        Histogram(SecondsBounds()), Histogram(SecondsBounds()), Histogram(SecondsBounds())};

    void Ended(const absl::Status& status);
    // An answer that ended with OK after `tokens` tokens.
    void Finished(const v1::Timing& timing, size_t tokens);
  };
  Served disaggregated, colocated;

  Counter prompt_tokens;                     // of answers that were taken into the queue
  Counter generated_tokens;                  // as they come, each position once
  Histogram prompt_lengths{TokensBounds()};  // tokens; of answers that ended with OK
  Histogram answer_lengths{TokensBounds()};
  // Of answers whose request has latency targets; those that their client cancelled are not judged.
  Counter slo_met, slo_missed, slo_met_tokens, slo_missed_tokens;
  std::array<Counter, v1::SloPhase_ARRAYSIZE> slo_lost;  // by phase; the first: the request failed
  Counter slow_clients;  // requests ended because their client read too slowly
  std::array<Gauge, std::size(kWorkerStates)> prefill_workers, decode_workers;
  std::array<Gauge, std::size(kUnusedReasons)> unused_prefill, unused_decode;

  void Judged(const v1::SloVerdict& verdict, size_t tokens);
  // Answers to a request with targets that ended without OK, after `tokens` tokens.
  void Failed(const absl::Status& status, size_t tokens, int answers = 1);
  // `this` outlives the registry's last Text().
  void AddTo(MetricRegistry* registry) const;
};

// What a target was lost to, as a word: decode_wait, for one; failed when it is not set.
std::string SloPhaseName(v1::SloPhase phase);

// Mean time per token after the first, seconds; 0 for answers of less than two tokens.
double TpotSeconds(const v1::Timing& timing, size_t tokens);

}  // namespace baton
