#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "router/answer_so_far.h"
#include "router/router_core.h"
#include "router/served_identity.h"
#include "router/ways.h"
#include "router/worker_table.h"

// The inside of RouterCore; included by its sources alone.
namespace baton {

struct Leg {
  LegKey key = 0;
  RequestKey request = 0;  // 0: given up, only its end is waited for
  WorkerKey worker = 0;
  bool prefill = false;
  bool paused = false;
  absl::Time started;
  absl::Time heard;            // last event, or start
  uint64_t prompt_tokens = 0;  // counted at the worker that computes them until the first token
};

// A client that wants several answers: inside, each is a request of its own.
struct AnswerGroup {
  int answers = 0;
  int done = 0;         // with OK
  bool ended = false;   // the client has its status coming
  absl::Status status;  // then
  bool aborted = false;
  uint64_t completion_tokens = 0;  // of those that are done
};

struct Request {
  // Queued: no leg. Running: a prefill leg, and from the ticket on a decode leg or a wait for one;
  // or, colocated, a decode leg alone. Finished: the client has its status coming.
  enum class Stage { kQueued, kRunning, kFinished };

  Request(RequestKey k, CheckedRequest c, AnswerSoFar a)
      : key(k), checked(std::move(c)), answer(std::move(a)) {}

  // Answer i of a client is the request with the client's key and i above these bits.
  static constexpr int kClientBits = 56;
  static RequestKey KeyOf(RequestKey client, int index) {
    return client | static_cast<RequestKey>(index) << kClientBits;
  }
  RequestKey client() const { return key & ((RequestKey{1} << kClientBits) - 1); }

  const RequestKey key;
  CheckedRequest checked;
  AnswerSoFar answer;
  Stage stage = Stage::kQueued;
  bool tried = false;        // has left the queue before
  bool sized = false;        // max_tokens is decided and known to fit
  int asked_max_tokens = 0;  // as the client asked; 0: to the end of the context
  // Set when the first leg of any answer to the same client opens: only workers of this identity
  // get any of them from then on.
  std::optional<ModelIdentity> identity;

  // Queued.
  absl::Time enqueued;
  absl::Time not_before = absl::InfinitePast();
  std::optional<absl::Time> no_pair_since;
  std::optional<absl::Time> refused_since;  // all workers for its prompt were full
  WorkerKey avoid_prefill = 0, avoid_decode = 0;

  // This try.
  LegKey prefill_leg = 0, decode_leg = 0;
  WorkerKey prefill_worker = 0, decode_worker = 0;
  std::optional<v1::KvTicket> ticket;
  std::optional<v1::Token> held_first;  // token 1, until some decode worker has promised
  bool colocated = false;               // the decode worker computes the prompt
  bool promised = false;
  bool handed_over = false;  // decode has shown tokens: it holds the KV
  size_t scored = 0;         // tokens of the prompt whose logprobs came in this try
  // Of the decode leg, which is paused: they wait until all of the prompt is scored.
  std::vector<v1::DecodeEvent> early;
  size_t base = 0;  // tokens of the answer that are computed with the prompt
  std::vector<WorkerKey> refused_by;
  std::optional<absl::Time> room_since;  // waits for room since, less what earlier tries waited
  absl::Duration room_waited;            // by all tries since the last promise
  std::optional<absl::Time> partnerless_since;
  absl::Time room_retry = absl::InfiniteFuture();
  absl::Duration room_pause;
  uint32_t prefill_attempt = 0, decode_attempt = 0;  // of the next try
  int migrations = 0;
  absl::Status last_failure;

  // The prompt's logprobs that came, over all tries, and those that the client has not been sent.
  size_t prompt_scored = 0;
  std::deque<v1::Token> unsent_scores;
  bool awaits_scores() const {
    return checked.sampling.prompt_logprobs.has_value() && prompt_scored < checked.prompt.size();
  }

  // Client.
  bool writable = true;
  bool shown = false;  // some of its answer
  bool aborted = false;
  std::optional<absl::Time> slow_since;
  absl::Time finished;
  absl::Duration leave_limit;  // from then on, for the client to take what is on its way

  // For the Summary.
  v1::Timing timing, timing_at_first;  // now, and when the first token was shown
  std::string prefill_address, decode_address, link;
  v1::ServingMode served = v1::SERVING_MODE_UNSPECIFIED;
  std::optional<absl::Time> ticket_at;  // colocated: when the prompt was begun
  std::optional<absl::Time> first_token_at, first_decode_at;

  absl::Time timer = absl::InfiniteFuture();
};

struct RouterCore::Parts {
  explicit Parts(RouterCoreOptions o)
      : options(std::move(o)),
        workers(options.report_limit, options.pair_wait),
        served(options.serve_identity, options.identity_lead) {
    if (options.metrics == nullptr) {
      own_metrics = std::make_unique<RequestMetrics>();
      metrics = own_metrics.get();
    }
  }

  // Queue, workers, timers: router_core.cc
  void Arrive(ClientArrived event, absl::Time now);
  bool Size(Request& request, absl::Time now);
  v1::ServingMode ModeOf(const Request& request) const;
  // Longest prompt and answer together that was offered for such a request; 0: none yet.
  int64_t CapacityFor(const Request& request) const;
  // The identity that the request began with, or else the one that is served.
  const std::optional<ModelIdentity>& IdentityFor(const Request& request) const;
  // Whether there are workers for its mode and identity.
  bool Servable(const Request& request) const;
  // Why there are none that could take it, for people.
  std::string MissingFor(const Request& request, absl::Time now) const;
  std::string Missing(const Need& need, bool pair, bool begun, absl::Time now) const;
  ServingChanged Serving(absl::Time now) const;
  void Enqueue(Request& request, bool front, absl::Time now);
  void Dequeue(Request& request);
  std::set<WorkerKey> Awaited(absl::Time now);  // decode workers, by waiting_room
  void Dispatch(absl::Time now);
  void NotePairs(absl::Time now);
  void WorkersChanged(absl::Time now);
  // Counts the usable workers of each identity and changes the served one where it has to.
  void ChooseIdentity(absl::Time now);
  // Binds all answers to the request's client to the identity of the worker that one of them is
  // given to.
  void Bind(Request& request, const ModelIdentity& identity);
  void Unbind(const Request& request);  // before it is forgotten
  // Warns of a router that does not serve, and of workers that are not used, once that has lasted.
  void WatchUnused(const ServingChanged& serving, absl::Time now);
  void WarnOfUnused(absl::Time now);
  void AttachWorker(WorkerAttached event, absl::Time now);
  void CheckTimers(Request& request, absl::Time now);
  void SetTimer(Request& request);

  // Legs: request_legs.cc
  void OpenPrefill(Request& request, Worker& worker, absl::Time now);
  void TryDecode(Request& request, absl::Time now);
  // Its leg to a decode worker; the ticket, if any, is left to the caller.
  StartDecode OpenDecode(Request& request, Worker& worker, absl::Time now);
  void OnPrefill(Leg& leg, v1::PrefillEvent event, absl::Time now);
  void OnDecode(Leg& leg, v1::DecodeEvent event, absl::Time now);
  void OnFirstToken(Request& request, Leg& leg, const v1::FirstToken& first, absl::Time now);
  void OnPromptTokens(Request& request, Leg& leg, v1::PromptTokens tokens, absl::Time now);
  void OnPromised(Request& request, absl::Time now);
  void OnTokens(Request& request, Leg& leg, v1::Tokens tokens, absl::Time now);
  // False when the request was finished or its leg failed by it.
  bool TakeToken(Request& request, LegKey leg, v1::Token token, absl::Time now);
  // The worker of this leg has computed its prompt.
  void PromptDone(Leg& leg);
  // Takes the leg from its request and its worker; with `cancel`, asks for its end.
  void CloseLeg(Leg& leg, bool cancel, absl::Time now);
  void CloseLegs(Request& request, absl::Time now);
  // A leg that its request still listens to is over with `status`.
  void LegFailed(Leg& leg, absl::Status status, bool ended, absl::Time now);
  void PrefillFailed(Request& request, WorkerKey worker, absl::Status status, absl::Time now);
  void PromptRefused(Request& request, WorkerKey worker, absl::Status status, absl::Time now);
  void DecodeFailed(Request& request, WorkerKey worker, absl::Status status, absl::Time now);
  // Back to prefill. `lost_decode`: it was the decode worker that failed.
  void OnOutgrown(Request& request, Leg& leg, absl::Time now);
  void Restart(Request& request, absl::Status status, absl::Time now, bool lost_decode = false);
  bool EndTry(Request& request, const absl::Status& why, absl::Time now);
  void BackToPrefill(Request& request, absl::Time not_before, absl::Time now);
  void RoomFreed(absl::Time now);

  // A leg to a decode worker that computes the prompt: request_colocated.cc
  void OpenColocated(Request& request, Worker& worker, absl::Time now);
  void OnBegun(Request& request, absl::Time now);
  // False when that failed the leg.
  bool OnFirstColocated(Request& request, Leg& leg, absl::Time now);

  // Several answers to one client: request_group.cc
  void ArriveAll(ClientArrived event, absl::Time now);
  // Of the client's requests; the only one, or one for each answer.
  std::vector<Request*> RequestsOf(RequestKey client);
  AnswerGroup* GroupOf(const Request& request);
  // The one request of a client is over, or one of several: the client is told when all are, or at
  // once when one failed; the others then end with EndGroups.
  void EndClient(Request& request, absl::Status status);
  void AbortClientOf(const Request& request);
  void EndGroups(absl::Time now);

  // Client: request_end.cc
  void Pump(Request& request, absl::Time now);
  void Send(Request& request, v1::GenerateEvent event);
  void SendScores(Request& request);
  static size_t WaitingTokens(const Request& request);
  void FinishOk(Request& request, const AnswerEnd& end, const v1::DecodeFinished* finished,
                absl::Time now);
  void FinishError(Request& request, absl::Status status, absl::Time now);
  void AccountBrokenTry(Request& request, absl::Time now);
  // One line of the log when it has ended.
  void LogFinished(const Request& request, const absl::Status& status,
                   const v1::SloVerdict* verdict) const;
  // Its first token is about to leave.
  void FirstShown(Request& request, absl::Time now);
  // By the mode of its latest try; one that has had none, by that which it asks for.
  RequestMetrics::Served& ServedOf(const Request& request);

  Request* FindRequest(RequestKey key) {
    const auto found = requests.find(key);
    return found == requests.end() ? nullptr : &found->second;
  }
  Leg* FindLeg(LegKey key) {
    const auto found = legs.find(key);
    return found == legs.end() ? nullptr : &found->second;
  }
  Need NeedOf(const Request& request, WorkerKey avoid) const {
    return {static_cast<int64_t>(request.checked.prompt.size()) +
                std::max(1, request.checked.sampling.max_tokens),
            IdentityFor(request), avoid};
  }

  const RouterCoreOptions options;
  std::unique_ptr<RequestMetrics> own_metrics;  // unless somebody else's
  RequestMetrics* metrics = options.metrics;
  WorkerTable workers;
  ServedIdentity served;
  std::map<ModelIdentity, int> bound;  // how many requests keep each identity
  std::map<RequestKey, Request> requests;
  std::map<RequestKey, AnswerGroup> groups;  // of clients that want several answers
  std::vector<RequestKey> failed_groups;     // until EndGroups
  std::map<LegKey, Leg> legs;
  LegKey next_leg = 1;
  std::list<RequestKey> fresh, again;  // queued: new ones; ones that have run before, served first
  Ways::CountOfMode queued_of_mode{};
  std::set<RequestKey> waiting_room;  // tickets that no decode worker has promised room for
  std::set<std::pair<absl::Time, RequestKey>> timers;
  absl::Time stale_at = absl::InfiniteFuture();
  absl::Time forget_at = absl::InfiniteFuture();
  absl::Time dispatch_at = absl::InfiniteFuture();
  bool dispatch_due = false;
  bool peers_due = false;
  bool serving_due = true;
  bool draining = false;
  std::optional<ServingChanged> serving;
  // Why the router does not serve, or which workers are not used, as WatchUnused saw last, and when
  // a warning of that is due.
  std::string unused;
  absl::Time warn_at = absl::InfiniteFuture();
  // What NotePairs saw last: the served identity, and those with a pair and with a decode worker.
  std::optional<ModelIdentity> noted_served;
  std::set<ModelIdentity> noted_pairs, noted_decode;
  RouterCounters counters;
  std::vector<CoreAction> actions;
};

inline uint64_t Micros(absl::Duration d) {
  return d <= absl::ZeroDuration() ? 0 : static_cast<uint64_t>(absl::ToInt64Microseconds(d));
}

}  // namespace baton
