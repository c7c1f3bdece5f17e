#include "router/core/request_metrics.h"

#include <algorithm>
#include <string>

namespace baton {
namespace {

double Seconds(uint64_t microseconds) { return 1e-6 * static_cast<double>(microseconds); }

}  // namespace

std::string SloPhaseName(SloPhase phase) {
  constexpr absl::string_view kNames[kSloPhases] = {"failed",      "queue",  "prefill", "handover",
                                                    "decode_wait", "decode", "other"};
  return std::string(kNames[static_cast<size_t>(phase)]);
}

double TpotSeconds(const PhaseMicros& timing, size_t tokens) {
  if (tokens < 2 || timing.total_us < timing.ttft_us) return 0;
  return Seconds(timing.total_us - timing.ttft_us) / static_cast<double>(tokens - 1);
}

void RequestMetrics::Served::Ended(const absl::Status& status) {
  ended[std::clamp(static_cast<int>(status.code()), 0, kCodes - 1)].Add();
}

void RequestMetrics::Served::Finished(const PhaseMicros& timing, size_t tokens) {
  if (tokens > 1) tpot.Observe(TpotSeconds(timing, tokens));
  duration.Observe(Seconds(timing.total_us));
  size_t phase = 0;
  for (const uint64_t us : {timing.queue_us, timing.prefill_us, timing.handover_hidden_us,
                            timing.handover_exposed_us, timing.decode_wait_us, timing.decode_us}) {
    phases[phase++].Observe(Seconds(us));
  }
}

void RequestMetrics::Judged(const SloVerdict& verdict, size_t tokens) {
  (verdict.met() ? slo_met : slo_missed).Add();
  (verdict.met() ? slo_met_tokens : slo_missed_tokens).Add(tokens);
  if (!verdict.met()) slo_lost[static_cast<size_t>(verdict.lost_to)].Add();
}

void RequestMetrics::Failed(const absl::Status& status, size_t tokens, int answers) {
  if (status.code() == absl::StatusCode::kCancelled) return;
  slo_missed.Add(answers);
  slo_missed_tokens.Add(tokens);
  slo_lost[0].Add(answers);
}

CallerMetrics::One& CallerMetrics::Of(const std::string& caller) {
  MutexLock lock(&mutex_);
  const auto found = callers_.find(caller);
  if (found != callers_.end()) return found->second;
  return callers_[callers_.size() < kNames + 1 ? caller : kOther];  // `other` is there too
}

std::vector<std::pair<std::string, double>> CallerMetrics::Values(Counter One::*counter) const {
  MutexLock lock(&mutex_);
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [name, one] : callers_) {
    values.emplace_back(name, static_cast<double>((one.*counter).value()));
  }
  return values;
}

void RequestMetrics::RefusedTokens(uint64_t prompt, double answer, bool decode_is_short) {
  if (decode_is_short) {
    decode_refused_tokens.Add(static_cast<uint64_t>(answer));
  } else {
    prefill_refused_tokens.Add(prompt);
  }
}

void RequestMetrics::AddTo(MetricRegistry* registry) const {
  const auto by_caller = [&](const char* name, const char* help,
                             Counter CallerMetrics::One::*counter) {
    registry->AddCounters(name, help, "caller",
                          [this, counter] { return callers.Values(counter); });
  };
  by_caller("baton_router_caller_requests_total", "Answers that were asked for, by caller.",
            &CallerMetrics::One::requests);
  by_caller("baton_router_caller_refused_total",
            "Answers that were refused because of a limit or of overload, by caller.",
            &CallerMetrics::One::refused);
  by_caller("baton_router_caller_tokens_total",
            "Tokens of prompts and answers that were computed, by caller.",
            &CallerMetrics::One::tokens);
  for (const auto& [mode, served] :
       {std::pair{"disaggregated", &disaggregated}, std::pair{"colocated", &colocated}}) {
    for (int code = 0; code < kCodes; ++code) {
      registry->AddCounter(
          "baton_router_requests_total", "Generate calls that have ended, by gRPC status.",
          {{"mode", mode}, {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}},
          &served->ended[code]);
    }
    registry->AddHistogram("baton_router_time_to_first_token_seconds",
                           "Time from a request's arrival until its first token is on the way to "
                           "the client, in seconds.",
                           {{"mode", mode}}, &served->ttft);
    registry->AddHistogram("baton_router_time_per_output_token_seconds",
                           "Mean time per token after the first, in seconds. One value per answer "
                           "of two tokens or more that ended with OK.",
                           {{"mode", mode}}, &served->tpot);
    registry->AddHistogram(
        "baton_router_request_duration_seconds",
        "Time from a request's arrival to the end of an answer that ended with OK, in seconds.",
        {{"mode", mode}}, &served->duration);
    for (size_t phase = 0; phase < std::size(kPhases); ++phase) {
      registry->AddHistogram(
          "baton_router_request_phase_seconds",
          "Time that an answer that ended with OK spent in each phase, in seconds.",
          {{"mode", mode}, {"phase", std::string(kPhases[phase])}}, &served->phases[phase]);
    }
  }
  registry->AddCounter("baton_router_prompt_tokens_total",
                       "Prompt tokens of requests admitted to the queue, counted once per answer.",
                       {}, &prompt_tokens);
  registry->AddCounter("baton_router_generated_tokens_total",
                       "Tokens generated for clients, each position of an answer once.", {},
                       &generated_tokens);
  registry->AddHistogram("baton_router_request_prompt_tokens",
                         "Tokens of a prompt. One value per answer that ended with OK.", {},
                         &prompt_lengths);
  registry->AddHistogram("baton_router_request_generated_tokens",
                         "Tokens of an answer that ended with OK.", {}, &answer_lengths);
  const auto by_verdict = [registry](const char* name, const char* help, const Counter* met,
                                     const Counter* missed) {
    registry->AddCounter(name, help, {{"verdict", "met"}}, met);
    registry->AddCounter(name, help, {{"verdict", "missed"}}, missed);
  };
  by_verdict(
      "baton_router_slo_requests_total",
      "Answers to requests with latency targets, by verdict. Failed answers count as missed.",
      &slo_met, &slo_missed);
  by_verdict("baton_router_slo_generated_tokens_total",
             "Tokens of answers to requests with latency targets, by verdict.", &slo_met_tokens,
             &slo_missed_tokens);
  for (size_t phase = 0; phase < slo_lost.size(); ++phase) {
    registry->AddCounter("baton_router_slo_missed_total",
                         "Answers that missed their latency targets, by the phase that the first "
                         "missed target was lost to.",
                         {{"phase", SloPhaseName(static_cast<SloPhase>(phase))}}, &slo_lost[phase]);
  }
  registry->AddCounter("baton_router_slow_clients_total",
                       "Requests ended because their client read too slowly.", {}, &slow_clients);
  registry->AddGauge("baton_router_prefix_index_bytes",
                     "Memory of the index of KV blocks that workers keep.", {},
                     [this] { return double(prefix_index_bytes.value()); });
  registry->AddGauge("baton_router_prefix_index_names",
                     "Different KV blocks in the index of blocks that workers keep.", {},
                     [this] { return double(prefix_index_names.value()); });
  registry->AddCounter("baton_router_prefix_index_evictions_total",
                       "KV blocks that the index forgot to make room for others.", {},
                       &prefix_index_evictions);
  registry->AddCounter("baton_router_prefix_index_dropped_total",
                       "Changes and recent prompts that found no room in the index of KV blocks.",
                       {}, &prefix_index_dropped);
  registry->AddHistogram("baton_router_cache_event_lag_seconds",
                         "Time from a change of a worker's prefix cache until the router's index "
                         "has it, in seconds. One value per message.",
                         {}, &cache_event_lag);
  constexpr char kFailures[] =
      "Requests that a worker failed while it was attached. One request counts once.";
  constexpr char kSuccesses[] =
      "Requests that a worker has served: the prefill worker and the decode worker of each answer.";
  registry->AddCounter("baton_router_worker_successes_total", kSuccesses, {{"role", "prefill"}},
                       &prefill_successes);
  registry->AddCounter("baton_router_worker_successes_total", kSuccesses, {{"role", "decode"}},
                       &decode_successes);
  constexpr char kEjections[] =
      "Times that a worker got no more requests for a while, because it failed several in a row.";
  registry->AddCounter("baton_router_worker_failures_total", kFailures, {{"role", "prefill"}},
                       &prefill_failures);
  registry->AddCounter("baton_router_worker_failures_total", kFailures, {{"role", "decode"}},
                       &decode_failures);
  registry->AddCounter("baton_router_worker_ejections_total", kEjections, {{"role", "prefill"}},
                       &prefill_ejections);
  registry->AddCounter("baton_router_worker_ejections_total", kEjections, {{"role", "decode"}},
                       &decode_ejections);
  registry->AddCounter("baton_router_retries_refused_total",
                       "Answers that failed because too many of the latest attempts were retries.",
                       {}, &retries_refused);
  constexpr char kGivenUp[] =
      "Answers that failed because several attempts in a row brought no token (broken), or because "
      "of --max-migrations (migrations), --pair-wait (pair_wait) or --room-wait (room_wait).";
  registry->AddCounter("baton_router_given_up_total", kGivenUp, {{"limit", "broken"}},
                       &broken_too_often);
  registry->AddCounter("baton_router_given_up_total", kGivenUp, {{"limit", "migrations"}},
                       &tried_too_often);
  registry->AddCounter("baton_router_given_up_total", kGivenUp, {{"limit", "pair_wait"}},
                       &no_worker);
  registry->AddCounter("baton_router_given_up_total", kGivenUp, {{"limit", "room_wait"}}, &no_room);
  constexpr char kRefused[] =
      "Tokens that were refused because the workers of this role have too much to do: tokens of "
      "prompts (prefill), expected tokens of answers (decode).";
  constexpr char kWait[] =
      "Predicted time for the work that waits for the workers of a role, in seconds. 0 while their "
      "speed is not known.";
  for (const auto& [role, tokens, wait] :
       {std::tuple{"prefill", &prefill_refused_tokens, &prefill_wait_ms},
        std::tuple{"decode", &decode_refused_tokens, &decode_wait_ms}}) {
    registry->AddCounter("baton_router_refused_tokens_total", kRefused, {{"role", role}}, tokens);
    registry->AddGauge("baton_router_predicted_wait_seconds", kWait, {{"role", role}},
                       [gauge = wait] { return double(gauge->value()) / 1000; });
  }
  constexpr char kExpected[] =
      "Prompt tokens that the router expected the worker that computes the prompt to have cached.";
  registry->AddCounter("baton_router_expected_cached_tokens_total", kExpected,
                       {{"role", "prefill"}}, &expected_prefill_hits);
  registry->AddCounter("baton_router_expected_cached_tokens_total", kExpected, {{"role", "decode"}},
                       &expected_decode_hits);
  for (const auto& [role, workers] :
       {std::pair{"prefill", &prefill_workers}, std::pair{"decode", &decode_workers}}) {
    for (size_t state = 0; state < std::size(kWorkerStates); ++state) {
      registry->AddGauge("baton_router_workers",
                         "Attached workers, by state: ready, draining, lost or ejected.",
                         {{"role", role}, {"state", std::string(kWorkerStates[state])}},
                         [gauge = &(*workers)[state]] { return double(gauge->value()); });
    }
  }
  for (const auto& [role, unused] :
       {std::pair{"prefill", &unused_prefill}, std::pair{"decode", &unused_decode}}) {
    for (size_t reason = 0; reason < std::size(kUnusedReasons); ++reason) {
      registry->AddGauge("baton_router_workers_unused",
                         "Ready workers that get no requests, by reason.",
                         {{"role", role}, {"reason", std::string(kUnusedReasons[reason])}},
                         [gauge = &(*unused)[reason]] { return double(gauge->value()); });
    }
  }
}

}  // namespace baton
