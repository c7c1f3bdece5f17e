#include "kernels/device/simt/fiber.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#if !defined(__x86_64__) || !defined(__linux__)
#error "fibers are written for x86-64 Linux"
#endif

// Saves the registers that a call must preserve (System V ABI), switches to the other stack and
// continues there. The last instruction is a jump, not a `ret`: the processor mispredicts a `ret`
// that has no matching call.
asm(R"(
  .text
  .p2align 4
  .hidden baton_simt_switch
  .globl baton_simt_switch
  .type baton_simt_switch, @function
baton_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
  .size baton_simt_switch, .-baton_simt_switch
)");

namespace baton::simt {

void FiberStarted([[maybe_unused]] FiberContext& from) {
#ifdef __SANITIZE_ADDRESS__
  const void* stack;
  size_t bytes;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  if (from.stack == nullptr) from.stack = stack, from.stack_bytes = bytes;
#endif
}

FiberStacks::~FiberStacks() {
  if (memory_ != nullptr) munmap(memory_, kMax * kBytes);
}

absl::Status FiberStacks::Reserve(int count) {
  BATON_CHECK(count <= kMax);
  if (memory_ == nullptr) {
    void* memory =
        mmap(nullptr, kMax * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "no ", kMax * kBytes, " bytes of address space for stacks: ", std::strerror(errno)));
    }
    memory_ = static_cast<std::byte*>(memory);
  }
  for (; usable_ < count; ++usable_) {
    if (mprotect(memory_ + usable_ * kBytes + kGuardBytes, kBytes - kGuardBytes,
                 PROT_READ | PROT_WRITE) != 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no stack for thread ", usable_,
                       " of a block (vm.max_map_count?): ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

FiberContext FiberStacks::Begin(int stack, void (*entry)()) {
  std::byte* bottom = memory_ + stack * kBytes + kGuardBytes;
#ifdef __SANITIZE_ADDRESS__
  // Clears the marks of the stack's previous fiber. That fiber never returned from its outermost
  // frames (if a kernel failed, from any frame), so their red zones are still marked.
  ASAN_UNPOISON_MEMORY_REGION(bottom, kBytes - kGuardBytes);
#endif
  // Neighbouring stacks begin at different offsets within a page. Otherwise the most used words of
  // all stacks would fall into the same few sets of the first-level cache.
  std::byte* top = memory_ + (stack + 1) * kBytes - stack % 16 * 256 - 64;
  // The frame that baton_simt_switch pops: six registers and the entry address. A null return
  // address follows, where stack walks end.
  void** frame = reinterpret_cast<void**>(top);
  for (int i = 0; i < 8; ++i) frame[i] = nullptr;
  frame[6] = reinterpret_cast<void*>(entry);
  return {frame, bottom, kBytes - kGuardBytes};
}

}  // namespace baton::simt
