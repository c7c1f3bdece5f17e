#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Arithmetic over records. Definitions: docs in README.md of this folder. Nothing here knows where
// the records come from.

// Scheduled arrival to first token, seconds; infinite without a first token.
double Ttft(const RequestRecord& record);
// Mean time per output token after the first, seconds; 0 for a single token (there is none).
double Tpot(const RequestRecord& record);
// Mean of the largest tenth (rounded up) of the gaps between tokens, seconds (Qin et al., FAST'25);
// 0 for a single token.
double W10(const RequestRecord& record);
// Scheduled arrival to last token, seconds; infinite without one.
double EndToEnd(const RequestRecord& record);

// How one request fared. A request that did not complete has met nothing.
struct Judgement {
  bool ttft_met = false;
  bool tpot_met = false;  // a single token has no pace, and so has met it
  bool w10_met = false;   // at most twice the TPOT target
  bool e2e_met = false;
  bool good = false;    // ttft, tpot and e2e
  bool strict = false;  // good, and w10
};
Judgement Judge(const RequestRecord& record, const SloTargets& targets);

// Of completed requests only. All 0 when there are none.
struct Percentiles {
  uint32_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;  // seconds
};
// The smallest value that at least `share` of the values do not exceed (nearest rank). `values` may
// stand in any order; 0 for none.
double Percentile(std::vector<double> values, double share);
Percentiles PercentilesOf(std::vector<double> values);

// Measured requests with the shortest to the longest prompts, in four groups of equal size (+-1).
struct PromptQuartile {
  uint32_t shortest_tokens = 0, longest_tokens = 0;
  uint32_t offered = 0, good = 0;
};

// How late the tool itself was: hand-over to gRPC after the scheduled arrival, all sent requests.
struct ClientLag {
  uint32_t sent = 0;
  uint32_t late = 0;  // by more than a millisecond
  double p99_s = 0;
  double worst_s = 0;
};
ClientLag LagOf(absl::Span<const RequestRecord> records);

// Over the measured requests: all of them, whatever became of them, are in the denominators.
struct Verdict {
  double window_s = 0;
  uint32_t offered = 0;
  uint32_t completed = 0;
  uint32_t good = 0;
  uint32_t strict = 0;
  uint32_t ttft_met = 0, tpot_met = 0, w10_met = 0, e2e_met = 0;
  uint32_t single_token = 0;  // completed ones that have no pace
  double offered_rate = 0;    // requests/s
  double goodput = 0;         // good requests/s
  double strict_goodput = 0;
  double token_goodput = 0;  // output tokens of good requests/s
  double token_rate = 0;     // output tokens received/s, of all measured requests
  double attainment = 0;     // good / offered; 0 when nothing was offered
  double strict_attainment = 0;
  Percentiles ttft, tpot, e2e, w10;
  std::array<PromptQuartile, 4> quartiles;
  uint32_t with_phases = 0;
  PhaseTimes mean_phases;                    // of those with a Summary
  std::map<std::string, uint32_t> outcomes;  // OutcomeName -> requests
  std::map<std::string, uint32_t> failures;  // gRPC status name -> requests that did not complete
  // RequestRecord::lost_to of the completed ones that were not good, where the router told it.
  std::map<std::string, uint32_t> lost_to;
  ClientLag lag;  // of all sent requests, measured or not
};
Verdict ComputeVerdict(const RunResult& run);

}  // namespace baton
