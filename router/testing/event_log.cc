#include "router/testing/event_log.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/overloaded.h"
#include "common/metrics/metric_registry.h"

namespace baton {
namespace {

// Returns the kind and then the numbers, separated by blanks.
template <class... Numbers>
std::string Line(const char* kind, const Numbers&... numbers) {
  std::string line = kind;
  (absl::StrAppend(&line, " ", numbers), ...);
  return line;
}

int Code(const absl::Status& status) { return static_cast<int>(status.code()); }

// Returns the position and id of each token in a list.
template <class List>
std::string Tokens(const List& tokens) {
  std::string text;
  for (const v1::Token& token : tokens) {
    absl::StrAppend(&text, " ", token.position(), ":", token.token_id());
  }
  return text;
}

// Returns the fields that prefill and decode requests share: number of the attempt, index of the
// answer, max_tokens, 1 if logprobs of the prompt are asked for, the number of prompt tokens, and
// the tokens of the answer so far.
template <class Request>
std::string Carried(const Request& request) {
  std::string text = absl::StrCat(
      request.attempt(), " ", request.answer_index(), " ", request.sampling().max_tokens(), " ",
      request.sampling().has_prompt_logprobs() ? 1 : 0, " ", request.original_prompt_tokens());
  for (int i = static_cast<int>(request.original_prompt_tokens()); i < request.token_ids_size();
       ++i) {
    absl::StrAppend(&text, " ", request.token_ids(i));
  }
  return text;
}

std::string LineOf(LegKey leg, const v1::PrefillEvent& event) {
  if (event.has_ticket()) return Line("ticket", leg, event.ticket().tokens());
  if (event.has_prompt_tokens()) {
    return Line("prefill_scores", leg) + Tokens(event.prompt_tokens().tokens());
  }
  const v1::FirstToken& first = event.first_token();
  return Line("first_token", leg, first.token().position(), first.token().token_id(),
              static_cast<int>(first.finish_reason()), first.queue_us(), first.prefill_us());
}

std::string LineOf(LegKey leg, const v1::DecodeEvent& event) {
  if (event.has_reserved()) return Line("promised", leg);
  if (event.has_tokens()) return Line("tokens", leg) + Tokens(event.tokens().tokens());
  if (event.has_outgrown()) return Line("outgrown", leg);
  if (event.has_prompt_tokens()) {
    return Line("decode_scores", leg) + Tokens(event.prompt_tokens().tokens());
  }
  const v1::DecodeFinished& finished = event.finished();
  return Line("finished", leg, static_cast<int>(finished.reason()), finished.stop_token_id(),
              finished.handover_hidden_us(), finished.handover_exposed_us(),
              finished.decode_wait_us(), finished.decode_us());
}

std::string LineOf(RequestKey request, const ClientEvent& event) {
  return std::visit(
      Overloaded{
          [&](const AnswerAccepted& e) { return Line("send_accepted", request, e.prompt_tokens); },
          [&](const PromptLogprobs& e) { return Line("send_scores", request) + Tokens(e.tokens); },
          [&](const AnswerDelta& e) {
            return Line("send_tokens", request, e.index) + Tokens(e.tokens);
          },
          [&](const AnswerFinished& e) {
            return Line("send_finished", request, e.index, static_cast<int>(e.reason),
                        e.stop_token.value_or(0));
          },
          [&](const AnswerSummary& e) {
            const PhaseMicros& t = e.timing;
            return Line("send_summary", request, e.index, e.usage.completion_tokens,
                        e.total.value_or(TokenUsage()).completion_tokens, e.migrations,
                        static_cast<int>(e.mode),
                        static_cast<int>(e.slo.value_or(SloVerdict()).lost_to), t.queue_us,
                        t.prefill_us, t.handover_hidden_us, t.handover_exposed_us, t.decode_wait_us,
                        t.decode_us, t.ttft_us, t.total_us);
          },
      },
      event);
}

std::string LineOf(const v1::LoadReport& load, AttachKey attach) {
  std::string line = Line("reported", attach, load.free_blocks(), load.draining() ? 1 : 0);
  for (const v1::PeerLink& link : load.links()) absl::StrAppend(&line, " ", link.epoch());
  return line;
}

}  // namespace

void EventLog::Add(std::string line) {
  absl::StrAppend(&text_, line, "\n");
  ++lines_;
}

void EventLog::Told(const CoreEvent& event, absl::Time now) {
  Add(absl::StrCat(
      absl::ToUnixMicros(now), " ",
      std::visit(
          Overloaded{
              [](const ClientArrived& e) {
                return Line("client_arrived", e.request, e.checked.prompt.size(), e.checked.answers,
                            static_cast<int>(e.checked.mode), e.checked.sampling.max_tokens);
              },
              [](const ClientWritable& e) { return Line("client_writable", e.request); },
              [](const ClientCancelled& e) { return Line("client_cancelled", e.request); },
              [](const ClientGone& e) { return Line("client_gone", e.request); },
              [](const PrefillSaid& e) { return LineOf(e.leg, e.event); },
              [](const DecodeSaid& e) { return LineOf(e.leg, e.event); },
              [](const LegEnded& e) { return Line("leg_ended", e.leg, Code(e.status)); },
              [](const WorkerAttached& e) {
                return Line("attached", e.attach, e.registration.epoch(),
                            static_cast<int>(e.registration.role()));
              },
              [](const WorkerReported& e) { return LineOf(e.load, e.attach); },
              [](const WorkerCached& e) {
                return Line("cached", e.attach, e.changes.after(), e.changes.last(),
                            e.changes.ByteSizeLong());
              },
              [](const WorkerDetached& e) { return Line("detached", e.attach); },
              [](const Overslept& e) { return Line("overslept", absl::ToInt64Microseconds(e.by)); },
              [](const Drain&) { return Line("drain"); },
              [](const StopAll&) { return Line("stop_all"); },
          },
          event)));
}

void EventLog::Asked(const CoreAction& action) {
  Add(std::visit(
      Overloaded{
          [](const StartPrefill& a) {
            return Line("start_prefill", a.leg, a.worker.key, Carried(a.request));
          },
          [](const StartDecode& a) {
            return Line("start_decode", a.leg, a.worker.key, a.request.has_ticket() ? 1 : 0,
                        Carried(a.request));
          },
          [](const CancelLeg& a) { return Line("cancel_leg", a.leg); },
          [](const PauseLeg& a) { return Line("pause_leg", a.leg); },
          [](const ResumeLeg& a) { return Line("resume_leg", a.leg); },
          [](const SendToClient& a) { return LineOf(a.request, a.event); },
          [](const FinishClient& a) { return Line("finish_client", a.request, Code(a.status)); },
          [](const AbortClient& a) { return Line("abort_client", a.request); },
          [](const SendPeers& a) {
            std::string line = Line("send_peers", a.attach);
            for (const v1::Peer& peer : a.peers.peers()) absl::StrAppend(&line, " ", peer.epoch());
            return line;
          },
          [](const ReportTaken& a) { return Line("report_taken", a.attach); },
          [](const CloseAttach& a) { return Line("close_attach", a.attach, Code(a.status)); },
          [](const DropWorker& a) { return Line("drop_worker", a.worker); },
          [](const ServingChanged& a) {
            return Line("serving_changed", a.serving ? 1 : 0, a.prefill_workers, a.decode_workers,
                        a.ready_prefill_workers, a.ready_decode_workers, a.unused.size(),
                        a.context_tokens);
          },
      },
      action));
}

void EventLog::Ended(const RouterCounters& c, const RequestMetrics& metrics) {
  Add(Line("ended", c.arrived, c.finished_ok, c.finished_error, c.shed, c.colocated, c.migrations,
           c.outgrown, c.data_loss, c.diverged, c.prefill_refused, c.decode_refused,
           c.identity_changes));
  MetricRegistry registry;
  metrics.AddTo(&registry);
  std::string values = "metrics";
  const std::string page = registry.Text();
  for (const absl::string_view line : absl::StrSplit(page, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "#")) continue;
    absl::StrAppend(&values, line.substr(line.rfind(' ')));
  }
  Add(std::move(values));
}

std::string HashLogs(const std::string& name, int seeds,
                     const std::function<void(uint64_t seed, EventLog* log)>& history) {
  const char* folder = std::getenv("BATON_LOG_DIR");
  uint64_t hash = 0;
  size_t lines = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    EventLog log;
    history(static_cast<uint64_t>(seed), &log);
    hash = Hash64(log.text(), hash);
    lines += log.lines();
    if (folder == nullptr) continue;
    const std::string path = absl::StrCat(folder, "/", name, "-", seed, ".log");
    BATON_CHECK(std::ofstream(path) << log.text()) << "could not write " << path;
  }
  return absl::StrCat(name, ": ", seeds, " seeds, ", lines, " lines, hash ",
                      absl::Hex(hash, absl::kZeroPad16));
}

int LogSeedsWanted() {
  const char* seeds = std::getenv("BATON_LOG_SEEDS");
  return seeds == nullptr ? 0 : std::atoi(seeds);
}

}  // namespace baton
