#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/listen_check.h"
#include "common/base/log.h"
#include "common/base/program.h"
#include "common/metrics/metrics_flag.h"
#include "common/metrics/process_metrics.h"
#include "common/model/folder_advice.h"
#include "common/model/model_config.h"
#include "common/rpc/dial.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/serving_mode.h"
#include "common/tokenizer/tokenizer.h"
#include "router/router_metrics.h"
#include "router/router_server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:50051",
          "HOST:PORT to serve clients and workers on; port 0 takes any free one");
ABSL_FLAG(std::string, model, "",
          "Hugging Face folder with tokenizer.json and config.json (required)");
ABSL_FLAG(std::string, model_name, "", "name of the model for clients; default: the folder's name");
ABSL_FLAG(std::string, attach_token, "",
          "shared token that workers must send, and that is sent to them; default: "
          "$BATON_ATTACH_TOKEN, or none");
ABSL_FLAG(
    std::string, mode, "disaggregated",
    "which workers compute prompts: disaggregated (prefill workers), colocated (decode workers, in "
    "chunks beside the answers they write), or auto (per request); a request may name another");
ABSL_FLAG(
    int, auto_prompt_tokens, 64,
    "mode auto: prompts up to so many tokens are computed by decode workers (0 to 100000000)");
ABSL_FLAG(
    int, auto_queue_tokens, 4096,
    "mode auto: and so are others while every prefill worker has more prompt tokens than that "
    "to compute (0 to 100000000)");
ABSL_FLAG(int, max_queued, 1024,
          "requests that may wait for a worker; more are refused (1 to 1000000)");
ABSL_FLAG(int, max_prompts_per_worker, 64,
          "prompts at one worker before their first token (1 to 1000000)");
ABSL_FLAG(int, max_migrations, 64,
          "times a request may go back to prefill after a worker failed it (0 to 1000000)");
ABSL_FLAG(int, client_buffer_tokens, 512,
          "tokens that wait for a slow client before its sequence pauses (1 to 1000000)");
ABSL_FLAG(int, max_text_bytes, 8 << 20,
          "longest text of a prompt or to tokenise (1 to 67108864 bytes)");
ABSL_FLAG(int, max_text_calls, 64,
          "Tokenize and Detokenize calls at one time; more are refused (1 to 1000000)");
ABSL_FLAG(std::string, serve_identity, "",
          "serves only workers with this identity: FINGERPRINT/NUMERICS, or FINGERPRINT alone, as "
          "`baton-client models` shows them; default: the identity with the most usable workers");
ABSL_FLAG(
    absl::Duration, identity_lead, absl::Seconds(10),
    "time for which another identity must have more usable workers before it is served instead");
ABSL_FLAG(absl::Duration, slow_client_limit, absl::Seconds(30),
          "a client whose buffer stays full longer is refused");
ABSL_FLAG(absl::Duration, pair_wait, absl::Seconds(30),
          "longest wait while no pair of workers is there");
ABSL_FLAG(absl::Duration, room_wait, absl::Seconds(30), "longest wait while all workers are full");
ABSL_FLAG(absl::Duration, report_limit, absl::Seconds(3),
          "a worker whose last load report is older gets no new work");
ABSL_FLAG(absl::Duration, stall, absl::Seconds(5),
          "a worker without load reports whose leg was silent for that long counts as dead");
ABSL_FLAG(
    absl::Duration, max_connection_age, absl::ZeroDuration(),
    "clients are asked to connect anew after about that long, so that none stays with a router "
    "that is no longer named; running answers go on; 0: never");
ABSL_FLAG(absl::Duration, drain_grace, absl::Seconds(30),
          "longest time that running requests get after SIGTERM");

namespace baton {
namespace {

constexpr char kUsage[] =
    "baton-router --model DIR [flags]\n\n"
    "Takes requests over gRPC, tokenises them, hands them to the prefill and decode workers that\n"
    "attach to it, and streams the text back. SIGTERM drains; a second one ends it at once.";

// Groups of flags in the order in which --help shows them.
std::vector<FlagGroup> FlagGroups() {
  return {{"Addresses", "listen attach-token metrics-listen"},
          {"Model", "model model-name serve-identity identity-lead"},
          {"Which workers compute prompts", "mode auto-prompt-tokens auto-queue-tokens"},
          {"Limits of requests",
           "max-queued max-prompts-per-worker max-migrations max-text-bytes max-text-calls"},
          {"Waiting for workers", "pair-wait room-wait report-limit stall"},
          {"Clients", "client-buffer-tokens slow-client-limit max-connection-age"},
          {"Stopping", "drain-grace"},
          {"Log", "log-level log-format"}};
}

absl::Duration CheckedTime(absl::string_view name, absl::Duration value, absl::Duration lowest) {
  if (value < lowest || value > absl::Hours(24 * 365)) {
    RefuseToStart(absl::StrCat("--", name, " is ", absl::FormatDuration(value), "; it takes ",
                               absl::FormatDuration(lowest), " to a year"));
  }
  return value;
}

v1::ServingMode ModeFromFlag() {
  const std::string name = absl::GetFlag(FLAGS_mode);
  const absl::StatusOr<v1::ServingMode> mode = ServingModeFromName(name);
  if (!mode.ok()) RefuseToStart(absl::StrCat("--mode is '", name, "'; ", mode.status().message()));
  return *mode;
}

RouterServer::Options OptionsFromFlags() {
  RouterServer::Options options;
  options.listen = absl::GetFlag(FLAGS_listen);
  if (!IsHostPort(options.listen)) {
    RefuseToStart(absl::StrCat("--listen is '", options.listen,
                               "'; it takes HOST:PORT with a port from 0 to 65535"));
  }
  if (const absl::Status status = CheckListen(options.listen); !status.ok()) {
    RefuseToStart(absl::StrCat("--listen: ", status.message()));
  }
  absl::StatusOr<std::string> token = AttachToken(absl::GetFlag(FLAGS_attach_token));
  if (!token.ok()) RefuseToStart(token.status().message());
  options.token = *std::move(token);
  options.limits.text_bytes = static_cast<size_t>(
      CheckedInt("max-text-bytes", absl::GetFlag(FLAGS_max_text_bytes), 1, 64 << 20));
  options.max_text_calls =
      CheckedInt("max-text-calls", absl::GetFlag(FLAGS_max_text_calls), 1, 1000000);
  RouterCoreOptions& core = options.core;
  core.mode = ModeFromFlag();
  core.auto_prompt_tokens =
      CheckedInt("auto-prompt-tokens", absl::GetFlag(FLAGS_auto_prompt_tokens), 0, 100000000);
  core.auto_queue_tokens =
      CheckedInt("auto-queue-tokens", absl::GetFlag(FLAGS_auto_queue_tokens), 0, 100000000);
  const absl::StatusOr<FixedIdentity> identity =
      ParseFixedIdentity(absl::GetFlag(FLAGS_serve_identity));
  if (!identity.ok()) {
    RefuseToStart(absl::StrCat("--serve-identity: ", identity.status().message()));
  }
  core.serve_identity = *identity;
  core.identity_lead =
      CheckedTime("identity-lead", absl::GetFlag(FLAGS_identity_lead), absl::ZeroDuration());
  core.max_queued = CheckedInt("max-queued", absl::GetFlag(FLAGS_max_queued), 1, 1000000);
  core.max_prompts_per_worker =
      CheckedInt("max-prompts-per-worker", absl::GetFlag(FLAGS_max_prompts_per_worker), 1, 1000000);
  core.max_migrations =
      CheckedInt("max-migrations", absl::GetFlag(FLAGS_max_migrations), 0, 1000000);
  core.client_buffer_tokens =
      CheckedInt("client-buffer-tokens", absl::GetFlag(FLAGS_client_buffer_tokens), 1, 1000000);
  const absl::Duration ms = absl::Milliseconds(1);
  core.slow_client_limit =
      CheckedTime("slow-client-limit", absl::GetFlag(FLAGS_slow_client_limit), ms);
  core.pair_wait = CheckedTime("pair-wait", absl::GetFlag(FLAGS_pair_wait), absl::ZeroDuration());
  const absl::Duration age = CheckedTime(
      "max-connection-age", absl::GetFlag(FLAGS_max_connection_age), absl::ZeroDuration());
  if (age > absl::ZeroDuration()) options.connection_age = std::max(age, ms);
  core.room_wait = CheckedTime("room-wait", absl::GetFlag(FLAGS_room_wait), absl::ZeroDuration());
  core.report_limit = CheckedTime("report-limit", absl::GetFlag(FLAGS_report_limit), ms);
  core.stall_limit = CheckedTime("stall", absl::GetFlag(FLAGS_stall), ms);
  return options;
}

// Returns the last part of the path, without the slash of "models/demo/". Empty if there is no such
// folder.
std::string FolderName(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(folder, error);
  return error ? "" : path.filename().string();
}

int Main(int argc, char** argv) {
  BlockStopSignals();
  const auto rest = StartProgram(argc, argv, {kUsage, FlagGroups()});
  if (!rest.empty())
    RefuseToStart(absl::StrCat("'", rest[0], "' is not expected here; flags begin with --"));
  RouterServer::Options options = OptionsFromFlags();
  const absl::Duration grace =
      CheckedTime("drain-grace", absl::GetFlag(FLAGS_drain_grace), absl::ZeroDuration());
  MetricRegistry metrics;
  std::unique_ptr<MetricsServer> metrics_server = ListenForMetrics();

  const std::string folder = absl::GetFlag(FLAGS_model);
  if (folder.empty()) RefuseToStart("--model is missing; it takes a Hugging Face folder");
  absl::StatusOr<ModelConfig> config = ReadModelConfig(folder);
  if (!config.ok()) RefuseToStart(absl::StrCat("--model: ", config.status().message()));
  const std::string tokenizer_path = folder + "/tokenizer.json";
  if (access(tokenizer_path.c_str(), R_OK) != 0) {
    const absl::Status why = errno == ENOENT ? MissingModelFile(folder, "tokenizer.json")
                                             : ModelFileError(errno, tokenizer_path);
    RefuseToStart(absl::StrCat("--model: ", why.message()));
  }
  const auto tokenizer = Tokenizer::FromFile(tokenizer_path);
  if (!tokenizer.ok()) RefuseToStart(absl::StrCat("--model: ", tokenizer.status().message()));
  if ((*tokenizer)->vocab_size() > config->vocab) {
    RefuseToStart(
        absl::StrCat("--model: tokenizer.json has ids up to ", (*tokenizer)->vocab_size() - 1,
                     ", config.json a vocab_size of ", config->vocab,
                     "; they are not of one model: fetch both from where the model came from"));
  }
  options.model.name = absl::GetFlag(FLAGS_model_name);
  if (options.model.name.empty()) options.model.name = FolderName(folder);
  if (options.model.name.empty() || options.model.name.size() > 200) {
    RefuseToStart(
        absl::StrCat("--model-name is '", options.model.name, "'; it takes 1 to 200 bytes"));
  }
  for (const std::string& warning : config->warnings) {
    Log(Severity::kWarning, "model_setting_ignored", {{"because", warning}});
  }
  options.model.config = *config;
  options.model.tokenizer = tokenizer->get();

  const auto router = RouterServer::Start(options);
  if (!router.ok()) RefuseToStart(absl::StrCat("--listen: ", router.status().message()));
  Log(Severity::kInfo, "router",
      {{"version", kVersion},
       {"model", options.model.name},
       {"architecture", config->architecture},
       {"context_tokens", config->context},
       {"vocab", config->vocab},
       {"mode", absl::GetFlag(FLAGS_mode)},
       {"serve_identity", options.core.serve_identity.ToString()},
       {"attach_token", options.token.empty() ? "none" : "set"},
       {"max_queued", options.core.max_queued},
       {"max_prompts_per_worker", options.core.max_prompts_per_worker},
       {"client_buffer_tokens", options.core.client_buffer_tokens},
       {"max_text_bytes", options.limits.text_bytes}});
  AddProcessMetrics("baton-router", &metrics);
  AddRouterMetrics(router->get(), &metrics);
  ServeMetrics(metrics_server.get(), &metrics);
  PrintAtStart(absl::StrCat("listening on ", (*router)->address(), "\n"));
  Log(Severity::kInfo, "listening", {{"address", (*router)->address()}});

  WaitForStop();
  Log(Severity::kInfo, "draining",
      {{"requests", (*router)->requests()}, {"grace", absl::FormatDuration(grace)}});
  (*router)->Shutdown(grace);
  metrics_server = nullptr;  // The metrics server reads from the router, so it ends first.
  const RouterCounters counters = (*router)->counters();
  Log(Severity::kInfo, "stopped",
      {{"requests", counters.arrived},
       {"answered", counters.finished_ok},
       {"failed", counters.finished_error},
       {"shed", counters.shed},
       {"migrations", counters.migrations},
       {"outgrown", counters.outgrown},
       {"data_loss", counters.data_loss},
       {"diverged", counters.diverged}});
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
