#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Computes figures from records, without a dependency on the code that made the records.
// tests/goodput/README.md has the definitions.

// Time from the scheduled arrival to the first token, in seconds; infinite without a first token.
double Ttft(const RequestRecord& record);
// Mean time per output token after the first, in seconds; 0 for a single token.
double Tpot(const RequestRecord& record);
// Mean of the largest tenth (rounded up) of the gaps between tokens, in seconds (Qin et al.,
// FAST'25); 0 for a single token.
double W10(const RequestRecord& record);
// Time from the scheduled arrival to the last token, in seconds; infinite without tokens.
double EndToEnd(const RequestRecord& record);

// Targets that one request met. A request that did not complete has met none.
struct Judgement {
  bool ttft_met = false;
  bool tpot_met = false;  // True also for an answer of a single token, which has no pace.
  bool w10_met = false;   // True if W10 is at most twice the TPOT target.
  bool e2e_met = false;
  bool good = false;    // True if the targets ttft, tpot and e2e are met.
  bool strict = false;  // True if the request is good and w10_met is true.
};
Judgement Judge(const RequestRecord& record, const SloTargets& targets);

// Figures of completed requests only. All 0 if there are none.
struct Percentiles {
  uint32_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;  // All figures are in seconds.
};
// Returns the smallest value such that at least `share` of the values are not above it (nearest
// rank). `values` may be in any order. Returns 0 for no values.
double Percentile(std::vector<double> values, double share);
Percentiles PercentilesOf(std::vector<double> values);

// One of four groups of measured requests. The first group has the shortest prompts and the last
// group the longest. The sizes of the groups differ by at most 1.
struct PromptQuartile {
  uint32_t shortest_tokens = 0, longest_tokens = 0;
  uint32_t offered = 0, good = 0;
};

// Lateness of the tool itself, over all sent requests: the time from a request's scheduled arrival
// until the tool hands it to gRPC.
struct ClientLag {
  uint32_t sent = 0;
  uint32_t late = 0;  // Requests sent more than a millisecond late.
  double p99_s = 0;
  double worst_s = 0;
};
ClientLag LagOf(absl::Span<const RequestRecord> records);

// Figures over the measured requests. Every measured request counts in the denominators, however it
// ended.
struct Verdict {
  double window_s = 0;
  uint32_t offered = 0;
  uint32_t completed = 0;
  uint32_t good = 0;
  uint32_t strict = 0;
  uint32_t ttft_met = 0, tpot_met = 0, w10_met = 0, e2e_met = 0;
  uint32_t single_token = 0;  // Completed requests with one token, which have no pace.
  double offered_rate = 0;    // Offered requests per second.
  double goodput = 0;         // Good requests per second.
  double strict_goodput = 0;
  double token_goodput = 0;  // Output tokens of good requests, per second.
  double token_rate = 0;     // Output tokens received from all measured requests, per second.
  double attainment = 0;     // good / offered; 0 if nothing was offered.
  double strict_attainment = 0;
  Percentiles ttft, tpot, e2e, w10;
  std::array<PromptQuartile, 4> quartiles;
  uint32_t with_phases = 0;
  PhaseTimes mean_phases;                    // Mean over requests with a Summary.
  std::map<std::string, uint32_t> outcomes;  // Number of requests for each OutcomeName.
  // Number of requests that did not complete, for each gRPC status name.
  std::map<std::string, uint32_t> failures;
  // Number of completed requests that were not good, for each value of RequestRecord::lost_to.
  // Requests with an empty lost_to are left out.
  std::map<std::string, uint32_t> lost_to;
  ClientLag lag;  // Lag over all sent requests, also those outside of the window.
};
Verdict ComputeVerdict(const RunResult& run);

}  // namespace baton
