#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/byte_size.h"
#include "common/base/free_memory.h"
#include "common/base/listen_check.h"
#include "common/base/log.h"
#include "common/base/program.h"
#include "common/base/random.h"
#include "common/metrics/metrics_flag.h"
#include "common/metrics/process_metrics.h"
#include "common/rpc/connection_acceptor.h"
#include "common/rpc/dial.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/serving_mode.h"
#include "router/core/routing_policy.h"
#include "router/core/worker_caches.h"
#include "router/model_text.h"
#include "router/router_metrics.h"
#include "router/router_server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:50051",
          "HOST:PORT to serve clients and workers on; port 0 takes any free port");
ABSL_FLAG(std::string, http_listen, "",
          "HOST:PORT to serve the OpenAI API over HTTP on; port 0 takes any free port; default: no "
          "HTTP");
ABSL_FLAG(bool, http_metrics, false, "serves /metrics on --http-listen, too");
ABSL_FLAG(std::string, http_allow_origin, "",
          "origin of web pages that browsers may show answers over HTTP to, such as "
          "https://chat.example.com, or * for all; default: none");
ABSL_FLAG(std::string, http_unknown_fields, "ignore",
          "fields of HTTP requests that the router does not know: ignore (they are named in the "
          "log and in the header x-baton-ignored-fields) or refuse");
ABSL_FLAG(std::string, api_key_file, "",
          "file with the API keys that clients may use, one a line, read again when it changes; "
          "default: the key in $BATON_API_KEY, or none");
ABSL_FLAG(std::string, model, "",
          "Hugging Face folder with tokenizer.json and config.json, or GGUF file (required)");
ABSL_FLAG(std::string, model_name, "",
          "name of the model for clients, 1 to 200 bytes; default: the folder's or file's name");
ABSL_FLAG(std::string, generation_config, "auto",
          "auto: what a request leaves open is as in generation_config.json of the folder; ignore: "
          "that file is not read");
ABSL_FLAG(std::string, chat_template, "auto",
          "chat template that writes conversations as prompts: auto (the one of the folder), none "
          "(conversations are refused), or a file");
ABSL_FLAG(std::string, attach_token, "",
          "token that router and workers share: a worker must send it to the router, and the "
          "router sends it to the worker; default: $BATON_ATTACH_TOKEN, or none");
ABSL_FLAG(std::string, mode, "disaggregated",
          "kind of worker that computes prompts: disaggregated (prefill workers), colocated "
          "(decode workers, in chunks beside running answers), or auto (the router decides for "
          "each request); a request may ask for another mode");
ABSL_FLAG(std::string, policy, "prefix",
          "rule by which one of several workers is chosen: prefix (little load, and much of the "
          "prompt cached), least-loaded, or round-robin (in turn, whatever their load)");
ABSL_FLAG(
    baton::ByteSize, prefix_index_bytes, baton::ByteSize{64 << 20},
    "max memory for the names of the KV blocks that workers keep, such as 64Mi; some 100 bytes "
    "for each block of a long prompt; 0: the router does not know what workers keep");
ABSL_FLAG(int, auto_prompt_tokens, 64,
          "mode auto: decode workers compute prompts of up to this many tokens (0 to 100000000)");
ABSL_FLAG(
    int, auto_uncached_tokens, 256,
    "mode auto: a decode worker computes a prompt of which it has cached a part, and lacks up to "
    "this many tokens; the default is what it computes of prompts in one step (0 to 100000000)");
ABSL_FLAG(int, auto_queue_tokens, 4096,
          "mode auto: decode workers also compute longer prompts while every prefill worker has "
          "more than this many prompt tokens left to compute (0 to 100000000)");
ABSL_FLAG(int, max_queued, 1024,
          "max requests that wait for a worker; more are refused (1 to 1000000)");
ABSL_FLAG(absl::Duration, max_queue_wait, absl::Seconds(30),
          "max time that a request waits to begin while workers serve; one that would wait for "
          "longer, or could not end before its deadline, is refused at once");
ABSL_FLAG(int, max_queued_per_caller, 0,
          "max requests of one caller that wait for a worker; 0: no limit (0 to 1000000)");
ABSL_FLAG(int, max_running_per_caller, 0,
          "max requests of one caller that workers serve; more wait; 0: no limit (0 to 1000000)");
ABSL_FLAG(
    int, max_tokens_per_minute_per_caller, 0,
    "max tokens that are computed for one caller in a minute, prompts and answers alike; then "
    "its requests are refused for a while; 0: no limit (0 to 1000000000)");
ABSL_FLAG(
    bool, trust_tenant_metadata, false,
    "callers are told apart by the metadata or header x-baton-tenant, where a request has it, "
    "and not only by their addresses; for networks where clients are trusted");
ABSL_FLAG(int, max_prompts_per_worker, 64,
          "max prompts at one worker that have no first token yet (1 to 1000000)");
ABSL_FLAG(int, max_migrations, 64,
          "max times that one request goes back to prefill because a worker failed it; then the "
          "request fails (0 to 1000000)");
ABSL_FLAG(int, client_buffer_tokens, 512,
          "max tokens that wait for a slow client; then its sequence pauses (1 to 1000000)");
ABSL_FLAG(
    int, max_text_bytes, 8 << 20,
    "max bytes of the text of a prompt, a Tokenize call or a Detokenize call (1 to 67108864)");
ABSL_FLAG(absl::Duration, default_deadline, absl::Seconds(600),
          "time limit of a request whose client sets none");
ABSL_FLAG(int, max_text_calls, 64,
          "max Tokenize and Detokenize calls at one time, of which one caller gets up to three "
          "quarters; more are refused (1 to 1000000)");
ABSL_FLAG(
    baton::ByteSize, max_open_bytes, baton::ByteSize{256 << 20},
    "max memory for the prompts of requests that wait or run, such as 256Mi, of which one "
    "caller gets up to three quarters; more requests are refused. A prompt takes 4 to 5 bytes "
    "for each token (1Mi to 1Ti)");
ABSL_FLAG(std::string, serve_identity, "",
          "identity that workers must have to be used: FINGERPRINT/NUMERICS, or FINGERPRINT alone, "
          "as `baton-client models` shows it; default: the identity of the largest number of "
          "usable workers");
ABSL_FLAG(absl::Duration, identity_lead, absl::Seconds(10),
          "time for which another identity must have more usable workers before the router changes "
          "to it");
ABSL_FLAG(absl::Duration, slow_client_limit, absl::Seconds(30),
          "max time that the buffer of a slow client stays full; then its request fails");
ABSL_FLAG(absl::Duration, pair_wait, absl::Seconds(30),
          "max time that a request waits while there are no usable workers for it; then it fails");
ABSL_FLAG(absl::Duration, room_wait, absl::Seconds(30),
          "max time that a request waits while all its workers are full; then it is refused");
ABSL_FLAG(absl::Duration, report_limit, absl::Seconds(3),
          "max age of a worker's last load report; a worker with an older one gets no new work");
ABSL_FLAG(absl::Duration, stall, absl::Seconds(5),
          "max silence of an RPC to a worker whose load reports have stopped; then the worker "
          "counts as dead");
ABSL_FLAG(absl::Duration, leg_silence_limit, absl::Seconds(60),
          "max silence of an RPC to a worker that reports its load and should be sending tokens; "
          "then another worker takes over the request. While the worker computes a prompt, this is "
          "the limit per 1,000 tokens that it has to compute");
ABSL_FLAG(int, max_connections, 4096,
          "max open connections of clients and workers; more are closed at once. Each takes two "
          "descriptors (1 to 1000000)");
ABSL_FLAG(int, max_connections_per_address, 0,
          "max open connections from one IP address; 0: no limit, as behind a load balancer all "
          "clients have one address (0 to 1000000)");
ABSL_FLAG(int, max_calls_per_connection, 4096,
          "max calls that are open on one connection at the same time; clients know it and wait, "
          "and the connection of one that goes on all the same is cut (100 to 1000000)");
ABSL_FLAG(int, max_cancels_per_second, 200,
          "max calls that a client cancels on one connection within a second, before their "
          "deadlines; then the connection is cut; raise it for a proxy that carries the calls of "
          "many clients; 0: no limit (0 to 1000000)");
ABSL_FLAG(int, max_unfinished_bytes, 160 << 20,
          "max bytes that one connection has sent of requests that are not complete; then the "
          "connection is cut; at least two requests of the largest size are allowed; 0: no limit "
          "(0 to 2147483647)");
ABSL_FLAG(
    int, max_calls_without_request, 8192,
    "max calls on all connections together whose request has not come, and Watch calls of the "
    "health service; above it, the address with the most loses its connection with the most; "
    "0: no limit (0 to 1000000)");
ABSL_FLAG(int, max_unfinished_bytes_in_all, 224 << 20,
          "max bytes that all connections together have sent of requests that are not complete; "
          "above it, the address with the most loses its connection with the most; at least two "
          "requests of the largest size are allowed; 0: no limit (0 to 2147483647)");
ABSL_FLAG(absl::Duration, max_connection_age, absl::ZeroDuration(),
          "approximate age of a connection at which its client is asked to connect anew, so that "
          "clients leave a router that DNS no longer names; running answers go on; 0: never");
ABSL_FLAG(absl::Duration, hang_limit, absl::Seconds(10),
          "max time that the router's loop may make no progress, 200ms or more; after it health is "
          "NOT_SERVING until the loop goes on");
ABSL_FLAG(absl::Duration, drain_grace, absl::Seconds(30),
          "max time for running requests to finish after SIGTERM");

namespace baton {
namespace {

constexpr char kUsage[] =
    "baton-router --model DIR [flags]\n\n"
    "Takes requests over gRPC, tokenises them, hands them to the prefill and decode workers that\n"
    "attach to it, and streams the text back. After SIGTERM it finishes running requests and\n"
    "takes no new ones; a second SIGTERM ends it at once.";

// Groups of flags, in the order in which --help shows them.
std::vector<FlagGroup> FlagGroups() {
  return {
      {"Addresses", "listen attach-token api-key-file metrics-listen"},
      {"HTTP", "http-listen http-metrics http-allow-origin http-unknown-fields"},
      {"Model", "model model-name generation-config chat-template serve-identity identity-lead"},
      {"Choice of workers",
       "mode policy prefix-index-bytes auto-prompt-tokens auto-uncached-tokens auto-queue-tokens"},
      {"Limits of requests",
       "max-queued max-queue-wait max-queued-per-caller max-running-per-caller "
       "max-tokens-per-minute-per-caller trust-tenant-metadata max-prompts-per-worker "
       "max-migrations "
       "default-deadline max-open-bytes max-text-bytes max-text-calls"},
      {"Waiting for workers", "pair-wait room-wait report-limit stall leg-silence-limit"},
      {"Clients",
       "client-buffer-tokens slow-client-limit max-connections max-connections-per-address "
       "max-calls-per-connection max-calls-without-request max-cancels-per-second "
       "max-unfinished-bytes max-unfinished-bytes-in-all max-connection-age"},
      {"Stopping and hanging", "drain-grace hang-limit"},
      {"Log", "log-level log-format"}};
}

absl::Duration CheckedTime(absl::string_view name, absl::Duration value, absl::Duration lowest) {
  if (value < lowest || value > absl::Hours(24 * 365)) {
    RefuseToStart(absl::StrCat("--", name, " is ", absl::FormatDuration(value), "; it takes ",
                               absl::FormatDuration(lowest), " to a year"));
  }
  return value;
}

ServingMode ModeFromFlag() {
  const std::string name = absl::GetFlag(FLAGS_mode);
  const absl::StatusOr<v1::ServingMode> mode = ServingModeFromName(name);
  if (!mode.ok()) RefuseToStart(absl::StrCat("--mode is '", name, "'; ", mode.status().message()));
  return static_cast<ServingMode>(*mode);
}

RoutingPolicyKind PolicyFromFlag() {
  const std::string name = absl::GetFlag(FLAGS_policy);
  const absl::StatusOr<RoutingPolicyKind> policy = RoutingPolicyFromName(name);
  if (!policy.ok()) {
    RefuseToStart(absl::StrCat("--policy is '", name, "'; ", policy.status().message()));
  }
  return *policy;
}

size_t IndexBytesFromFlag() {
  const uint64_t bytes = absl::GetFlag(FLAGS_prefix_index_bytes).bytes;
  const size_t lowest = WorkerCaches::MinBytes();
  if (bytes != 0 && (bytes < lowest || bytes > (uint64_t{1} << 40))) {
    RefuseToStart(absl::StrCat("--prefix-index-bytes is ", ByteSizeText(bytes), "; it takes 0, or ",
                               ByteSizeText(lowest), " to 1Ti"));
  }
  return bytes;
}

size_t OpenBytesFromFlag() {
  const uint64_t bytes = absl::GetFlag(FLAGS_max_open_bytes).bytes;
  if (bytes < (uint64_t{1} << 20) || bytes > (uint64_t{1} << 40)) {
    RefuseToStart(
        absl::StrCat("--max-open-bytes is ", ByteSizeText(bytes), "; it takes 1Mi to 1Ti"));
  }
  return bytes;
}

void HttpFromFlags(HttpDoor::Options* http) {
  http->listen = absl::GetFlag(FLAGS_http_listen);
  if (!http->listen.empty() && !IsHostPort(http->listen)) {
    RefuseToStart(absl::StrCat("--http-listen is '", http->listen,
                               "'; it takes HOST:PORT with a port from 0 to 65535"));
  }
  if (http->listen.empty() && absl::GetFlag(FLAGS_http_metrics)) {
    RefuseToStart("--http-metrics needs --http-listen");
  }
  http->allow_origin = absl::GetFlag(FLAGS_http_allow_origin);
  for (const char c : http->allow_origin) {
    if (absl::ascii_isgraph(static_cast<unsigned char>(c))) continue;
    RefuseToStart(absl::StrCat("--http-allow-origin is '", http->allow_origin,
                               "'; it takes an origin such as https://chat.example.com, or *"));
  }
  const std::string unknown = absl::GetFlag(FLAGS_http_unknown_fields);
  if (unknown != "ignore" && unknown != "refuse") {
    RefuseToStart(
        absl::StrCat("--http-unknown-fields is '", unknown, "'; it takes ignore or refuse"));
  }
  http->refuse_unknown_fields = unknown == "refuse";
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
  absl::StatusOr<std::unique_ptr<ApiKeys>> keys =
      ApiKeys::Load(absl::GetFlag(FLAGS_api_key_file), "BATON_API_KEY");
  if (!keys.ok()) RefuseToStart(absl::StrCat("--api-key-file: ", keys.status().message()));
  options.keys = *std::move(keys);
  HttpFromFlags(&options.http);
  options.limits.text_bytes = static_cast<size_t>(
      CheckedInt("max-text-bytes", absl::GetFlag(FLAGS_max_text_bytes), 1, 64 << 20));
  options.max_text_calls =
      CheckedInt("max-text-calls", absl::GetFlag(FLAGS_max_text_calls), 1, 1000000);
  options.max_open_bytes = OpenBytesFromFlag();
  options.connections.connections =
      CheckedInt("max-connections", absl::GetFlag(FLAGS_max_connections), 1, 1000000);
  options.connections.per_address = CheckedInt(
      "max-connections-per-address", absl::GetFlag(FLAGS_max_connections_per_address), 0, 1000000);
  options.connections.streams = CheckedInt(
      "max-calls-per-connection", absl::GetFlag(FLAGS_max_calls_per_connection), 100, 1000000);
  options.connections.cancels_per_second =
      CheckedInt("max-cancels-per-second", absl::GetFlag(FLAGS_max_cancels_per_second), 0, 1000000);
  options.connections.unfinished_bytes = static_cast<uint64_t>(
      CheckedInt("max-unfinished-bytes", absl::GetFlag(FLAGS_max_unfinished_bytes), 0, INT32_MAX));
  options.connections.all_without_request = CheckedInt(
      "max-calls-without-request", absl::GetFlag(FLAGS_max_calls_without_request), 0, 1000000);
  options.connections.all_unfinished_bytes = static_cast<uint64_t>(
      CheckedInt("max-unfinished-bytes-in-all", absl::GetFlag(FLAGS_max_unfinished_bytes_in_all), 0,
                 INT32_MAX));
  RouterCoreOptions& core = options.core;
  core.mode = ModeFromFlag();
  core.policy = PolicyFromFlag();
  core.policy_seed = RandomU64();
  core.prefix_index_bytes = IndexBytesFromFlag();
  core.prefix_index_key = RandomU64();
  core.auto_uncached_tokens =
      CheckedInt("auto-uncached-tokens", absl::GetFlag(FLAGS_auto_uncached_tokens), 0, 100000000);
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
  core.max_queue_wait =
      CheckedTime("max-queue-wait", absl::GetFlag(FLAGS_max_queue_wait), absl::Milliseconds(1));
  core.per_caller = {.queued = CheckedInt("max-queued-per-caller",
                                          absl::GetFlag(FLAGS_max_queued_per_caller), 0, 1000000),
                     .running = CheckedInt("max-running-per-caller",
                                           absl::GetFlag(FLAGS_max_running_per_caller), 0, 1000000),
                     .tokens_per_minute = CheckedInt(
                         "max-tokens-per-minute-per-caller",
                         absl::GetFlag(FLAGS_max_tokens_per_minute_per_caller), 0, 1000000000)};
  options.limits.trust_tenant_metadata = absl::GetFlag(FLAGS_trust_tenant_metadata);
  core.max_prompts_per_worker =
      CheckedInt("max-prompts-per-worker", absl::GetFlag(FLAGS_max_prompts_per_worker), 1, 1000000);
  core.max_migrations =
      CheckedInt("max-migrations", absl::GetFlag(FLAGS_max_migrations), 0, 1000000);
  options.limits.default_deadline =
      CheckedTime("default-deadline", absl::GetFlag(FLAGS_default_deadline), absl::Milliseconds(1));
  options.hang_limit =
      CheckedTime("hang-limit", absl::GetFlag(FLAGS_hang_limit), absl::Milliseconds(200));
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
  core.leg_silence_limit =
      CheckedTime("leg-silence-limit", absl::GetFlag(FLAGS_leg_silence_limit), ms);
  return options;
}
int Main(int argc, char** argv) {
  BlockStopSignals();
  RaiseDescriptorLimit();
  const auto rest = StartProgram(argc, argv, {kUsage, FlagGroups()});
  if (!rest.empty())
    RefuseToStart(absl::StrCat("'", rest[0], "' is not expected here; flags begin with --"));
  GiveBackLargeBlocks();
  RouterServer::Options options = OptionsFromFlags();
  const absl::Duration grace =
      CheckedTime("drain-grace", absl::GetFlag(FLAGS_drain_grace), absl::ZeroDuration());
  MetricRegistry metrics;
  std::unique_ptr<MetricsServer> metrics_server = ListenForMetrics();

  const std::string path = absl::GetFlag(FLAGS_model);
  if (path.empty()) {
    RefuseToStart("--model is missing; it takes a Hugging Face folder or a GGUF file");
  }
  const std::string generation = absl::GetFlag(FLAGS_generation_config);
  if (generation != "auto" && generation != "ignore") {
    RefuseToStart(
        absl::StrCat("--generation-config is '", generation, "'; it takes auto or ignore"));
  }
  const absl::StatusOr<ModelText> text =
      OpenModelText(path, generation == "auto", absl::GetFlag(FLAGS_chat_template));
  if (!text.ok()) RefuseToStart(text.status().message());
  const ModelConfig& config = text->config;
  options.model.name = absl::GetFlag(FLAGS_model_name);
  if (options.model.name.empty()) options.model.name = text->name;
  if (options.model.name.empty() || options.model.name.size() > 200) {
    RefuseToStart(
        absl::StrCat("--model-name is '", options.model.name, "'; it takes 1 to 200 bytes"));
  }
  if (!text->chat->usable().ok() && text->chat->description() != "none" &&
      absl::GetFlag(FLAGS_chat_template) != "none") {
    Log(Severity::kWarning, "no_chat", {{"because", text->chat->usable().message()}});
  }
  for (const std::string& warning : config.warnings) {
    Log(Severity::kWarning, "model_setting_ignored", {{"because", warning}});
  }
  if (config.generation.max_new_tokens || config.generation.max_length) {
    Log(Severity::kInfo, "default_max_tokens",
        {{"file", text->defaults_file},
         {"max_new_tokens", config.generation.max_new_tokens.value_or(0)},
         {"max_length", config.generation.max_length.value_or(0)}});
  }
  options.model.config = config;
  options.model.tokenizer = text->tokenizer.get();
  options.model.chat = text->chat.get();

  if (absl::GetFlag(FLAGS_http_metrics))
    options.http.metrics = [&metrics] { return metrics.Text(); };
  const auto router = RouterServer::Start(options);
  if (!router.ok()) RefuseToStart(router.status().message());
  Log(Severity::kInfo, "router",
      {{"version", kVersion},
       {"model", options.model.name},
       {"architecture", config.architecture},
       {"context_tokens", config.context},
       {"vocab", config.vocab},
       {"chat_template", text->chat->description()},
       {"mode", absl::GetFlag(FLAGS_mode)},
       {"policy", RoutingPolicyName(options.core.policy)},
       {"serve_identity", options.core.serve_identity.ToString()},
       {"attach_token", options.token.empty() ? "none" : "set"},
       {"api_keys", options.keys->required() ? "set" : "none"},
       {"max_queued", options.core.max_queued},
       {"max_prompts_per_worker", options.core.max_prompts_per_worker},
       {"client_buffer_tokens", options.core.client_buffer_tokens},
       {"max_text_bytes", options.limits.text_bytes}});
  AddProcessMetrics("baton-router", &metrics);
  AddRouterMetrics(router->get(), &metrics);
  (*router)->AddHttpMetrics(&metrics);
  ServeMetrics(metrics_server.get(), &metrics);
  PrintAtStart(absl::StrCat("listening on ", (*router)->address(), "\n"));
  Log(Severity::kInfo, "listening", {{"address", (*router)->address()}});
  if (!options.http.listen.empty()) {
    PrintAtStart(absl::StrCat("listening for HTTP on ", (*router)->http_address(), "\n"));
    Log(Severity::kInfo, "listening_http", {{"address", (*router)->http_address()}});
  }

  WaitForStop();
  Log(Severity::kInfo, "draining",
      {{"requests", (*router)->requests()}, {"grace", absl::FormatDuration(grace)}});
  (*router)->Shutdown(grace);
  metrics_server = nullptr;  // The metrics server reads from the router, so it is destroyed first.
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
