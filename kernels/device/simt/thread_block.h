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

// The blocks of one grid, one at a time. Its threads are fibers; one runs until it has to wait for
// others, and then goes on with the next one by itself: the next lane of its warp that can, or
// the next warp in the schedule's order when none can.
class ThreadBlock {
 public:
  // A cp.async that its thread has not waited for yet.
  struct Copy {
    void* to;
    const void* from;
    bool valid;
    bool landed;
    uint32_t group;
    Place place;
    std::array<std::byte, 16> source;  // what was there when it began
  };
  struct alignas(64) Thread {  // what a switch touches is of one cache line
    FiberContext context;
    int stack = -1;      // -1: has not begun, or has returned
    uint32_t group = 0;  // that its next copy is in
    // Where it waits, for messages; null once it has returned.
    const char* operation = nullptr;
    Place place;
    std::vector<Copy> copies;  // oldest first
  };
  // 32 threads, and the collective that some of them wait in.
  struct Warp {
    uint32_t can_run = 0;  // lanes that wait for nobody
    uint32_t arrived = 0;  // lanes in the collective
    uint32_t epoch = 0;    // SyncWarps since the last barrier of the block
    bool descending = false;
    const char* operation = nullptr;
    Place place;
    std::array<void*, kWarpLanes> posts;
  };
  // Kept from grid to grid of an OS thread.
  struct Workspace {
    FiberStacks stacks;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<int> free_stacks;
    SharedMemory shared;
  };

  // All are to outlive it. The stacks that the shape needs are reserved.
  ThreadBlock(const Kernel& kernel, const LaunchShape& shape, const void* params,
              const SimtOptions& options, Schedule& schedule, Workspace& workspace);
  // Every access is shown to it; null, as at first: none is.
  void set_checker(AccessChecker* checker) { checker_ = checker; }
  AccessChecker* checker() const { return checker_; }

  // Runs the block that `current` names to its end, or until a thread breaks a rule.
  absl::Status Run();

  // Called by its threads.
  void SyncThreads(Place place);
  void SyncWarp(Place place);
  // Waits until all lanes of the warp have called it with the same operation and place; the last
  // one to come calls `compute` with what each has posted.
  void Meet(const char* operation, Place place, void* post, void (*compute)(void* const* posts));
  // `code` is the address that the kernel's call returns to.
  void AddCopy(void* to, const void* from, bool valid, Place place, const void* code);
  void CommitCopies();
  void WaitForCopies(int groups);
  void* SharedArray(const void* key, const char* name, size_t bytes, Place place);
  const SharedMemory& shared() const { return work_.shared; }
  // Barriers of the block so far, and SyncWarps of the running thread's warp since then.
  uint32_t epoch() const { return epoch_; }
  uint32_t warp_epoch() const { return work_.warps[current.thread / kWarpLanes].epoch; }
  // The running thread's.
  int stack() const { return work_.threads[current.thread].stack; }

  // Ends the grid with that message, after kernel, block and thread. In two steps, because the
  // calling thread is left for good where it is, and its variables are not destroyed.
  void SetError(absl::string_view message);
  [[noreturn]] void Abandon();

 private:
  static void RunFiber();
  void ThreadReturned();
  void StartBarrierPhase();
  // The thread that runs next where the running one can't: of its warp, else of the warp whose turn
  // it is. The running one itself where nobody else can.
  int Next();
  int NextWarp();
  int FirstOf(int warp) const;
  static int LaneAfter(const Warp& warp, int lane);
  // Goes on with that thread; returns when another one goes on with the running one.
  void Resume(int thread);
  // That thread, which has not begun, will begin on this stack.
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
  FiberContext outside_;         // who called Run
  std::vector<int> warp_order_;  // drawn at every barrier
  size_t turn_ = 0;              // whose turn it is in warp_order_
  int at_barrier_ = 0;           // threads
  Place barrier_;
  uint32_t epoch_ = 0;
  int returned_ = 0;  // threads
  AccessChecker* checker_ = nullptr;
  absl::Status status_;
};

}  // namespace baton::simt
