#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/simt/place.h"

namespace baton::simt {

class ThreadBlock;

// The emulated thread that the calling OS thread runs.
struct Current {
  ThreadBlock* block = nullptr;  // null: none
  int thread = 0;                // of the block
  int threads = 0;               // in the block
  int block_x = 0, block_y = 0, block_z = 0;
  int grid_x = 0, grid_y = 0, grid_z = 0;
};
extern constinit thread_local Current current;

// What device_code_emulated.h is made of: as device_code.h says of the functions of the same names,
// called by an emulated thread. One that finds a rule broken does not return: the grid fails.
void SyncThreads(Place place);
void SyncWarp(Place place);
// The `value` that lane `from` of the warp calls it with; each lane may ask another.
uint32_t Gather(const char* operation, uint32_t value, int from, Place place);
float WarpSum(float value, Place place);
float WarpMax(float value, Place place);
uint32_t Ballot(bool predicate, Place place);
// Of f16, or of bf16.
void Mma(float* d, const uint32_t* a, const uint32_t* b, bool of_half, Place place);
void LoadMatrix2(uint32_t* r, const void* row, bool transposed, Place place);
void LoadMatrix4(uint32_t* r, const void* row, bool transposed, Place place);
void AtomicAdd(uint32_t* at, uint32_t value);
void AtomicAdd(uint64_t* at, uint64_t value);
void CopyAsync16(void* shared, const void* global, bool valid, Place place);
void CopyAsyncCommit();
void CopyAsyncWait(int groups);

// The block's array of the declaration that `key` stands for; made, and filled with 0xff (NaN in
// every float type), for the first thread that asks. Aligned to 16 and no better.
void* SharedArray(const void* key, const char* name, size_t bytes, Place place);
// Of LaunchShape::shared_bytes, filled so too. Aligned to 128 and no better.
void* DynamicShared();

// A 16-byte access of memory that is not aligned to 16.
[[noreturn]] void Misaligned16(const void* at);

}  // namespace baton::simt
