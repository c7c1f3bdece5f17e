#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/goodput/results/record.h"

namespace baton {

// When requests arrive. All but a trace's own times are drawn from the seed before the load begins.
enum class ArrivalKind {
  kPoisson,
  kGamma,    // gaps of a gamma law with coefficient of variation `cv`
  kOnOff,    // Poisson while on, silent while off; both last exponentially long
  kUniform,  // evenly spaced
  kTrace,    // the trace's own times, warm-up and window each stretched to `rate`
};

struct ArrivalSpec {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double rate = 1;  // requests per second over all time; 0 for a trace: its own
  double cv = 1;    // gamma
  double on_s = 5;  // on-off: mean length of each, seconds
  double off_s = 5;
  bool spread = false;  // trace: requests of one time are spread at random until the next one
};

// What is asked for. Lengths are given as words (length_distribution.h): "128", "uniform:16,256".
struct WorkloadSpec {
  ArrivalSpec arrivals;
  std::string trace;          // path of an Azure .csv or Mooncake .jsonl; empty: none
  std::string prompts;        // path of a prompt file; empty: token ids are drawn
  std::string prompt_tokens;  // empty: the trace's
  std::string output_tokens;  // empty: the trace's, or the prompt file's
  double prompt_scale = 1;    // of the trace's prompts, and of their shared blocks
  double output_scale = 1;
  bool forced_length = true;  // exactly as many output tokens as asked
};

struct LoadSpec {
  std::string endpoint;  // host:port of the router
  std::string model;     // empty: the one that is served
  std::string mode;      // disaggregated, colocated, auto; empty: the router's own
  WorkloadSpec workload;
  uint64_t seed = 1;         // of arrivals, lengths, prompts, draws and the first row of files
  uint64_t prompt_salt = 0;  // other prompts for the same arrivals and lengths: no cache knows them
  double temperature = 0;    // of the answers; 0 is greedy
  absl::Duration warmup = absl::Seconds(30);
  absl::Duration duration = absl::Seconds(60);  // of the measurement window
  bool tail = true;           // arrivals go on until the last measured request has ended
  uint32_t max_requests = 0;  // that end the window, with those of the last one's time; 0: none do
  int channels = 4;           // connections
  absl::Duration connect_timeout = absl::Seconds(10);
  absl::Duration request_timeout = absl::Seconds(120);  // from the scheduled arrival
  std::vector<std::string> metrics_urls;
  bool keep_token_ids = false;  // in the records, for --expect
  SloTargets targets;           // absolute; for the progress line, and to judge the tool's own lag
  std::map<std::string, std::string> given;  // flags as they were given, for RunResult::spec
};

}  // namespace baton
