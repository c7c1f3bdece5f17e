#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace baton {

// What one load left behind, as plain data. Times are seconds from the start of the load, whole
// microseconds. How it stands in a file: run_file.h.

// How one request ended, as the client saw it.
enum class Outcome {
  kCompleted,    // status OK, and as many tokens as were asked for
  kWrongLength,  // status OK, but fewer or more tokens than were asked for
  kRejected,     // ResourceExhausted before the first token: the server had no room
  kTimedOut,     // no end within the request timeout
  kFailed,       // any other status, or a stream that contradicts itself
  kStopped,      // the tool cancelled it: Ctrl-C, or a tail request after the last measured one
  kNotSent,      // its time came after the load had been stopped
};

// The phases of one request as the router's Summary tells them, seconds.
struct PhaseTimes {
  double queue_s = 0;             // arrival until prefill began to compute
  double prefill_s = 0;           // computing the prompt
  double handover_hidden_s = 0;   // moving KV behind prefill
  double handover_exposed_s = 0;  // moving KV after the first token was there
  double decode_wait_s = 0;       // KV complete, waiting for a place in the batch
  double decode_s = 0;            // first decode step to last token
  double ttft_s = 0;              // router's door to the first token leaving it
  double total_s = 0;             // router's door to the end
};

struct RequestRecord {
  uint32_t index = 0;           // in the schedule, from 0
  std::string mode;             // as asked: disaggregated, colocated, auto; empty: the router's own
  bool measured = false;        // scheduled within the measurement window
  double scheduled_s = 0;       // planned arrival; every latency counts from here
  double sent_s = -1;           // handed to gRPC; -1: never
  double ended_s = -1;          // status received, or stopped; -1: never sent
  std::vector<double> token_s;  // receipt of each output token
  uint32_t prompt_tokens = 0;
  uint32_t wanted_tokens = 0;  // output tokens asked for
  bool forced_length = true;   // exactly as many (ignore_eos, min_tokens), not at most
  Outcome outcome = Outcome::kNotSent;
  std::string status;         // gRPC's name of it: OK, RESOURCE_EXHAUSTED, ...; empty: not sent
  std::string message;        // what the status said
  std::string finish_reason;  // stop, length; empty: not told
  bool has_phases = false;    // a Summary came
  PhaseTimes phases;
  uint32_t cached_tokens = 0;  // prompt tokens found in a cache
  uint32_t migrations = 0;     // returns to prefill after a worker failed
  std::string prefill_worker;  // address
  std::string decode_worker;
  std::string link;         // transport of the hand-over
  std::string served_mode;  // at last, as the Summary tells it: disaggregated or colocated
  std::string lost_to;  // phase to which the router says that a target was lost: queue, prefill,
                        // handover, decode_wait, decode, other; empty: none, or not told
  std::vector<int32_t> token_ids;  // filled only while --expect needs them; never in a run file
};

// The latency targets of a task, seconds. One that is not set is not judged.
struct SloTargets {
  std::string name;    // chat, code, summarise, ...
  std::string source;  // where the figures come from
  std::optional<double> ttft_s;
  std::optional<double> tpot_s;
  std::optional<double> e2e_s;
};

// Latency of single requests on an idle server, which relative targets multiply.
struct UnloadedLatency {
  double ttft_s = 0;
  double tpot_s = 0;
  uint32_t prompt_tokens = 0;  // of the probes: the workload's median
  uint32_t output_tokens = 0;  // of the probes, which need not be that long
  uint32_t answer_tokens = 0;  // the workload's median, to which end to end applies; 0: not told
  uint32_t probes = 0;
};

// One gauge or counter of one --metrics-url, or of the client itself, over time.
struct MetricSeries {
  std::string source;  // host:port of the URL; "client"
  std::string name;    // with its labels, as scraped: baton_kv_blocks{state="free"}
  std::vector<std::pair<double, double>> points;  // (seconds, value)
};

struct ServerInfo {
  std::string endpoint;  // host:port
  std::string model;
  std::string architecture;
  std::string fingerprint;
  uint32_t context_tokens = 0;
  uint32_t vocab_size = 0;
  uint32_t prefill_workers = 0;  // ready at the start
  uint32_t decode_workers = 0;
};

// What --expect found.
struct ExpectResult {
  std::string file;
  bool written = false;   // this run wrote the file instead of comparing
  uint32_t compared = 0;  // requests whose tokens were compared
  uint32_t equal = 0;     // of them, whole and the same
  uint32_t different = 0;
  uint32_t failed = 0;                   // requests that ended without all their tokens
  uint32_t unknown = 0;                  // requests that the file does not hold
  std::vector<std::string> differences;  // first ones, at most 20, with position
};

struct RunResult {
  std::string tool_version;
  std::string started_at;                   // RFC 3339, UTC
  std::map<std::string, std::string> spec;  // the load as flags would say it: {"rate", "20"}, ...
  double rate = 0;                          // offered requests per second, as asked
  std::string mode;                         // as asked
  uint64_t seed = 0;
  ServerInfo server;
  SloTargets targets;
  std::optional<UnloadedLatency> unloaded;  // when relative targets were resolved
  double window_begin_s = 0;  // measured are the requests scheduled within [begin, end)
  double window_end_s = 0;
  bool partial = false;                // stopped before the last measured request had ended
  std::vector<std::string> invalid;    // why the run must not be believed; empty: it may
  std::vector<std::string> remarks;    // what a reader should know
  std::vector<RequestRecord> records;  // in order of index
  std::vector<MetricSeries> timeline;
  std::optional<ExpectResult> expect;
  // PromptMaker::Fingerprint of each record's request; filled only with their token_ids, never in a
  // run file.
  std::vector<uint64_t> fingerprints;
};

}  // namespace baton
