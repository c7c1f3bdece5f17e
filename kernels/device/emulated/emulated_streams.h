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

// A place in a stream's work.
struct StreamPoint {
  std::shared_ptr<EmulatedQueue> queue;  // null: reached
  uint64_t position = 0;                 // items before it
  bool Reached() const;
};

// A recording of an event that processes share.
struct SharedPoint {
  std::shared_ptr<SharedEvent> event;
  uint32_t recording = 0;
};

// The end of such a recording of ours.
struct SharedRecording {
  SharedPoint point;
};

// What one stream has still to do, in order.
class EmulatedQueue {
 public:
  using Item = std::variant<EmulatedWork, StreamPoint, SharedPoint, SharedRecording, GraphReplay>;

  template <typename T>  // of Item
  void Push(T item) {
    items_.emplace_back(std::move(item));
    ++pushed_;
  }
  // Behind all that was pushed.
  uint64_t end() const { return pushed_; }
  uint64_t done() const { return done_; }

 private:
  friend class StreamScheduler;
  std::deque<Item> items_;
  uint64_t pushed_ = 0, done_ = 0;
};

// Runs the work of all streams on the thread that waits for some of it, and as late as their order
// allows: either only what the awaited work depends on, or now and then whatever can run, one item
// of a random stream at a time. So a wait that a program forgot shows, in most seeds, as work that
// ran in the wrong order, and the same program and seed show it again.
//
// All under `mutex`, which is let go while another process's recording is waited for, and with
// `memory` open while work runs.
class StreamScheduler {
 public:
  StreamScheduler(uint64_t seed, Mutex* mutex, EmulatedMemory* memory)
      : random_(seed), mutex_(mutex), memory_(memory) {}

  std::shared_ptr<EmulatedQueue> CreateQueue();
  // With nothing left to do.
  void DestroyQueue(const std::shared_ptr<EmulatedQueue>& queue);

  // Until `goal` is reached, or work fails; then that error, now and ever after, and nothing else
  // runs: all points count as reached.
  absl::Status RunUntil(const StreamPoint& goal);
  absl::Status RunAll();
  // As RunUntil, but no further than other processes let it, who are told what is wanted of them.
  absl::Status RunTowards(const StreamPoint& goal);
  // Until another process got there.
  absl::Status Await(const SharedPoint& point);
  // One item that can run, if there is one and chance wants it.
  void RunSome();
  const absl::Status& failure() const { return failure_; }
  // DeviceRuntime::OnFailure.
  void OnFailure(std::function<void(const absl::Status&)> handler);
  uint64_t Random() { return random_(); }

 private:
  // How far each stream has to come.
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
