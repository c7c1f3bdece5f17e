#include "tests/goodput/load_flags.h"

#include <algorithm>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "tests/goodput/command.h"
#include "tests/goodput/load/http_get.h"
#include "tests/goodput/load/openai_connection.h"

namespace {

// All values of a flag that may be given several times. The first element is the default value,
// because Abseil reports the default when it registers the flag.
std::vector<std::string>& MetricsUrls() {
  static auto* urls = new std::vector<std::string>;
  return *urls;
}

}  // namespace

ABSL_FLAG(std::string, endpoint, "127.0.0.1:50051",
          "HOST:PORT of the router; if the name has several addresses, each is a router, and "
          "requests go to them in turn; if it has keys, set $BATON_API_KEY to one of them");
ABSL_FLAG(
    std::string, openai, "",
    "URL of a server with OpenAI's API, http://HOST:PORT or http://HOST:PORT/v1, to which the "
    "load goes instead of a router's gRPC; its key is read from $OPENAI_API_KEY. With "
    "--endpoint too, that router says which tokens prompts are made of, so that they are "
    "those of a load over gRPC");
ABSL_FLAG(std::string, openai_model, "",
          "name of the model to ask a server of --openai; default: the first one that it lists");
ABSL_FLAG(bool, openai_chat, false,
          "sends each prompt as the message of a user to /v1/chat/completions of the server of --openai");
ABSL_FLAG(std::string, model, "", "name of the model to ask; default: the model that is served");
ABSL_FLAG(
    std::string, mode, "",
    "serving mode to ask for: disaggregated, colocated or auto; default: the router's --mode");
ABSL_FLAG(double, rate, 0,
          "requests per second, 0.0001 to 10000; required unless the arrivals are those of a "
          "trace, which then keeps its own times; with --rate a trace is stretched to this rate");
ABSL_FLAG(std::string, arrivals, "",
          "pattern of arrivals: poisson, gamma (--cv), on-off (--on, --off), uniform (evenly "
          "spaced) or trace; default: trace with --trace, otherwise poisson");
ABSL_FLAG(double, cv, 1,
          "gamma: coefficient of variation of the gaps between arrivals, 0.05 to 50");
ABSL_FLAG(absl::Duration, on, absl::Seconds(5), "on-off: mean length of a period with arrivals");
ABSL_FLAG(absl::Duration, off, absl::Seconds(5),
          "on-off: mean length of a period without arrivals");
ABSL_FLAG(bool, spread, false,
          "trace: spreads requests of the same time at random until the time of the next one, "
          "because Mooncake traces have rounded times");
ABSL_FLAG(std::string, trace, "",
          "file of an Azure (CSV) or Mooncake (JSONL) trace: times, lengths, shared blocks; the "
          "seed chooses the row at which it begins");
ABSL_FLAG(std::string, prompts, "",
          "file of prompts, one per line: a text, or a JSON object with text and output_tokens; or "
          "a JSON list of conversations in ShareGPT's form, of which the first human turn is the "
          "prompt, and the answer to it gives the length; the seed chooses the first prompt");
ABSL_FLAG(std::string, prompt_tokens, "",
          "length of prompts in tokens: 128, uniform:16,256, lognormal:MEDIAN,SIGMA or "
          "quantiles:FILE; default: the lengths of --trace or --prompts");
ABSL_FLAG(std::string, output_tokens, "",
          "length of answers in tokens, in the same form as --prompt-tokens; default: the lengths "
          "of --trace or --prompts");
ABSL_FLAG(double, prompt_scale, 1,
          "trace: factor on the lengths of its prompts and of the blocks that they share, 0.0001 "
          "to 10000");
ABSL_FLAG(double, output_scale, 1, "trace: factor on the lengths of its answers, 0.0001 to 10000");
ABSL_FLAG(bool, forced_length, true,
          "makes each answer exactly as long as planned: end tokens do not end it");
ABSL_FLAG(
    uint64_t, seed, 1,
    "seed of arrivals, lengths, prompts, sampling, and the first row of a trace or prompt file");
ABSL_FLAG(uint64_t, prompt_salt, 0,
          "number that changes the content of all prompts but not their lengths, so that no prefix "
          "cache has them");
ABSL_FLAG(double, temperature, 0, "sampling temperature, 0 (greedy) to 100");
ABSL_FLAG(absl::Duration, warmup, absl::Seconds(30),
          "time before the measurement window; if the flag is not given, the longer of 30s and "
          "five TTFT targets");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(60), "length of the measurement window");
ABSL_FLAG(
    uint32_t, requests, 0,
    "number of requests after which the window ends, when the next one is due; 0: no such end");
ABSL_FLAG(bool, tail, true,
          "goes on sending requests after the window until the last measured one has ended; the "
          "additional ones are not measured");
ABSL_FLAG(int, channels, 8, "number of connections to the router, 1 to 1024");
ABSL_FLAG(absl::Duration, connect_timeout, absl::Seconds(10), "max time to reach the router");
ABSL_FLAG(
    absl::Duration, request_timeout, absl::Seconds(120),
    "max time of one request from its scheduled arrival; after it the request counts as timed out");
ABSL_FLAG(std::string, metrics_url, "",
          "page of Prometheus metrics, http://HOST:PORT/metrics, whose gauges baton_* are read "
          "every second; may be given many times")
    .OnUpdate([] { MetricsUrls().push_back(absl::GetFlag(FLAGS_metrics_url)); });

namespace baton {
namespace {

absl::StatusOr<ArrivalKind> KindFromFlags() {
  static const std::pair<const char*, ArrivalKind> kKinds[] = {
      {"poisson", ArrivalKind::kPoisson}, {"gamma", ArrivalKind::kGamma},
      {"on-off", ArrivalKind::kOnOff},    {"uniform", ArrivalKind::kUniform},
      {"trace", ArrivalKind::kTrace},
  };
  const std::string name = absl::GetFlag(FLAGS_arrivals);
  if (name.empty()) {
    return absl::GetFlag(FLAGS_trace).empty() ? ArrivalKind::kPoisson : ArrivalKind::kTrace;
  }
  for (const auto& [known, kind] : kKinds) {
    if (name == known) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--arrivals is '", name, "'; it takes poisson, gamma, on-off, uniform or trace"));
}

// Returns InvalidArgument if a flag was given that the chosen arrivals do not use.
absl::Status CheckFits(const char* flag, bool fits, const char* where) {
  if (fits || !FlagGiven(flag)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", absl::StrReplaceAll(flag, {{"_", "-"}}),
                                                 " has no meaning without ", where));
}

// Checks the flags that say where the load goes.
absl::Status CheckServer(const LoadSpec& spec) {
  if (absl::GetFlag(FLAGS_openai).empty()) {
    if (IsHostPort(spec.endpoint)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--endpoint is '", spec.endpoint,
                     "'; it takes HOST:PORT, such as 127.0.0.1:50051; for a URL use --openai"));
  }
  if (const auto url = ParseOpenAiUrl(spec.endpoint); !url.ok())
    return absl::InvalidArgumentError(absl::StrCat("--openai: ", url.status().message()));
  if (!spec.vocabulary_router.empty() && !IsHostPort(spec.vocabulary_router)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--endpoint is '", spec.vocabulary_router,
                     "'; it takes HOST:PORT, such as 127.0.0.1:50051"));
  }
  static constexpr std::pair<const char*, const char*> kOfRouters[] = {
      {"mode", "only a router's gRPC takes a mode"},
      {"model", "name the model with --openai-model"},
      {"channels", "each open request has a connection of its own"},
  };
  for (const auto& [flag, why] : kOfRouters) {
    if (!FlagGiven(flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " has no meaning with --openai: ", why));
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const LoadSpec& spec) {
  const WorkloadSpec& workload = spec.workload;
  const ArrivalKind kind = workload.arrivals.kind;
  absl::Status status = CheckFits("cv", kind == ArrivalKind::kGamma, "--arrivals=gamma");
  status.Update(CheckFits("on", kind == ArrivalKind::kOnOff, "--arrivals=on-off"));
  status.Update(CheckFits("off", kind == ArrivalKind::kOnOff, "--arrivals=on-off"));
  status.Update(CheckFits("spread", kind == ArrivalKind::kTrace, "the arrivals of a --trace"));
  status.Update(CheckFits("prompt_scale", !workload.trace.empty(), "--trace"));
  status.Update(CheckFits("output_scale", !workload.trace.empty(), "--trace"));
  if (kind != ArrivalKind::kTrace && !FlagGiven("rate"))
    status.Update(
        absl::InvalidArgumentError("--rate is needed, in requests per second, such as --rate=5"));
  // An internal rate of 0 means the trace's own rate, so --rate=0 is refused.
  if (FlagGiven("rate") && workload.arrivals.rate == 0) {
    status.Update(absl::InvalidArgumentError(
        "--rate=0 is not 0.0001 to 10000 requests per second; a trace has its own rate when none "
        "is given"));
  }
  status.Update(CheckServer(spec));
  for (const std::string& url : spec.metrics_urls) {
    if (const auto parsed = ParseHttpUrl(url); !parsed.ok())
      status.Update(
          absl::InvalidArgumentError(absl::StrCat("--metrics-url: ", parsed.status().message())));
  }
  return status;
}

}  // namespace

const std::vector<std::string>& LoadFlagNames() {
  static const auto* names = new std::vector<std::string>{"endpoint",
                                                          "openai",
                                                          "openai_model",
                                                          "openai_chat",
                                                          "model",
                                                          "mode",
                                                          "rate",
                                                          "arrivals",
                                                          "cv",
                                                          "on",
                                                          "off",
                                                          "spread",
                                                          "trace",
                                                          "prompts",
                                                          "prompt_tokens",
                                                          "output_tokens",
                                                          "prompt_scale",
                                                          "output_scale",
                                                          "forced_length",
                                                          "seed",
                                                          "prompt_salt",
                                                          "temperature",
                                                          "warmup",
                                                          "duration",
                                                          "requests",
                                                          "tail",
                                                          "channels",
                                                          "connect_timeout",
                                                          "request_timeout",
                                                          "metrics_url"};
  return *names;
}

std::vector<FlagGroup> LoadFlagGroups() {
  return {{"The server", "endpoint model mode openai openai-model openai-chat metrics-url"},
          {"When requests arrive", "rate arrivals cv on off trace spread seed"},
          {"What they ask for",
           "prompt-tokens output-tokens prompts prompt-scale output-scale forced-length "
           "prompt-salt temperature"},
          {"What is measured", "warmup duration requests tail"},
          {"Connections", "channels connect-timeout request-timeout"}};
}

absl::StatusOr<LoadSpec> LoadSpecFromFlags() {
  ASSIGN_OR_RETURN(ArrivalKind kind, KindFromFlags());
  LoadSpec spec;
  spec.endpoint = absl::GetFlag(FLAGS_endpoint);
  // The router names the tokens of the loads that go to a URL, also if only --compare has one.
  if (FlagGiven("endpoint")) spec.vocabulary_router = spec.endpoint;
  if (const std::string url = absl::GetFlag(FLAGS_openai); !url.empty()) spec.endpoint = url;
  spec.openai_model = absl::GetFlag(FLAGS_openai_model);
  spec.openai_chat = absl::GetFlag(FLAGS_openai_chat);
  spec.model = absl::GetFlag(FLAGS_model);
  spec.mode = absl::GetFlag(FLAGS_mode);
  spec.workload = {.arrivals = {.kind = kind,
                                .rate = absl::GetFlag(FLAGS_rate),
                                .cv = absl::GetFlag(FLAGS_cv),
                                .on_s = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_on)),
                                .off_s = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_off)),
                                .spread = absl::GetFlag(FLAGS_spread)},
                   .trace = absl::GetFlag(FLAGS_trace),
                   .prompts = absl::GetFlag(FLAGS_prompts),
                   .prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens),
                   .output_tokens = absl::GetFlag(FLAGS_output_tokens),
                   .prompt_scale = absl::GetFlag(FLAGS_prompt_scale),
                   .output_scale = absl::GetFlag(FLAGS_output_scale),
                   .forced_length = absl::GetFlag(FLAGS_forced_length)};
  spec.seed = absl::GetFlag(FLAGS_seed);
  spec.prompt_salt = absl::GetFlag(FLAGS_prompt_salt);
  spec.temperature = absl::GetFlag(FLAGS_temperature);
  spec.warmup = absl::GetFlag(FLAGS_warmup);
  spec.duration = absl::GetFlag(FLAGS_duration);
  spec.max_requests = absl::GetFlag(FLAGS_requests);
  spec.tail = absl::GetFlag(FLAGS_tail);
  spec.channels = absl::GetFlag(FLAGS_channels);
  spec.connect_timeout = absl::GetFlag(FLAGS_connect_timeout);
  spec.request_timeout = absl::GetFlag(FLAGS_request_timeout);
  spec.metrics_urls.assign(MetricsUrls().begin() + 1, MetricsUrls().end());
  RETURN_IF_ERROR(CheckFlags(spec));
  for (const std::string& name : LoadFlagNames()) {
    if (FlagGiven(name)) spec.given[name] = absl::FindCommandLineFlag(name)->CurrentValue();
  }
  if (!spec.metrics_urls.empty()) spec.given["metrics_url"] = absl::StrJoin(spec.metrics_urls, " ");
  return spec;
}

void SetTargets(const SloTargets& targets, LoadSpec* spec) {
  spec->targets = targets;
  if (!FlagGiven("warmup")) {
    spec->warmup = std::max(absl::Seconds(30), 5 * absl::Seconds(targets.ttft_s.value_or(0)));
  }
}

}  // namespace baton
