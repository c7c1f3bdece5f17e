#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace baton::simt {

// The saved state of a fiber while another fiber runs.
struct FiberContext {
  void* stack_pointer = nullptr;
  // Lowest byte and size of the fiber's stack, for the address sanitizer.
  const void* stack = nullptr;
  size_t stack_bytes = 0;
};

extern "C" void baton_simt_switch(void** from, void* to);  // defined in fiber.cc

// Continues `to`, and returns when another fiber continues `from`. Both must run on the same OS
// thread.
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
// Must be the first call of a new fiber. `from` is the context of the OS thread's own stack, from
// which the first fiber was entered.
void FiberStarted(FiberContext& from);

// Stacks for the fibers of one OS thread. They are mapped when first needed and then kept. Below
// each stack is a page that faults when touched.
class FiberStacks {
 public:
  static constexpr size_t kGuardBytes = 4096;
  // Size of a stack, guard page included. Not a power of two: otherwise all fibers would compete
  // for the same cache lines.
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kBytes = 65 * 4096;
#else
  static constexpr size_t kBytes = 17 * 4096;
#endif

  FiberStacks() = default;
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;
  ~FiberStacks();

  // Makes stacks 0 to count - 1 usable. count is at most kMax.
  static constexpr int kMax = 1024;
  absl::Status Reserve(int count);

  // Returns a context that starts `entry`, which must not return, at the top of stack number
  // `stack`. The fiber that used this stack before must never be continued.
  FiberContext Begin(int stack, void (*entry)());

  // Returns the index of the stack whose bytes, guard page included, contain `at`, or -1 if none
  // does.
  int Find(const void* at) const {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(memory_);
    return memory_ != nullptr && offset < kMax * kBytes ? static_cast<int>(offset / kBytes) : -1;
  }

 private:
  std::byte* memory_ = nullptr;
  int usable_ = 0;
};

}  // namespace baton::simt
