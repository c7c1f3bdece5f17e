#include "tests/goodput/results/run_file.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/goodput/results/object_reader.h"
#include "tests/goodput/results/verdict.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;

constexpr Outcome kOutcomes[] = {Outcome::kCompleted, Outcome::kWrongLength, Outcome::kRejected,
                                 Outcome::kTimedOut,  Outcome::kFailed,      Outcome::kStopped,
                                 Outcome::kNotSent};

int64_t Microseconds(double seconds) { return std::llround(seconds * 1e6); }
double Seconds(int64_t us) { return static_cast<double>(us) / 1e6; }

json PhasesJson(const PhaseTimes& phases) {
  return {{"queue", Microseconds(phases.queue_s)},
          {"prefill", Microseconds(phases.prefill_s)},
          {"handover_hidden", Microseconds(phases.handover_hidden_s)},
          {"handover_exposed", Microseconds(phases.handover_exposed_s)},
          {"decode_wait", Microseconds(phases.decode_wait_s)},
          {"decode", Microseconds(phases.decode_s)},
          {"ttft", Microseconds(phases.ttft_s)},
          {"total", Microseconds(phases.total_s)}};
}

PhaseTimes PhasesFrom(ObjectReader* reader) {
  PhaseTimes phases;
  phases.queue_s = Seconds(reader->Int("queue"));
  phases.prefill_s = Seconds(reader->Int("prefill"));
  phases.handover_hidden_s = Seconds(reader->Int("handover_hidden"));
  phases.handover_exposed_s = Seconds(reader->Int("handover_exposed"));
  phases.decode_wait_s = Seconds(reader->Int("decode_wait"));
  phases.decode_s = Seconds(reader->Int("decode"));
  phases.ttft_s = Seconds(reader->Int("ttft"));
  phases.total_s = Seconds(reader->Int("total"));
  return phases;
}

json RecordJson(const RequestRecord& record) {
  json token_us = json::array();
  for (const double token_s : record.token_s) token_us.push_back(Microseconds(token_s));
  json one = {{"index", record.index},
              {"mode", record.mode},
              {"measured", record.measured},
              {"scheduled_us", Microseconds(record.scheduled_s)},
              {"sent_us", record.sent_s < 0 ? -1 : Microseconds(record.sent_s)},
              {"ended_us", record.ended_s < 0 ? -1 : Microseconds(record.ended_s)},
              {"prompt_tokens", record.prompt_tokens},
              {"wanted_tokens", record.wanted_tokens},
              {"forced_length", record.forced_length},
              {"outcome", OutcomeName(record.outcome)},
              {"status", record.status},
              {"message", record.message},
              {"finish_reason", record.finish_reason},
              {"cached_tokens", record.cached_tokens},
              {"migrations", record.migrations},
              {"prefill_worker", record.prefill_worker},
              {"decode_worker", record.decode_worker},
              {"link", record.link},
              {"served_mode", record.served_mode},
              {"lost_to", record.lost_to}};
  if (record.has_phases) one["phases_us"] = PhasesJson(record.phases);
  one["token_us"] = std::move(token_us);
  return one;
}

double SecondsOrNever(int64_t us) { return us < 0 ? -1 : Seconds(us); }

RequestRecord RecordFrom(ObjectReader* reader) {
  RequestRecord record;
  record.index = reader->Uint("index");
  record.mode = reader->String("mode");
  record.measured = reader->Bool("measured");
  record.scheduled_s = Seconds(reader->Int("scheduled_us"));
  record.sent_s = SecondsOrNever(reader->Int("sent_us"));
  record.ended_s = SecondsOrNever(reader->Int("ended_us"));
  record.prompt_tokens = reader->Uint("prompt_tokens");
  record.wanted_tokens = reader->Uint("wanted_tokens");
  record.forced_length = reader->Bool("forced_length");
  const std::string outcome = reader->String("outcome");
  bool known = false;
  for (const Outcome one : kOutcomes) {
    if (outcome != OutcomeName(one)) continue;
    record.outcome = one;
    known = true;
  }
  if (!known) reader->Refuse("outcome", absl::StrCat("'", outcome, "' is not an outcome"));
  record.status = reader->String("status");
  record.message = reader->String("message");
  record.finish_reason = reader->String("finish_reason");
  record.cached_tokens = reader->Uint("cached_tokens");
  record.migrations = reader->Uint("migrations");
  record.prefill_worker = reader->String("prefill_worker");
  record.decode_worker = reader->String("decode_worker");
  record.link = reader->String("link");
  record.served_mode = reader->String("served_mode");
  // Older files lack the key lost_to.
  if (reader->Has("lost_to")) record.lost_to = reader->String("lost_to");
  if (reader->Has("phases_us")) {
    record.has_phases = true;
    ObjectReader phases = reader->Object("phases_us");
    record.phases = PhasesFrom(&phases);
  }
  for (const double us : reader->Numbers("token_us")) record.token_s.push_back(us / 1e6);
  return record;
}

json OptionalMs(const std::optional<double>& seconds) {
  return seconds.has_value() ? json(*seconds * 1e3) : json();
}

std::optional<double> SecondsFromMs(ObjectReader* reader, const char* key) {
  if (!reader->Has(key)) return std::nullopt;
  return reader->Double(key) / 1e3;
}

json PercentilesJson(const Percentiles& percentiles) {
  return {{"count", percentiles.count},   {"mean", percentiles.mean * 1e3},
          {"p50", percentiles.p50 * 1e3}, {"p90", percentiles.p90 * 1e3},
          {"p99", percentiles.p99 * 1e3}, {"max", percentiles.max * 1e3}};
}

json VerdictJson(const Verdict& verdict) {
  json quartiles = json::array();
  for (const PromptQuartile& quartile : verdict.quartiles) {
    quartiles.push_back({{"shortest_tokens", quartile.shortest_tokens},
                         {"longest_tokens", quartile.longest_tokens},
                         {"offered", quartile.offered},
                         {"good", quartile.good}});
  }
  return {{"window_s", verdict.window_s},
          {"offered", verdict.offered},
          {"completed", verdict.completed},
          {"good", verdict.good},
          {"strict", verdict.strict},
          {"ttft_met", verdict.ttft_met},
          {"tpot_met", verdict.tpot_met},
          {"w10_met", verdict.w10_met},
          {"e2e_met", verdict.e2e_met},
          {"single_token", verdict.single_token},
          {"offered_rate", verdict.offered_rate},
          {"goodput", verdict.goodput},
          {"strict_goodput", verdict.strict_goodput},
          {"token_goodput", verdict.token_goodput},
          {"token_rate", verdict.token_rate},
          {"attainment", verdict.attainment},
          {"strict_attainment", verdict.strict_attainment},
          {"ttft_ms", PercentilesJson(verdict.ttft)},
          {"tpot_ms", PercentilesJson(verdict.tpot)},
          {"e2e_ms", PercentilesJson(verdict.e2e)},
          {"w10_ms", PercentilesJson(verdict.w10)},
          {"quartiles", quartiles},
          {"with_phases", verdict.with_phases},
          {"mean_phases_us", PhasesJson(verdict.mean_phases)},
          {"outcomes", verdict.outcomes},
          {"failures", verdict.failures},
          {"lost_to", verdict.lost_to},
          {"lag",
           {{"sent", verdict.lag.sent},
            {"late", verdict.lag.late},
            {"p99_ms", verdict.lag.p99_s * 1e3},
            {"worst_ms", verdict.lag.worst_s * 1e3}}}};
}

json ServerJson(const ServerInfo& server) {
  return {{"endpoint", server.endpoint},
          {"model", server.model},
          {"architecture", server.architecture},
          {"fingerprint", server.fingerprint},
          {"context_tokens", server.context_tokens},
          {"vocab_size", server.vocab_size},
          {"prefill_workers", server.prefill_workers},
          {"decode_workers", server.decode_workers}};
}

ServerInfo ServerFrom(ObjectReader* reader) {
  ServerInfo server;
  server.endpoint = reader->String("endpoint");
  server.model = reader->String("model");
  server.architecture = reader->String("architecture");
  server.fingerprint = reader->String("fingerprint");
  server.context_tokens = reader->Uint("context_tokens");
  server.vocab_size = reader->Uint("vocab_size");
  server.prefill_workers = reader->Uint("prefill_workers");
  server.decode_workers = reader->Uint("decode_workers");
  return server;
}

json ExpectJson(const ExpectResult& expect) {
  return {{"file", expect.file},           {"written", expect.written},
          {"compared", expect.compared},   {"equal", expect.equal},
          {"different", expect.different}, {"failed", expect.failed},
          {"unknown", expect.unknown},     {"differences", expect.differences}};
}

ExpectResult ExpectFrom(ObjectReader* reader) {
  ExpectResult expect;
  expect.file = reader->String("file");
  expect.written = reader->Bool("written");
  expect.compared = reader->Uint("compared");
  expect.equal = reader->Uint("equal");
  expect.different = reader->Uint("different");
  expect.failed = reader->Uint("failed");
  expect.unknown = reader->Uint("unknown");
  expect.differences = reader->Strings("differences");
  return expect;
}

json TimelineJson(const std::vector<MetricSeries>& timeline) {
  json all = json::array();
  for (const MetricSeries& series : timeline) {
    json points = json::array();
    for (const auto& [at_s, value] : series.points) {
      // JSON has no NaN and no infinity. They become null, which is read back as a gap.
      points.push_back({at_s, std::isfinite(value) ? json(value) : json()});
    }
    all.push_back({{"source", series.source}, {"name", series.name}, {"points", points}});
  }
  return all;
}

MetricSeries SeriesFrom(ObjectReader* reader) {
  MetricSeries series;
  series.source = reader->String("source");
  series.name = reader->String("name");
  for (const std::vector<double>& point : reader->Rows("points")) {
    if (point.size() == 2) {
      series.points.emplace_back(point[0], point[1]);
    } else {
      reader->Refuse("points", "a point is [seconds, value]");
    }
  }
  return series;
}

absl::Status FileError(absl::string_view what, const std::string& path) {
  const std::string message = absl::StrCat(what, " ", path, ": ", std::strerror(errno));
  if (errno == ENOENT) return absl::NotFoundError(message);
  if (errno == EACCES || errno == EPERM || errno == EROFS)
    return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

// Returns the name under which a file is written before it is renamed to `path`.
std::string BesidePath(const std::string& path) { return absl::StrCat(path, ".part"); }

}  // namespace

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCompleted:
      return "completed";
    case Outcome::kWrongLength:
      return "wrong_length";
    case Outcome::kRejected:
      return "rejected";
    case Outcome::kTimedOut:
      return "timed_out";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kStopped:
      return "stopped";
    case Outcome::kNotSent:
      return "not_sent";
  }
  return "not_sent";
}

json RunToJson(const RunResult& run) {
  json all = {{"baton_goodput_run", kRunFileVersion},
              {"tool_version", run.tool_version},
              {"started_at", run.started_at},
              {"spec", run.spec},
              {"rate", run.rate},
              {"mode", run.mode},
              {"seed", run.seed},
              {"server", ServerJson(run.server)},
              {"targets",
               {{"name", run.targets.name},
                {"source", run.targets.source},
                {"ttft_ms", OptionalMs(run.targets.ttft_s)},
                {"tpot_ms", OptionalMs(run.targets.tpot_s)},
                {"e2e_ms", OptionalMs(run.targets.e2e_s)}}}};
  if (run.unloaded.has_value()) {
    all["unloaded"] = {{"ttft_ms", run.unloaded->ttft_s * 1e3},
                       {"tpot_ms", run.unloaded->tpot_s * 1e3},
                       {"prompt_tokens", run.unloaded->prompt_tokens},
                       {"output_tokens", run.unloaded->output_tokens},
                       {"answer_tokens", run.unloaded->answer_tokens},
                       {"probes", run.unloaded->probes}};
  }
  all["window_s"] = {run.window_begin_s, run.window_end_s};
  all["partial"] = run.partial;
  all["invalid"] = run.invalid;
  all["remarks"] = run.remarks;
  if (run.expect.has_value()) all["expect"] = ExpectJson(*run.expect);
  all["verdict"] = VerdictJson(ComputeVerdict(run));
  all["timeline"] = TimelineJson(run.timeline);
  json records = json::array();
  for (const RequestRecord& record : run.records) records.push_back(RecordJson(record));
  all["requests"] = std::move(records);
  return all;
}

absl::StatusOr<RunResult> RunFromJson(const json& all) {
  absl::Status status;
  ObjectReader reader(&all, "", &status);
  const int64_t version = reader.Int("baton_goodput_run");
  if (status.ok() && version != kRunFileVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("baton_goodput_run is ", version, "; this tool reads ", kRunFileVersion));
  }
  RunResult run;
  run.tool_version = reader.String("tool_version");
  run.started_at = reader.String("started_at");
  for (auto& [key, value] : reader.StringMap("spec")) run.spec.emplace(key, value);
  run.rate = reader.Double("rate");
  run.mode = reader.String("mode");
  run.seed = reader.Uint64("seed");
  ObjectReader server = reader.Object("server");
  run.server = ServerFrom(&server);
  ObjectReader targets = reader.Object("targets");
  run.targets.name = targets.String("name");
  run.targets.source = targets.String("source");
  run.targets.ttft_s = SecondsFromMs(&targets, "ttft_ms");
  run.targets.tpot_s = SecondsFromMs(&targets, "tpot_ms");
  run.targets.e2e_s = SecondsFromMs(&targets, "e2e_ms");
  if (reader.Has("unloaded")) {
    ObjectReader unloaded = reader.Object("unloaded");
    run.unloaded.emplace();
    run.unloaded->ttft_s = unloaded.Double("ttft_ms") / 1e3;
    run.unloaded->tpot_s = unloaded.Double("tpot_ms") / 1e3;
    run.unloaded->prompt_tokens = unloaded.Uint("prompt_tokens");
    run.unloaded->output_tokens = unloaded.Uint("output_tokens");
    if (unloaded.Has("answer_tokens"))  // Older files lack the key answer_tokens.
      run.unloaded->answer_tokens = unloaded.Uint("answer_tokens");
    run.unloaded->probes = unloaded.Uint("probes");
  }
  const std::vector<double> window = reader.Numbers("window_s");
  if (window.size() == 2) {
    run.window_begin_s = window[0];
    run.window_end_s = window[1];
  } else {
    reader.Refuse("window_s", "it is [begin, end]");
  }
  run.partial = reader.Bool("partial");
  run.invalid = reader.Strings("invalid");
  run.remarks = reader.Strings("remarks");
  if (reader.Has("expect")) {
    ObjectReader expect = reader.Object("expect");
    run.expect = ExpectFrom(&expect);
  }
  for (ObjectReader& series : reader.Objects("timeline"))
    run.timeline.push_back(SeriesFrom(&series));
  for (ObjectReader& record : reader.Objects("requests"))
    run.records.push_back(RecordFrom(&record));
  RETURN_IF_ERROR(status);
  return run;
}

absl::Status WriteRunFile(const std::string& path, const RunResult& run) {
  return WriteWhole(
      path,
      absl::StrCat(RunToJson(run).dump(-1, ' ', false, json::error_handler_t::replace), "\n"));
}

absl::StatusOr<RunResult> ReadRunFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return FileError("can't read", path);
  std::stringstream text;
  text << file.rdbuf();
  const json all = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (all.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(path, ": not JSON"));
  absl::StatusOr<RunResult> run = RunFromJson(all);
  if (!run.ok()) {
    return absl::Status(run.status().code(), absl::StrCat(path, ": ", run.status().message()));
  }
  return run;
}

absl::Status CheckWritable(const std::string& path) {
  const bool existed = access(path.c_str(), F_OK) == 0;
  FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) {
    const absl::Status status = FileError("can't write", path);
    return absl::Status(status.code(), absl::StrCat(status.message(),
                                                    "; take a path in a folder that is there and "
                                                    "that this user may write"));
  }
  std::fclose(file);
  if (!existed) std::remove(path.c_str());
  return absl::OkStatus();
}

absl::Status CheckIsNoInput(const std::string& path, const std::vector<std::string>& inputs) {
  for (const std::string& written : {path, BesidePath(path)}) {
    for (const std::string& input : inputs) {
      // Set if one of the files does not exist; then the two paths are not the same file.
      std::error_code not_there;
      if (!std::filesystem::equivalent(written, input, not_there)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("writing ", written, " would overwrite the input ", input));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteWhole(const std::string& path, absl::string_view text) {
  const std::string beside = BesidePath(path);
  FILE* file = std::fopen(beside.c_str(), "w");
  if (file == nullptr) return FileError("can't write", beside);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) {
    const absl::Status status = FileError("can't write", beside);
    std::remove(beside.c_str());
    return status;
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) {
    const absl::Status status = FileError("can't write", path);
    std::remove(beside.c_str());
    return status;
  }
  return absl::OkStatus();
}

}  // namespace baton
