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

// One Prefill or Decode RPC to a worker. Exists from the start of the RPC until its last event,
// LegEnded, has been handled.
struct Leg {
  LegKey key = 0;
  // Request whose attempt uses this RPC. Null once the leg is closed: the core then only waits for
  // the event LegEnded, which says that the RPC is over.
  Request* request = nullptr;
  WorkerKey worker = 0;
  bool prefill = false;
  bool paused = false;
  bool forgets = false;  // Opened by OpenToForget(), and not cancelled.
  absl::Time started;
  absl::Time heard;            // Time of the leg's last event, or of its start.
  uint64_t prompt_tokens = 0;  // Tokens of the prompt that the worker computes; 0 once it has.
  uint64_t cached_tokens = 0;  // Part of it that the worker was expected to have cached.
  uint64_t turn = 0;           // QueueEntry::turn of the request when the leg was opened.
};

// Owns the legs, which are the RPCs to workers, and the list of requests whose ticket waits for a
// decode worker with free blocks. Updates the load counts in Worker when legs open and close. Makes
// RequestQueue look through the queue again whenever a worker may have become free for a prompt.
// Core's loop thread only.
//
// An attempt closes a leg that has failed. The leg then no longer counts as load of its worker, but
// stays here until the event LegEnded.
class Legs {
 public:
  // The arguments outlive the object.
  Legs(CoreContext* core, Membership* membership, RequestQueue* queue)
      : core_(core), membership_(membership), queue_(queue) {}

  // Adds a leg, which is one RPC to a worker, to the request's attempt. Counts it as load of the
  // worker. The caller adds the action that starts the RPC. `prompt_tokens` is the number of tokens
  // of the prompt if the worker computes it, of which `cached_tokens` are expected in its cache; 0
  // if the worker pulls the KV. A worker that computes the prompt counts as keeping its blocks from
  // now on. The leg stays at its address until Ended().
  Leg& Open(Request* request, Worker& worker, bool prefill, uint64_t prompt_tokens,
            uint64_t cached_tokens);
  // Adds a leg (an RPC) that only tells a worker to remove KV from its prefix cache. It belongs to
  // no request and is no load. The caller adds the action that starts the RPC.
  LegKey OpenToForget(const Worker& worker, bool prefill);
  // Cancels all legs that OpenToForget() made. Called when the router stops.
  void CancelForgetting();
  // Notes that the worker of an open leg (one RPC to a worker) will have the blocks of the
  // request's prompt in its prefix cache. Open() does this for a worker that computes the prompt.
  // For a worker that pulls the KV, the attempt calls it once the worker has reserved the blocks.
  void NoteKept(const Leg& leg);
  // Records that the worker of a leg (one RPC to a worker) has computed the prompt. A second call
  // does nothing.
  void PromptDone(Leg& leg);
  // Closes the leg, which is one RPC to a worker. The attempt gets no further events from it, but
  // the Leg object stays until Ended(). If `cancel` is true, adds the action that cancels the RPC.
  // Called once per leg.
  void Close(Leg& leg, bool cancel);
  // Destroys a leg, which is an RPC to a worker. The RPC must be over, and the leg must be closed.
  void Ended(LegKey key) { legs_.erase(key); }

  // Returns the leg, or null if there is none with this key.
  Leg* Find(LegKey key);
  size_t size() const { return legs_.size(); }
  // Returns the legs, which are RPCs to workers, that go to one of `workers`. Leaves out closed
  // legs.
  std::vector<LegKey> ListeningTo(const std::vector<WorkerKey>& workers) const;
  // Adds `by`, the time during which the router was not running, to the time of each leg's last
  // event. So this time does not count as silence of a worker.
  void Excuse(absl::Duration by);

  // WaitForRoom adds the request to the list of requests that have a ticket for their KV and wait
  // for a decode worker with free blocks. StopWaiting takes it off the list.
  void WaitForRoom(Request* request);
  void StopWaiting(Request* request);
  // Makes the first request whose ticket waits offer the ticket again now, because a decode worker
  // may have free blocks.
  void RoomFreed();
  // Returns the decode workers that may get a waiting ticket. A ticket waits while no decode worker
  // has enough free blocks for the sequence whose KV it names. RequestQueue starts no prompt that
  // might take the blocks of these workers.
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
