#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/core/answer_so_far.h"
#include "router/core/core_events.h"

// The state of a request inside RouterCore. These are plain values that belong to the core's loop
// thread. Clients, RequestQueue and Attempt work on them.
namespace baton {

class Attempt;

// A request's wait for a worker. Replaced as a whole when the request goes back to the queue after
// a broken attempt. An attempt that was refused counts as part of the wait.
struct QueueEntry {
  absl::Time since;
  absl::Time not_before = absl::InfinitePast();  // No attempt begins earlier.
  // Time since which no worker of its identity serves its mode.
  std::optional<absl::Time> no_workers_since;
  std::optional<absl::Time> refused_since;  // First time that a full worker refused its prompt.
};

// A client's progress: the part of its answer that it has taken, and the part still to take.
struct ClientStream {
  bool writable = true;                  // Everything that was sent has left the router.
  std::deque<v1::Token> unsent_scores;   // Logprobs of the prompt that were not sent yet.
  std::optional<absl::Time> slow_since;  // Time since which --client-buffer-tokens or more wait.
  std::optional<absl::Time> ended_at;    // Time at which the request finished; nothing follows.
  absl::Duration leave_limit;  // Time from `ended_at` on in which the client may take the rest.
  bool aborted = false;        // The limit has passed.
};

// Times at which the phases of one attempt began, as the router saw them. A time is not set while
// its phase has not begun.
struct AttemptTimes {
  absl::Time queued;                // Time since which the prompt has waited.
  bool colocated = false;           // If true, the queue time is added when the prompt begins.
  std::optional<absl::Time> begun;  // The ticket came, or the decode worker began the prompt.
  // First token from prefill, and from decode.
  std::optional<absl::Time> first_token, first_decode;
};

// Adds the two times to the sums in `timing`.
void AddQueueAndPrefill(v1::Timing* timing, absl::Duration queue, absl::Duration prefill);

// The contents of an answer's Summary: where the time went, over all attempts, and which workers
// served the latest one.
struct RequestSummary {
  // Notes that the first token is shown now. Returns false if one was shown before.
  bool ShowFirst(const AttemptTimes& attempt, absl::Time arrival, absl::Time now);
  // Adds an attempt that a worker broke off. The worker sent no times of its own, so the router's
  // are used.
  void AddBroken(const AttemptTimes& attempt, absl::Time now);
  // Adds an attempt that completed the answer. `finished` holds the decode worker's own times; not
  // set if the answer ended without the worker's last message.
  void AddComplete(AttemptTimes attempt, const std::optional<v1::DecodeFinished>& finished,
                   absl::Time now);

  v1::Timing timing, at_first_token;
  bool shown = false;  // Some of the answer was shown.
  std::string prefill_address, decode_address, link;
  v1::ServingMode mode = v1::SERVING_MODE_UNSPECIFIED;  // Mode of the latest attempt.
  int migrations = 0;
};

// One answer to a client, from ClientArrived to ClientGone. The request is finished once
// client.ended_at is set. Before that it is running while it has an attempt, and queued while it
// has none.
struct Request {
  Request(RequestKey k, CheckedRequest c, AnswerSoFar a);
  ~Request();

  // Low bits of a request's key that hold the client's key. The bits above hold the index of the
  // answer.
  static constexpr int kClientBits = 56;
  static RequestKey KeyOf(RequestKey client, int index) {
    return client | static_cast<RequestKey>(index) << kClientBits;
  }
  RequestKey client_key() const { return key & ((RequestKey{1} << kClientBits) - 1); }
  bool finished() const { return client.ended_at.has_value(); }
  // True if logprobs of the prompt that the client asked for are still missing.
  bool awaits_scores() const {
    return checked.sampling.prompt_logprobs.has_value() && prompt_scored < checked.prompt.size();
  }
  // Time at which the request has to be looked at even if no event comes.
  absl::Time WakeAt(const RouterCoreOptions& options) const;

  const RequestKey key;
  CheckedRequest checked;  // Has the router's mode if the client asked for none.
  AnswerSoFar answer;
  bool sized = false;        // max_tokens is decided and known to fit.
  int asked_max_tokens = 0;  // As the client asked. 0: to the end of the context.
  // Set when the first attempt at any answer to the same client begins. From then on only workers
  // of this identity get these answers.
  std::optional<ModelIdentity> identity;

  // State over all attempts.
  bool tried = false;             // There was an attempt.
  uint32_t prefill_attempts = 0;  // Prefill legs so far; numbers the next one.
  uint32_t decode_attempts = 0;   // Decode legs since the last prefill leg.
  // Workers that failed it last; taken if there is no other.
  WorkerKey avoid_prefill = 0, avoid_decode = 0;
  absl::Status last_failure;   // Reason for which the last attempt ended.
  absl::Duration room_waited;  // Time waited for a decode worker since one last had room.
  size_t prompt_scored = 0;    // Prompt tokens with known logprobs.

  QueueEntry queue;
  ClientStream client;
  RequestSummary summary;
  std::unique_ptr<Attempt> attempt;
  absl::Time timer = absl::InfiniteFuture();  // Kept by RequestTimers.
};

}  // namespace baton
