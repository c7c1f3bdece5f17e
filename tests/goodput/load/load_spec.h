#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Distribution of the arrival times. They are drawn from the seed before the load begins, except
// for kTrace.
enum class ArrivalKind {
  kPoisson,
  kGamma,  // Gaps have a gamma distribution with coefficient of variation `cv`.
  // On and off periods alternate: Poisson arrivals while on, none while off. The lengths of the
  // periods are exponentially distributed.
  kOnOff,
  kUniform,  // Evenly spaced.
  // The trace's own times. If `rate` is given, the warm-up and the window are stretched so that
  // each of them has this mean rate.
  kTrace,
};

struct ArrivalSpec {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double rate = 1;  // Mean requests per second. For kTrace, 0 means the trace's own rate.
  double cv = 1;    // kGamma: coefficient of variation of the gaps.
  double on_s = 5;  // kOnOff: mean length of an on period and of an off period, in seconds.
  double off_s = 5;
  // kTrace: requests that share a time are spread at random until the next time in the trace.
  bool spread = false;
};

// The requests of a load. Lengths are texts such as "128" or "uniform:16,256" (see
// length_distribution.h).
struct WorkloadSpec {
  ArrivalSpec arrivals;
  std::string trace;          // Path of an Azure .csv or Mooncake .jsonl file; empty: no trace.
  std::string prompts;        // Path of a prompt file; empty: prompts are random token ids.
  std::string prompt_tokens;  // Distribution of the prompt lengths; empty: the trace's lengths.
  // Distribution of the answer lengths; empty: the lengths of the trace or of the prompt file.
  std::string output_tokens;
  // Factor on the lengths of the trace's prompts and of the blocks that they share.
  double prompt_scale = 1;
  double output_scale = 1;
  // If true, answers have exactly the number of output tokens asked for; if false, at most that
  // number.
  bool forced_length = true;
};

struct LoadSpec {
  // HOST:PORT of the router, or the URL of a server with OpenAI's API, as in http://HOST:PORT/v1.
  std::string endpoint;
  // Model to ask a router for; empty: the only model that it serves.
  std::string model;
  // Model to ask a server with OpenAI's API for; empty: the first one that it lists.
  std::string openai_model;
  bool openai_chat = false;  // Ask such a server for chat completions.
  // HOST:PORT of the router that names the ordinary tokens when the load is sent to a URL, so that
  // the prompts are those of a load that is sent to the router. Empty: no router is asked.
  std::string vocabulary_router;
  std::string mode;  // disaggregated, colocated or auto; empty: the router's default.
  WorkloadSpec workload;
  uint64_t seed = 1;  // Seed of arrivals, lengths, prompts, sampling and the first row of a file.
  // Changes the prompts but not the arrivals and lengths, so that no prefix cache holds the
  // prompts.
  uint64_t prompt_salt = 0;
  double temperature = 0;  // Sampling temperature of the answers; 0 is greedy.
  absl::Duration warmup = absl::Seconds(30);
  absl::Duration duration = absl::Seconds(60);  // Length of the measurement window.
  bool tail = true;  // True if arrivals go on until the last measured request has ended.
  // Ends the window after this number of requests; 0: no limit. If several requests share the last
  // time, all of them are in the window.
  uint32_t max_requests = 0;
  int channels = 4;  // Number of connections to the router.
  absl::Duration connect_timeout = absl::Seconds(10);
  // Time limit of a request, counted from its scheduled arrival.
  absl::Duration request_timeout = absl::Seconds(120);
  std::vector<std::string> metrics_urls;
  bool keep_token_ids = false;  // Keep token ids in the records, for --expect.
  SloTargets targets;  // Absolute targets, for the progress line and to judge the tool's own lag.
  std::map<std::string, std::string> given;  // Flags as they were given, for RunResult::spec.
};

}  // namespace baton
