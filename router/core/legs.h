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
  Request* request = nullptr;  // whose attempt listens; null: given up, only its end is waited for
  WorkerKey worker = 0;
  bool prefill = false;
  bool paused = false;
  absl::Time started;
  absl::Time heard;            // last event, or start
  uint64_t prompt_tokens = 0;  // of its prompt, which the worker has still to compute
};

// Owns the RPCs to workers, and the list of requests whose ticket waits for room. Keeps the counts
// in Worker in step with them, and makes RequestQueue look again whenever a place may have become
// free. Runs on the core's loop thread.
//
// A leg that has failed is closed by its attempt: it then counts no longer at its worker, and stays
// here until its end has come.
class Legs {
 public:
  // All outlive it.
  Legs(CoreContext* core, Membership* membership, RequestQueue* queue)
      : core_(core), membership_(membership), queue_(queue) {}

  // Adds a leg to the request's attempt. It starts no RPC: the caller adds the action that does.
  // `prompt_tokens`: how many the worker has to compute; 0 if it gets a ticket.
  Leg& Open(Request* request, Worker& worker, bool prefill, uint64_t prompt_tokens);
  // The worker has computed the leg's prompt.
  void PromptDone(Leg& leg);
  // The attempt no longer listens to the leg. With `cancel`, asks for its end.
  void Close(Leg& leg, bool cancel);
  // The RPC is over. The leg is closed; it does not exist after this.
  void Ended(LegKey key) { legs_.erase(key); }

  // Null if there is none.
  Leg* Find(LegKey key);
  size_t size() const { return legs_.size(); }
  // The legs to these workers that an attempt listens to.
  std::vector<LegKey> ListeningTo(const std::vector<WorkerKey>& workers) const;
  // The router was not running for `by`: the silence of workers meanwhile does not count.
  void Excuse(absl::Duration by);

  // The ticket of the request's attempt waits for room, until StopWaiting.
  void WaitForRoom(Request* request);
  void StopWaiting(Request* request);
  // Room may have become free: the first waiting ticket is offered again at once.
  void RoomFreed();
  // Decode workers that waiting tickets may go to. No prompt is begun that might want the same: no
  // client waits for room after its first token.
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
