#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Law of the arrival times. For all kinds but kTrace they are drawn from the seed before the load
// begins.
enum class ArrivalKind {
  kPoisson,
  kGamma,    // Gaps follow a gamma law with coefficient of variation `cv`.
  kOnOff,    // Poisson while on, silent while off; the lengths of both periods are exponential.
  kUniform,  // Evenly spaced.
  kTrace,    // The trace's own times; warm-up and window are each stretched to `rate`.
};

struct ArrivalSpec {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double rate = 1;  // Mean requests per second; 0 for kTrace: the trace's own rate.
  double cv = 1;    // kGamma: coefficient of variation of the gaps.
  double on_s = 5;  // kOnOff: mean length of an on period and of an off period, in seconds.
  double off_s = 5;
  // kTrace: requests with equal times are spread at random until the next time.
  bool spread = false;
};

// The requests of a load. Lengths are texts such as "128" or "uniform:16,256" (see
// length_distribution.h).
struct WorkloadSpec {
  ArrivalSpec arrivals;
  std::string trace;          // Path of an Azure .csv or Mooncake .jsonl file; empty: no trace.
  std::string prompts;        // Path of a prompt file; empty: token ids are drawn.
  std::string prompt_tokens;  // Empty: the trace's lengths.
  std::string output_tokens;  // Empty: the lengths of the trace or of the prompt file.
  // Factor on the length of the trace's prompts and of their shared blocks.
  double prompt_scale = 1;
  double output_scale = 1;
  bool forced_length = true;  // True: exactly as many output tokens as asked for; false: at most.
};

struct LoadSpec {
  std::string endpoint;  // HOST:PORT of the router.
  std::string model;     // Empty: the one model that is served.
  std::string mode;      // disaggregated, colocated or auto; empty: the router's default.
  WorkloadSpec workload;
  uint64_t seed = 1;  // Seed of arrivals, lengths, prompts, sampling and the first row of a file.
  // Another salt gives other prompts for the same arrivals and lengths, so that no prefix cache
  // holds them.
  uint64_t prompt_salt = 0;
  double temperature = 0;  // Sampling temperature of the answers; 0 is greedy.
  absl::Duration warmup = absl::Seconds(30);
  absl::Duration duration = absl::Seconds(60);  // Length of the measurement window.
  bool tail = true;  // True if arrivals go on until the last measured request has ended.
  // Ends the window after this many requests (more if several share the last time); 0: no limit.
  uint32_t max_requests = 0;
  int channels = 4;  // Number of connections to the router.
  absl::Duration connect_timeout = absl::Seconds(10);
  absl::Duration request_timeout = absl::Seconds(120);  // Counts from the scheduled arrival.
  std::vector<std::string> metrics_urls;
  bool keep_token_ids = false;  // Keep token ids in the records, for --expect.
  SloTargets targets;  // Absolute targets, for the progress line and to judge the tool's own lag.
  std::map<std::string, std::string> given;  // Flags as they were given, for RunResult::spec.
};

}  // namespace baton
