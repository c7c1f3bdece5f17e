#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "router/core/core_events.h"

namespace baton {

// The router's side of the RPCs to workers. A leg is one Prefill or Decode RPC. Owns the legs, and
// one channel per worker. At most one event of a leg is on its way to the core: the next event is
// read when the core has taken the last one. So gRPC's flow control slows down a worker that is
// faster than the router or its client. Loop thread only.
class WorkerLegs {
 public:
  // `tell` passes the events of all legs, which are RPCs to workers, to the core. gRPC's threads
  // call it. The last event of each leg is LegEnded. `tell` must be callable until this object is
  // destroyed.
  WorkerLegs(std::string token, std::function<void(CoreEvent)> tell);
  // All legs (RPCs to workers) must have ended; aborts otherwise.
  ~WorkerLegs();

  // Opens a leg, which is one RPC to a worker, over a new channel if the worker has none. A failure
  // arrives as LegEnded.
  void Start(StartPrefill start);
  void Start(StartDecode start);
  // Cancels a leg, which is one RPC to a worker. LegEnded, the leg's last event, still follows.
  // Does nothing if the leg has ended.
  void Cancel(LegKey leg);
  // Pause() reads no further events of a leg (an RPC to a worker) after the pending read, and
  // Resume() reads on. Both do nothing if the leg has ended.
  void Pause(LegKey leg);
  void Resume(LegKey leg);
  // Call this when the core has taken an event of this leg (one RPC to a worker). Reads the leg's
  // next event, unless the leg is paused. Aborts if the leg has ended.
  void Taken(LegKey leg);
  // Removes a leg (one RPC to a worker). Called after the core has got LegEnded, the leg's last
  // event.
  void Ended(LegKey leg);
  // Drops the channel to this worker. Its open RPCs are not cancelled.
  void DropWorker(WorkerKey worker);

  // Interface of a leg, which is one Prefill or Decode RPC to a worker.
  class Leg {
   public:
    virtual ~Leg() = default;
    virtual void Cancel() = 0;
    virtual void Read() = 0;
  };

 private:
  struct Worker;
  struct State {
    std::shared_ptr<Leg> leg;
    bool paused = false;
    bool cancelled = false;
    bool read_due = false;  // The leg is paused and no read is pending.
  };
  Worker& Channel(const WorkerName& name);

  const std::string token_;
  const std::function<void(CoreEvent)> tell_;
  std::map<WorkerKey, std::unique_ptr<Worker>> workers_;
  std::map<LegKey, State> legs_;
};

}  // namespace baton
