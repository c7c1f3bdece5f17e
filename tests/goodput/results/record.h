#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace baton {

// Data that one load leaves behind. Times are seconds from the start of the load, in whole
// microseconds. run_file.h writes and reads them as JSON.

// Outcome of one request, as the client saw it.
enum class Outcome {
  kCompleted,    // Status OK, and as many tokens as were asked for.
  kWrongLength,  // Status OK, but fewer or more tokens than were asked for.
  kRejected,     // ResourceExhausted before the first token: the server was full.
  kTimedOut,     // Did not end within the request timeout.
  kFailed,       // Any other status, or a stream that contradicts itself.
  kStopped,  // Cancelled by the tool, after Ctrl-C or after the last measured request had ended.
  kNotSent,  // Never sent, because the load was stopped before the request was due.
};

// Phases of one request in the router's Summary, in seconds.
struct PhaseTimes {
  double queue_s = 0;             // Time from arrival until prefill begins to compute.
  double prefill_s = 0;           // Time for computing the prompt.
  double handover_hidden_s = 0;   // Time for moving KV while prefill computes.
  double handover_exposed_s = 0;  // Time for moving KV after the first token is ready.
  double decode_wait_s = 0;  // Time of waiting for a place in the batch, after the KV is complete.
  double decode_s = 0;       // Time from the first decode step to the last token.
  double ttft_s = 0;         // Time from arrival at the router until the first token leaves it.
  double total_s = 0;        // Time from arrival at the router to the end of the answer.
};

struct RequestRecord {
  uint32_t index = 0;  // Index of the request in the schedule, from 0.
  // Mode asked for: disaggregated, colocated or auto; empty: the router's default.
  std::string mode;
  bool measured = false;   // True if scheduled within the measurement window.
  double scheduled_s = 0;  // Planned arrival; all latencies are counted from this time.
  double sent_s = -1;      // Time at which the request was handed to gRPC; -1: never sent.
  // Time of the final status, or time at which the request was stopped; -1: never sent.
  double ended_s = -1;
  std::vector<double> token_s;  // Times at which the output tokens were received.
  uint32_t prompt_tokens = 0;
  uint32_t wanted_tokens = 0;  // Output tokens asked for.
  // If true, the answer has exactly wanted_tokens tokens (ignore_eos, min_tokens); if false, at
  // most that number.
  bool forced_length = true;
  Outcome outcome = Outcome::kNotSent;
  // gRPC's name of the status, such as OK or RESOURCE_EXHAUSTED; empty: not sent.
  std::string status;
  std::string message;        // Message of the status.
  std::string finish_reason;  // "stop" or "length"; empty: unknown.
  bool has_phases = false;    // True if the router sent a Summary.
  PhaseTimes phases;
  uint32_t cached_tokens = 0;  // Prompt tokens found in a prefix cache.
  // Number of times that the request returned to prefill because a worker failed.
  uint32_t migrations = 0;
  std::string prefill_worker;  // Address of the prefill worker.
  std::string decode_worker;
  std::string link;         // Transport that moved the KV.
  std::string served_mode;  // Final mode in the Summary: disaggregated or colocated.
  // Phase to which the router attributes a missed target: queue, prefill, handover, decode_wait,
  // decode or other. Empty: no target was missed, or the phase is unknown.
  std::string lost_to;
  std::vector<int32_t> token_ids;  // Filled only if --expect needs the ids; never in a run file.
};

// Latency targets of a task, in seconds. If a target is not set, it counts as met.
struct SloTargets {
  std::string name;    // Name of the task, such as chat, code or summarise.
  std::string source;  // Publication from which the targets come.
  std::optional<double> ttft_s;
  std::optional<double> tpot_s;
  std::optional<double> e2e_s;
};

// Latency of single requests on an idle server. Relative targets multiply it.
struct UnloadedLatency {
  double ttft_s = 0;
  double tpot_s = 0;
  uint32_t prompt_tokens = 0;  // Prompt length of the probes: the workload's median prompt length.
  // Answer length of the probes, which may be shorter than the workload's median.
  uint32_t output_tokens = 0;
  // The workload's median answer length, from which relative end-to-end targets are computed; 0:
  // unknown.
  uint32_t answer_tokens = 0;
  uint32_t probes = 0;
};

// Values over time of one gauge or counter, from a --metrics-url or from the client itself.
struct MetricSeries {
  std::string source;  // HOST:PORT of the URL, or "client".
  // Name and labels as read from the page, such as baton_kv_blocks{state="free"}.
  std::string name;
  std::vector<std::pair<double, double>> points;  // Pairs of time in seconds and value.
};

struct ServerInfo {
  std::string endpoint;  // HOST:PORT.
  std::string model;
  std::string architecture;
  std::string fingerprint;
  uint32_t context_tokens = 0;
  uint32_t vocab_size = 0;
  uint32_t prefill_workers = 0;  // Prefill workers that were ready at the start.
  uint32_t decode_workers = 0;
};

// Result of a comparison with the token ids in the file that --expect names. With --expect-write,
// tells that the file was written.
struct ExpectResult {
  std::string file;
  bool written = false;   // True if this run wrote the file instead of comparing.
  uint32_t compared = 0;  // Requests whose tokens were compared.
  uint32_t equal = 0;     // Compared requests that are complete and have equal tokens.
  uint32_t different = 0;
  uint32_t failed = 0;   // Requests that ended without all their tokens.
  uint32_t unknown = 0;  // Requests that the file does not contain.
  // Descriptions of the first differences, at most 20, with their positions.
  std::vector<std::string> differences;
};

struct RunResult {
  std::string tool_version;
  std::string started_at;  // RFC 3339, in UTC.
  // Description of the load: pairs of flag and value, such as {"rate", "20"}.
  std::map<std::string, std::string> spec;
  double rate = 0;   // Requests per second that were asked for.
  std::string mode;  // Mode that was asked for.
  uint64_t seed = 0;
  ServerInfo server;
  SloTargets targets;
  std::optional<UnloadedLatency> unloaded;  // Set if targets were relative.
  // Begin of the window. Requests scheduled within [begin, end) are measured.
  double window_begin_s = 0;
  double window_end_s = 0;
  bool partial = false;  // True if the run was stopped before the last measured request had ended.
  std::vector<std::string> invalid;    // Reasons not to trust the run; empty if there are none.
  std::vector<std::string> remarks;    // Notes for the reader.
  std::vector<RequestRecord> records;  // Records of all requests, in order of index.
  std::vector<MetricSeries> timeline;
  std::optional<ExpectResult> expect;
  // PromptMaker::Fingerprint of the request of each record. Filled only if the records have
  // token_ids. Not written to run files.
  std::vector<uint64_t> fingerprints;
};

}  // namespace baton
