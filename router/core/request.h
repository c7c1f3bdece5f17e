#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/core/answer_so_far.h"
#include "router/core/callers.h"
#include "router/core/core_events.h"
#include "router/core/forecast.h"
#include "router/core/router_core_options.h"
#include "router/core/routing_policy.h"

// The state of a request inside RouterCore. These are plain values that belong to the core's loop
// thread. Clients, RequestQueue and Attempt work on them.
namespace baton {

class Attempt;

// A request's wait for a worker. A new wait begins when the request goes back to the queue after a
// broken attempt. After a refused attempt the same wait goes on.
struct QueueEntry {
  absl::Time since;
  absl::Time not_before = absl::InfinitePast();  // No attempt begins before this time.
  // Notes that workers serve the request's mode and identity.
  void WorkersServe(absl::Time now) {
    if (!no_workers_since) return;
    without_workers += now - *no_workers_since;
    no_workers_since.reset();
  }
  // The result of Caller::Turn() when RequestQueue last looked at the request.
  uint64_t turn = 0;
  // Time since which no worker has served the request's mode and identity.
  std::optional<absl::Time> no_workers_since;
  // Sum of such times that are over. They do not count for --max-queue-wait.
  absl::Duration without_workers;
  std::optional<absl::Time> refused_since;  // First time that a full worker refused the prompt.
};

// Progress of sending one answer to its client.
struct ClientStream {
  bool writable = true;                 // Everything that was sent has left the router.
  std::deque<v1::Token> unsent_scores;  // Logprobs of the prompt that were not sent yet.
  // Time since which at least --client-buffer-tokens tokens have waited for the client to read
  // them.
  std::optional<absl::Time> slow_since;
  std::optional<absl::Time> ended_at;  // Time at which the request finished.
  absl::Duration leave_limit;  // Time after `ended_at` that the client has to read the rest.
  bool aborted = false;        // True once `leave_limit` has passed.
};

// Times at which the phases of one attempt began, as the router saw them. A time is not set while
// its phase has not begun.
struct AttemptTimes {
  absl::Time queued;       // Time since which the prompt has waited.
  bool colocated = false;  // If true, the queue time is added when the prompt begins.
  // Time at which the prefill worker sent its ticket or, if colocated, a decode worker began to
  // compute the prompt.
  std::optional<absl::Time> begun;
  // Times of the first token from the prefill worker and of the first from the decode worker.
  std::optional<absl::Time> first_token, first_decode;
};

// Adds `queue` and `prefill` to the sums in `timing`.
void AddQueueAndPrefill(PhaseMicros* timing, absl::Duration queue, absl::Duration prefill);

// The contents of an answer's Summary: the time that each phase took over all attempts, and the
// workers of the latest attempt.
struct RequestSummary {
  // Notes that the client is shown the first token now. Returns false if a token was shown before.
  bool ShowFirst(const AttemptTimes& attempt, absl::Time arrival, absl::Time now);
  // Adds an attempt that a worker broke off. The worker sent no times of its own, so the times that
  // the router saw are used.
  void AddBroken(const AttemptTimes& attempt, absl::Time now);
  // Adds an attempt that completed the answer. `finished` holds the times that the decode worker
  // measured; nothing if the answer ended without the worker's last message.
  void AddComplete(AttemptTimes attempt, const std::optional<v1::DecodeFinished>& finished,
                   absl::Time now);

  PhaseMicros timing, at_first_token;
  bool shown = false;  // True once some of the answer was shown.
  std::string prefill_address, decode_address, link;
  ServingMode mode = ServingMode::kUnspecified;  // Mode of the latest attempt.
  int migrations = 0;
  // Tokens of the prompt that were cached at the worker that computed it, when the answer began,
  // and tokens that were cached at the latest decode worker.
  uint32_t cached_tokens = 0, decode_cached_tokens = 0;
};

// The end of a request that is not tried again after a failure.
struct GivesUp {
  absl::Status status;
  Counter* counter;  // Counts this reason.
};

// One answer to a client, from ClientArrived to ClientGone. The request is finished once
// client.ended_at is set. An unfinished request is running while it has an attempt, and queued
// while it has none.
struct Request {
  Request(RequestKey k, std::shared_ptr<const CheckedRequest> c, int index, AnswerSoFar a);
  ~Request();

  // Number of low bits of a request's key that hold the client's key. The bits above hold the index
  // of the answer.
  static constexpr int kClientBits = 56;
  static RequestKey KeyOf(RequestKey client, int index) {
    return client | static_cast<RequestKey>(index) << kClientBits;
  }
  RequestKey client_key() const { return key & ((RequestKey{1} << kClientBits) - 1); }
  bool finished() const { return client.ended_at.has_value(); }
  // True if this answer brings the logprobs of the prompt. Only a client's first answer does.
  bool wants_scores() const {
    return answer_index == 0 && checked.sampling.prompt_logprobs.has_value();
  }
  // True if logprobs of the prompt that the client asked for are still missing.
  bool awaits_scores() const { return wants_scores() && prompt_scored < checked.prompt.size(); }
  // True if a worker that gets the request next may find its KV in the prefix cache.
  bool may_find_cached_kv() const {
    return checked.prefix_cache && !refresh_cache && !awaits_scores();
  }
  // True once an attempt at any of the client's answers has begun. The request is then not refused
  // any more because the workers have too much to do.
  bool begun() const { return tried || identity.has_value(); }
  // Records a worker in failed_by.
  void NoteFailedBy(WorkerKey worker) {
    if (worker != 0 && !WasFailedBy(worker)) failed_by.push_back(worker);
  }
  bool WasFailedBy(WorkerKey worker) const {
    return std::find(failed_by.begin(), failed_by.end(), worker) != failed_by.end();
  }
  // Time until which a request that has never run may wait, although workers serve its mode and
  // identity. InfiniteFuture for other requests.
  absl::Time WaitsUntil(const RouterCoreOptions& options) const;
  // Time at which the request has to be looked at even if no event comes.
  absl::Time WakeAt(const RouterCoreOptions& options) const;

  const RequestKey key;
  // The client's request. All its answers share it. Its mode is the router's if the client asked
  // for none.
  const std::shared_ptr<const CheckedRequest> shared;
  const CheckedRequest& checked;
  Caller* caller = nullptr;      // Set by Clients::Add.
  uint64_t expected_tokens = 0;  // The request's part of Caller::expected_tokens.
  const uint32_t answer_index;   // From 0 on.
  AnswerSoFar answer;
  bool sized = false;  // max_tokens is decided. Prompt and answer fit the workers.
  // Max tokens of the answer. While it is not decided: what the client asked for, 0 for as many as
  // the context leaves.
  int max_tokens;
  // Identity of the workers that answer the client. Set when the first attempt at any of the
  // client's answers begins. From then on only workers of this identity get these answers.
  std::optional<ModelIdentity> identity;

  // State over all attempts.
  bool tried = false;             // True once there was an attempt.
  uint32_t prefill_attempts = 0;  // Number of prefill legs so far, which numbers the next one.
  uint32_t decode_attempts = 0;   // Number of decode legs since the last prefill leg.
  // Workers that have failed this request, or sent KV to a worker that did. They are chosen only if
  // there is no other.
  std::vector<WorkerKey> failed_by;
  bool counted_failure = false;  // A failure of this request was counted against a worker.
  int invalid = 0;               // Number of times that a worker found the request invalid.
  // The workers that found it invalid, each with its RPC, and those that sent them tickets, with 0.
  std::vector<std::pair<WorkerKey, LegKey>> invalid_by;
  // Attempts in a row that were broken by a worker that did not die, and brought no new token.
  int broken_in_a_row = 0;
  // Index of a token of the answer for which a worker sent another one. The next attempt computes
  // it again.
  std::optional<size_t> disputed;
  // Length of prompt and answer when a worker's rotary table ended the last time; 0: never.
  size_t outgrown_at = 0;
  size_t tokens_at_break = 0;  // Tokens of the answer at the end of the last broken attempt.
  // Set if the last attempt was counted in broken_in_a_row, although one of these workers may have
  // died: the worker that broke it, and the worker at the other end of the KV's way. 0: none.
  std::array<WorkerKey, 2> suspects = {};
  // Time at which the retry after that was taken from the RetryBudget; not set if none was.
  std::optional<absl::Time> retry_taken;
  // Set while the request may not be tried again unless a suspect turns out to have died: how it
  // ends.
  std::optional<GivesUp> gives_up;
  // Workers that the client's other answers were given last, by LegKind; 0: none.
  std::array<WorkerKey, std::size(kLegKinds)> siblings = {};
  absl::Status last_failure;  // Reason for which the last attempt ended.
  // True once an attempt has failed with DataLoss or Internal. Cached KV may be the reason, so
  // later attempts find none.
  bool refresh_cache = false;
  absl::Duration room_waited;  // Time waited for blocks since a decode worker last reserved some.
  size_t prompt_scored = 0;    // Prompt tokens with known logprobs.

  QueueEntry queue;
  Work waiting_work;  // While the request is queued: the work that RequestQueue counts for it.
  ClientStream client;
  RequestSummary summary;
  std::unique_ptr<Attempt> attempt;
  absl::Time timer = absl::InfiniteFuture();  // Set by RequestTimers only.
};

}  // namespace baton
