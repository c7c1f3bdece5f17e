#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/simt/place.h"

namespace baton::simt {

class ThreadBlock;

// The emulated thread that runs now on the calling OS thread.
struct Current {
  ThreadBlock* block = nullptr;  // null: no thread runs
  int thread = 0;                // index in the block
  int threads = 0;               // number of threads in the block
  int block_x = 0, block_y = 0, block_z = 0;
  int grid_x = 0, grid_y = 0, grid_z = 0;
};
extern constinit thread_local Current current;

// The functions behind device_code_emulated.h. They do what device_code.h says about the functions
// of the same names, and are called by an emulated thread. If a rule is broken, they do not return:
// the grid fails.
void SyncThreads(Place place);
void SyncWarp(Place place);
// Returns the `value` that lane `from` of the warp passed. `from` may differ between lanes.
uint32_t Gather(const char* operation, uint32_t value, int from, Place place);
float WarpSum(float value, Place place);
float WarpMax(float value, Place place);
uint32_t Ballot(bool predicate, Place place);
// Does what Mma<T> does, where T is Half if `of_half` is true and Bf16 if not.
void Mma(float* d, const uint32_t* a, const uint32_t* b, bool of_half, Place place);
void LoadMatrix2(uint32_t* r, const void* row, bool transposed, Place place);
void LoadMatrix4(uint32_t* r, const void* row, bool transposed, Place place);
void AtomicAdd(uint32_t* at, uint32_t value);
void AtomicAdd(uint64_t* at, uint64_t value);
void CopyAsync16(void* shared, const void* global, bool valid, Place place);
void CopyAsyncCommit();
void CopyAsyncWait(int groups);

// Returns the block's shared array of one declaration in the kernel; `key` identifies the
// declaration. The first call of a block makes the array and fills it with 0xff (NaN in every float
// type). It is aligned to 16 but not to 32.
void* SharedArray(const void* key, const char* name, size_t bytes, Place place);
// Returns the block's LaunchShape::shared_bytes of dynamic shared memory, filled with 0xff. It is
// aligned to 128 but not to 256.
void* DynamicShared();

// Fails the grid because of a 16-byte access that is not aligned to 16.
[[noreturn]] void Misaligned16(const void* at);

}  // namespace baton::simt
