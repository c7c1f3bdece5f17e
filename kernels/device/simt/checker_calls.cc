// Functions that code compiled with -fsanitize=thread calls at every load and store. They take the
// place of the sanitizer's library and pass the accesses of checked kernels to the checker. Other
// code compiled with that option (inline functions that the linker took from a kernel's object) is
// not checked, because no thread of a grid runs it.
//
// The sanitizer has further functions for atomic operations and for locks of static variables. They
// are missing here: a kernel uses only AtomicAdd, which the compiler does not see as atomic. A
// kernel with other atomic operations would not link.

#include <cstddef>
#include <cstring>

#include "kernels/device/simt/access_checker.h"
#include "kernels/device/simt/device_calls.h"
#include "kernels/device/simt/thread_block.h"

namespace baton::simt {
namespace {

inline void Access(const void* at, size_t bytes, size_t align, bool write, const void* code) {
  if (current.block == nullptr || current.block->checker() == nullptr) return;
  current.block->checker()->Access(at, bytes, align, write, code);
}

}  // namespace
}  // namespace baton::simt

#define BATON_CALL_OUT(name, bytes, align, write) \
  void name(void* at) { baton::simt::Access(at, bytes, align, write, __builtin_return_address(0)); }

// The 16-byte functions check only an alignment of 8, because the compiler does not say if the type
// is aligned to 16. Vector16 itself checks for 16.
extern "C" {
BATON_CALL_OUT(__tsan_read1, 1, 1, false)
BATON_CALL_OUT(__tsan_read2, 2, 2, false)
BATON_CALL_OUT(__tsan_read4, 4, 4, false)
BATON_CALL_OUT(__tsan_read8, 8, 8, false)
BATON_CALL_OUT(__tsan_read16, 16, 8, false)
BATON_CALL_OUT(__tsan_write1, 1, 1, true)
BATON_CALL_OUT(__tsan_write2, 2, 2, true)
BATON_CALL_OUT(__tsan_write4, 4, 4, true)
BATON_CALL_OUT(__tsan_write8, 8, 8, true)
BATON_CALL_OUT(__tsan_write16, 16, 8, true)
BATON_CALL_OUT(__tsan_unaligned_read2, 2, 1, false)
BATON_CALL_OUT(__tsan_unaligned_read4, 4, 1, false)
BATON_CALL_OUT(__tsan_unaligned_read8, 8, 1, false)
BATON_CALL_OUT(__tsan_unaligned_read16, 16, 1, false)
BATON_CALL_OUT(__tsan_unaligned_write2, 2, 1, true)
BATON_CALL_OUT(__tsan_unaligned_write4, 4, 1, true)
BATON_CALL_OUT(__tsan_unaligned_write8, 8, 1, true)
BATON_CALL_OUT(__tsan_unaligned_write16, 16, 1, true)

void __tsan_read_range(void* at, size_t bytes) {
  baton::simt::Access(at, bytes, 1, false, __builtin_return_address(0));
}
void __tsan_write_range(void* at, size_t bytes) {
  baton::simt::Access(at, bytes, 1, true, __builtin_return_address(0));
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}

// Checked kernels call these functions instead of memcpy, memmove and memset
// (device_code_emulated.h). The compiler inserts no checks for those three, because it expects the
// sanitizer's library to intercept them.
void* baton_simt_memcpy(void* to, const void* from, size_t bytes) {
  baton::simt::Access(from, bytes, 1, false, __builtin_return_address(0));
  baton::simt::Access(to, bytes, 1, true, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* baton_simt_memmove(void* to, const void* from, size_t bytes) {
  baton::simt::Access(from, bytes, 1, false, __builtin_return_address(0));
  baton::simt::Access(to, bytes, 1, true, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* baton_simt_memset(void* to, int value, size_t bytes) {
  baton::simt::Access(to, bytes, 1, true, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}
}
