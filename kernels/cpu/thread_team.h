#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace baton::cpu {

// Runs the items of one job at a time, on the calling thread and `threads` - 1 helpers. A helper
// that has just worked spins for some microseconds, so that the operations of a step follow each
// other without a system call. Then the helper sleeps, because processes may share cores. Any
// thread of the team may run any item; results must not depend on which thread does.
class ThreadTeam {
 public:
  // Starts `threads` - 1 helpers. `threads` must be at least 1. The process ends if the system
  // can't start a thread.
  explicit ThreadTeam(int threads);
  // Stops the helpers and waits for them. No call of Run() may be under way.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls body(item, thread) once for each item in [0, items), low items first, and returns when
  // all these calls have returned. The caller then sees everything that they wrote. `thread` is in
  // [0, threads()) and differs among concurrent calls; the caller of Run() has 0. Any thread may
  // call Run(), but only one at a time, and `body` may not call it: this is not checked, and items
  // would be lost or the process would hang. `body` may not throw.
  void Run(int items, absl::FunctionRef<void(int item, int thread)> body);

 private:
  void Help(int thread);
  void Work(int thread);

  // gate_ says which helpers work on the current job. Helpers may join while bit kOpen is set; the
  // lower bits count the helpers that have joined and not yet left. When no item is left, Run()
  // clears kOpen and waits until this count is 0. So it never waits for a helper that is still
  // waking up.
  static constexpr uint32_t kOpen = 1u << 31;
  alignas(64) std::atomic<uint32_t> gate_{0};
  alignas(64) std::atomic<uint32_t> jobs_{0};  // number of jobs so far
  alignas(64) std::atomic<int> next_item_{0};
  std::atomic<bool> stop_{false};
  // The arguments of Run() for the current job. Run() sets them only while gate_ is 0, so no helper
  // reads them at that time.
  int items_ = 0;
  const absl::FunctionRef<void(int, int)>* body_ = nullptr;

  std::vector<std::thread> helpers_;
};

}  // namespace baton::cpu
