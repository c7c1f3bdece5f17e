#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "router/core/core_context.h"
#include "router/core/worker_table.h"

namespace baton {

class Membership;
class RequestQueue;

// One Prefill or Decode RPC, from its start to LegEnded.
struct Leg {
  LegKey key = 0;
  // Request whose attempt listens. Null: only the end of the leg is waited for.
  Request* request = nullptr;
  WorkerKey worker = 0;
  bool prefill = false;
  bool paused = false;
  absl::Time started;
  absl::Time heard;            // Time of its last event, or of its start.
  uint64_t prompt_tokens = 0;  // Prompt tokens that the worker has still to compute.
};

// Owns the RPCs to workers, and the list of requests whose ticket waits for room. Keeps the counts
// in Worker in step with the legs, and makes RequestQueue look again whenever a worker may have
// become free for a prompt. Core's loop thread only.
//
// An attempt closes a leg that has failed. The leg then no longer counts as load of its worker, but
// stays here until LegEnded.
class Legs {
 public:
  // The arguments outlive the object.
  Legs(CoreContext* core, Membership* membership, RequestQueue* queue)
      : core_(core), membership_(membership), queue_(queue) {}

  // Adds a leg to the request's attempt, and counts it as load of the worker. Does not start the
  // RPC: the caller adds the action that does. `prompt_tokens` is the number of tokens that the
  // worker has to compute; 0 if it gets a ticket. The leg stays at its address until Ended().
  Leg& Open(Request* request, Worker& worker, bool prefill, uint64_t prompt_tokens);
  // Notes that the worker has computed the leg's prompt. A second call does nothing.
  void PromptDone(Leg& leg);
  // Ends the attempt's interest in the leg, which stays until Ended(). With `cancel`, adds the
  // action that cancels the RPC. Called once per leg.
  void Close(Leg& leg, bool cancel);
  // Destroys a leg whose RPC is over. The leg must be closed.
  void Ended(LegKey key) { legs_.erase(key); }

  // Returns the leg, or null if there is none with this key.
  Leg* Find(LegKey key);
  size_t size() const { return legs_.size(); }
  // Returns the legs to these workers that an attempt still listens to.
  std::vector<LegKey> ListeningTo(const std::vector<WorkerKey>& workers) const;
  // Moves the legs' times by `by`, during which the router was not running: the silence of workers
  // in this time does not count.
  void Excuse(absl::Duration by);

  // Puts the request on the list of those whose ticket waits for room, or takes it off.
  void WaitForRoom(Request* request);
  void StopWaiting(Request* request);
  // Makes the first waiting ticket be offered again at once, because room may have become free.
  void RoomFreed();
  // Returns the decode workers that waiting tickets may go to. RequestQueue starts no prompt that
  // might compete for their blocks, so that clients do not wait for room after their first token.
  std::set<WorkerKey> Awaited() const;

 private:
  CoreContext* const core_;
  Membership* const membership_;
  RequestQueue* const queue_;
  std::map<LegKey, Leg> legs_;
  LegKey next_key_ = 1;
  std::map<RequestKey, Request*> waiting_;
};

}  // namespace baton
