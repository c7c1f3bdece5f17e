#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace baton::simt {

// Where a fiber stands while another one runs.
struct FiberContext {
  void* stack_pointer = nullptr;
  // The lowest byte and the size of its stack, for the address sanitizer.
  const void* stack = nullptr;
  size_t stack_bytes = 0;
};

extern "C" void baton_simt_switch(void** from, void* to);  // in fiber.cc

// Goes on with `to` and returns when another fiber goes on with `from`. All on one OS thread.
inline void SwitchFiber(FiberContext& from, FiberContext& to) {
#ifdef __SANITIZE_ADDRESS__
  void* fake_stack;
  __sanitizer_start_switch_fiber(&fake_stack, to.stack, to.stack_bytes);
#endif
  baton_simt_switch(&from.stack_pointer, to.stack_pointer);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}
// The first thing that a new fiber calls. The first of all was switched to by the OS thread's own
// stack: `from`.
void FiberStarted(FiberContext& from);

// Stacks of one OS thread's fibers, mapped when first needed and kept. Below each is a page that
// faults when touched.
class FiberStacks {
 public:
  static constexpr size_t kGuardBytes = 4096;
  // The guard included. Not a power of two, or all fibers would compete for the same cache lines.
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kBytes = 65 * 4096;
#else
  static constexpr size_t kBytes = 17 * 4096;
#endif

  FiberStacks() = default;
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;
  ~FiberStacks();

  // Makes stacks 0 to count - 1 usable; count is at most kMost.
  static constexpr int kMost = 1024;
  absl::Status Reserve(int count);

  // A context that begins in `entry`, which must not return, at the top of that stack. Whoever was
  // there before has been left for good.
  FiberContext Begin(int stack, void (*entry)());

  // Which stack's bytes, guard included, hold this one; -1: none.
  int Find(const void* at) const {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(memory_);
    return memory_ != nullptr && offset < kMost * kBytes ? static_cast<int>(offset / kBytes) : -1;
  }

 private:
  std::byte* memory_ = nullptr;
  int usable_ = 0;
};

}  // namespace baton::simt
