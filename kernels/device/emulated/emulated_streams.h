#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "kernels/device/emulated/emulated_event.h"
#include "kernels/device/emulated/emulated_graph.h"
#include "kernels/device/emulated/emulated_memory.h"

namespace baton {

class EmulatedQueue;

// A point in a stream's work.
struct StreamPoint {
  std::shared_ptr<EmulatedQueue> queue;  // null: reached
  uint64_t position = 0;                 // number of items before it
  bool Reached() const;
};

// A recording of an event shared between processes.
struct SharedPoint {
  std::shared_ptr<SharedEvent> event;
  uint32_t recording = 0;
};

// A queue item. Reaching it ends a recording that this process made of a shared event.
struct SharedRecording {
  SharedPoint point;
};

// The work that one stream still has to do, in order.
class EmulatedQueue {
 public:
  using Item = std::variant<EmulatedWork, StreamPoint, SharedPoint, SharedRecording, GraphReplay>;

  template <typename T>  // T must be one of the types that Item can hold
  void Push(T item) {
    items_.emplace_back(std::move(item));
    ++pushed_;
  }
  // The position after all items pushed so far.
  uint64_t end() const { return pushed_; }
  uint64_t done() const { return done_; }

 private:
  friend class StreamScheduler;
  std::deque<Item> items_;
  uint64_t pushed_ = 0, done_ = 0;
};

// Runs the work of all streams, as late as the order of the work allows. The work runs on a thread
// that waits for a point in it. Most calls run only the work before that point. Some calls, chosen
// at random, run any work that can run. All of them run one item of a random stream at a time. So
// if a program forgets a wait, most seeds run its work in a wrong order. The same program and seed
// repeat that order.
//
// All functions are called with `mutex` held. The mutex is released while waiting for another
// process's recording. While work runs, `memory` is open, so that it can be accessed.
class StreamScheduler {
 public:
  StreamScheduler(uint64_t seed, Mutex* mutex, EmulatedMemory* memory)
      : random_(seed), mutex_(mutex), memory_(memory) {}

  std::shared_ptr<EmulatedQueue> CreateQueue();
  // The queue must be empty.
  void DestroyQueue(const std::shared_ptr<EmulatedQueue>& queue);

  // Runs work until `goal` is reached or work fails. After a failure, this and every later call
  // returns the error, nothing else runs, and all points count as reached.
  absl::Status RunUntil(const StreamPoint& goal);
  absl::Status RunAll();
  // Runs work towards `goal` as RunUntil does, but never waits for other processes. If the work
  // needs recordings of other processes, marks these recordings as wanted and returns.
  absl::Status RunTowards(const StreamPoint& goal);
  // Waits until another process has reached `point`.
  absl::Status Await(const SharedPoint& point);
  // Picks a random stream and runs its next item, if that can run.
  void RunSome();
  const absl::Status& failure() const { return failure_; }
  // Does what DeviceRuntime::OnFailure says.
  void OnFailure(std::function<void(const absl::Status&)> handler);
  uint64_t Random() { return random_(); }

 private:
  // For each stream, the position that it has to reach.
  using Goals = absl::flat_hash_map<std::shared_ptr<EmulatedQueue>, uint64_t>;

  void Require(const StreamPoint& point, Goals* goals) const;
  absl::Status Run(const Goals& goals, bool wait);
  void WaitBriefly(const SharedPoint& point);
  static bool CanRun(const EmulatedQueue& queue);
  void Step(EmulatedQueue& queue);
  void Fail(const absl::Status& status);

  std::mt19937_64 random_;
  Mutex* const mutex_;
  EmulatedMemory* const memory_;
  std::vector<std::shared_ptr<EmulatedQueue>> queues_;
  absl::Status failure_;
  std::function<void(const absl::Status&)> on_failure_;
};

}  // namespace baton
