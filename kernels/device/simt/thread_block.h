#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device/runtime/kernel.h"
#include "kernels/device/simt/device_calls.h"
#include "kernels/device/simt/fiber.h"
#include "kernels/device/simt/place.h"
#include "kernels/device/simt/run_grid.h"
#include "kernels/device/simt/schedule.h"
#include "kernels/device/simt/shared_memory.h"
#include "kernels/device/simt/simt_entry.h"

namespace baton::simt {

class AccessChecker;

constexpr int kWarpLanes = 32;

// Runs the blocks of one grid, one at a time. The threads of a block are fibers. A fiber runs until
// it has to wait for others, and then continues another fiber: the next lane of its warp that can
// run, or, if none can, a lane of the next warp in the schedule's order.
class ThreadBlock {
 public:
  // A cp.async that its thread has not yet waited for.
  struct Copy {
    void* to;
    const void* from;
    bool valid;
    bool landed;
    uint32_t group;
    Place place;
    std::array<std::byte, 16> source;  // source bytes when the copy began
  };
  struct alignas(64) Thread {  // the fields that a switch touches share one cache line
    FiberContext context;
    int stack = -1;      // -1: has not begun or has returned
    uint32_t group = 0;  // group of its next copy
    // Name of the operation in which the thread waits, for use in error messages. Null once the
    // thread has returned.
    const char* operation = nullptr;
    Place place;
    std::vector<Copy> copies;  // oldest first
  };
  // A warp: 32 threads. Some of them may wait in a collective, which is an operation of several
  // lanes together, such as a shuffle.
  struct Warp {
    uint32_t can_run = 0;  // lanes that are not waiting
    uint32_t arrived = 0;  // lanes that wait in the collective
    uint32_t epoch = 0;    // SyncWarps since the last barrier of the block
    bool descending = false;
    const char* operation = nullptr;
    Place place;
    std::array<void*, kWarpLanes> posts;
  };
  // Memory that an OS thread keeps from one grid to the next.
  struct Workspace {
    FiberStacks stacks;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<int> free_stacks;
    SharedMemory shared;
  };

  // All arguments must outlive this object. Stacks for the shape must be reserved.
  ThreadBlock(const Kernel& kernel, const LaunchShape& shape, const void* params,
              const SimtOptions& options, Schedule& schedule, Workspace& workspace);
  // Sets the checker that is called for every access. Null (the default) checks nothing.
  void set_checker(AccessChecker* checker) { checker_ = checker; }
  AccessChecker* checker() const { return checker_; }

  // Runs the block whose index is in `current`, to its end or until a thread breaks a rule.
  absl::Status Run();

  // The functions from here to SharedArray are called by the threads of the block.
  void SyncThreads(Place place);
  void SyncWarp(Place place);
  // Called by all lanes of a warp. Waits until all have called it with the same operation and
  // place. `post` points to a lane's arguments and results. The last lane to arrive calls `compute`
  // with the `post` pointers of all lanes.
  void Meet(const char* operation, Place place, void* post, void (*compute)(void* const* posts));
  // Begins a cp.async of the calling thread. `code` is the address to which the kernel's call
  // returns.
  void AddCopy(void* to, const void* from, bool valid, Place place, const void* code);
  void CommitCopies();
  void WaitForCopies(int groups);
  void* SharedArray(const void* key, const char* name, size_t bytes, Place place);
  const SharedMemory& shared() const { return work_.shared; }
  // epoch() is the number of barriers that the block has passed. warp_epoch() is the number of
  // SyncWarps that the running thread's warp has passed since the last barrier.
  uint32_t epoch() const { return epoch_; }
  uint32_t warp_epoch() const { return work_.warps[current.thread / kWarpLanes].epoch; }
  // Stack of the running thread.
  int stack() const { return work_.threads[current.thread].stack; }

  // SetError sets the message with which Abandon then ends the grid, after the names of kernel,
  // block and thread. These are two functions because Abandon() never returns: local variables of
  // the calling thread are not destroyed.
  void SetError(absl::string_view message);
  [[noreturn]] void Abandon();

 private:
  static void RunFiber();
  void ThreadReturned();
  void StartBarrierPhase();
  // Returns the thread to run next: a thread of the running thread's warp, or, if none of them can
  // run, a thread of the next warp in order. Returns the running thread itself if no other can run.
  int Next();
  int NextWarp();
  int FirstOf(int warp) const;
  static int LaneAfter(const Warp& warp, int lane);
  // Switches from the calling thread to `thread`. Returns when some thread switches back to the
  // caller.
  void Resume(int thread);
  // Prepares a thread that has not run yet, so that it will start on stack number `stack`.
  void Begin(Thread& thread, int stack);
  int TakeStack();
  void Land(Copy& copy);
  void CountEpoch(uint32_t& epoch);
  [[noreturn]] void FailAtBarrier();
  [[noreturn]] void FailInWarp(int warp);
  std::string WhereAre(int first, int count) const;

  const Kernel& kernel_;
  const LaunchShape& shape_;
  const void* params_;
  const SimtEntry& entry_;
  const SimtOptions& options_;
  Schedule& schedule_;
  Workspace& work_;
  FiberContext outside_;         // context of the caller of Run()
  std::vector<int> warp_order_;  // in a new order after every barrier
  size_t turn_ = 0;              // index in warp_order_ of the current warp
  int at_barrier_ = 0;           // threads at the barrier
  Place barrier_;
  uint32_t epoch_ = 0;
  int returned_ = 0;  // threads that have returned
  AccessChecker* checker_ = nullptr;
  absl::Status status_;
};

}  // namespace baton::simt
