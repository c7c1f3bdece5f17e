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

// The state of a request inside RouterCore. Plain values: the classes that work on them are
// Clients, RequestQueue and Attempt.
namespace baton {

class Attempt;

// A request's wait for a worker. It is replaced as a whole when the request goes back to the queue
// after a broken attempt. An attempt that was refused counts as part of the wait.
struct QueueEntry {
  absl::Time since;
  absl::Time not_before = absl::InfinitePast();  // no attempt begins earlier
  std::optional<absl::Time> no_workers_since;    // no worker of its identity serves its mode
  std::optional<absl::Time> refused_since;       // every worker for its prompt was full
};

// What the client has taken, and what it has still to take.
struct ClientStream {
  bool writable = true;                  // everything that was sent has left the router
  std::deque<v1::Token> unsent_scores;   // logprobs of the prompt
  std::optional<absl::Time> slow_since;  // --client-buffer-tokens or more have waited since then
  std::optional<absl::Time> ended_at;    // when its status was sent: nothing follows
  absl::Duration leave_limit;            // from then on, to take what is on its way
  bool aborted = false;                  // the limit has passed
};

// When the phases of one attempt began, as the router saw it. What has not begun is not set.
struct AttemptTimes {
  absl::Time queued;                // its prompt has waited since then
  bool colocated = false;           // the queue's time is counted when the prompt begins
  std::optional<absl::Time> begun;  // the ticket came, or the decode worker began with the prompt
  std::optional<absl::Time> first_token, first_decode;  // tokens from prefill, and from decode
};

void AddQueueAndPrefill(v1::Timing* timing, absl::Duration queue, absl::Duration prefill);

// What the Summary of an answer says: where the time went, over all attempts, and who served the
// latest one.
struct RequestSummary {
  // Takes note that the first token is shown now. False if one was shown before.
  bool ShowFirst(const AttemptTimes& attempt, absl::Time arrival, absl::Time now);
  // Adds an attempt that a worker broke off. It has no figures of the worker's own, so the router's
  // are taken.
  void AddBroken(const AttemptTimes& attempt, absl::Time now);
  // Adds an attempt that completed the answer. `finished`: the decode worker's own figures, if the
  // answer did not end without its last word.
  void AddComplete(AttemptTimes attempt, const std::optional<v1::DecodeFinished>& finished,
                   absl::Time now);

  v1::Timing timing, at_first_token;
  bool shown = false;  // some of the answer
  std::string prefill_address, decode_address, link;
  v1::ServingMode mode = v1::SERVING_MODE_UNSPECIFIED;  // of the latest attempt
  int migrations = 0;
};

// One answer to a client, from ClientArrived to ClientGone. It is finished once client.ended_at is
// set; before that it is running while it has an attempt, and queued while it has none.
struct Request {
  Request(RequestKey k, CheckedRequest c, AnswerSoFar a);
  ~Request();

  // Answer i to a client is the request with the client's key and i above these bits.
  static constexpr int kClientBits = 56;
  static RequestKey KeyOf(RequestKey client, int index) {
    return client | static_cast<RequestKey>(index) << kClientBits;
  }
  RequestKey client_key() const { return key & ((RequestKey{1} << kClientBits) - 1); }
  bool finished() const { return client.ended_at.has_value(); }
  bool awaits_scores() const {
    return checked.sampling.prompt_logprobs.has_value() && prompt_scored < checked.prompt.size();
  }
  // When it has to be looked at although no event came.
  absl::Time WakeAt(const RouterCoreOptions& options) const;

  const RequestKey key;
  CheckedRequest checked;  // with the router's mode if it asked for none
  AnswerSoFar answer;
  bool sized = false;        // max_tokens is decided and known to fit
  int asked_max_tokens = 0;  // as the client asked; 0: to the end of the context
  // Set when the first attempt at any answer to the same client begins: only workers of this
  // identity get any of them from then on.
  std::optional<ModelIdentity> identity;

  // Over all attempts.
  bool tried = false;                             // there was one
  uint32_t prefill_attempts = 0;                  // legs that were opened, to number the next one
  uint32_t decode_attempts = 0;                   // the same, since the last prefill leg
  WorkerKey avoid_prefill = 0, avoid_decode = 0;  // failed it last; taken if there is no other
  absl::Status last_failure;                      // why the last attempt ended
  absl::Duration room_waited;                     // for a decode worker, since the last promise
  size_t prompt_scored = 0;                       // tokens of the prompt with known logprobs

  QueueEntry queue;
  ClientStream client;
  RequestSummary summary;
  std::unique_ptr<Attempt> attempt;
  absl::Time timer = absl::InfiniteFuture();  // as RequestTimers has it
};

}  // namespace baton
