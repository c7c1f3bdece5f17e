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
// thread may run any item; results must not depend on which thread does. Only one thread may call
// Run() at a time.
class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls body(item, thread) once for each item in [0, items), low items first, and returns when
  // all these calls have returned. `thread` is in [0, threads()) and differs among concurrent
  // calls.
  void Run(int items, absl::FunctionRef<void(int item, int thread)> body);

 private:
  void Help(int thread);
  void Work(int thread);

  // Gate of the current job. Helpers may join the job while bit kOpen is set; the lower bits count
  // the helpers inside. The caller clears kOpen when no item is left and waits for the helpers
  // inside. It never waits for a helper that is still waking up.
  static constexpr uint32_t kOpen = 1u << 31;
  alignas(64) std::atomic<uint32_t> gate_{0};
  alignas(64) std::atomic<uint32_t> jobs_{0};  // number of jobs so far
  alignas(64) std::atomic<int> next_item_{0};
  std::atomic<bool> stop_{false};
  // The current job. It changes only while the gate is closed and no helper is inside.
  int items_ = 0;
  const absl::FunctionRef<void(int, int)>* body_ = nullptr;

  std::vector<std::thread> helpers_;
};

}  // namespace baton::cpu
