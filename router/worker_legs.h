#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "router/core/core_events.h"

namespace baton {

// The router's ends of Prefill and Decode RPCs: one channel per worker, one reader per leg. At most
// one event of a leg is on its way to the core; the next is read when the core has taken it, so a
// worker that is faster than the router or its client is held back by gRPC's flow control. Loop
// thread only; gRPC's threads call `tell`.
class WorkerLegs {
 public:
  // `tell` takes events from any thread until the object is gone.
  WorkerLegs(std::string token, std::function<void(CoreEvent)> tell);
  // All legs have ended by then.
  ~WorkerLegs();

  void Start(StartPrefill start);
  void Start(StartDecode start);
  void Cancel(LegKey leg);
  void Pause(LegKey leg);
  void Resume(LegKey leg);
  // The core has taken an event of this leg.
  void Taken(LegKey leg);
  // The core has been told of the leg's end.
  void Ended(LegKey leg);
  void DropWorker(WorkerKey worker);

  // What a leg looks like from outside its kind of RPC.
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
    bool read_due = false;  // paused with nothing being read
  };
  Worker& Channel(const WorkerName& name);

  const std::string token_;
  const std::function<void(CoreEvent)> tell_;
  std::map<WorkerKey, std::unique_ptr<Worker>> workers_;
  std::map<LegKey, State> legs_;
};

}  // namespace baton
