#include "kernels/device/simt/device_calls.h"

#include "absl/strings/str_cat.h"
#include "kernels/device/simt/access_checker.h"
#include "kernels/device/simt/thread_block.h"

namespace baton::simt {

constinit thread_local Current current;

void SyncThreads(Place place) { current.block->SyncThreads(place); }

void SyncWarp(Place place) { current.block->SyncWarp(place); }

// No other thread runs between the load and the store: a thread runs until it waits for others.
void AtomicAdd(uint32_t* at, uint32_t value) {
  if (AccessChecker* const checker = current.block->checker(); checker != nullptr) {
    checker->Add(at, sizeof(*at), __builtin_return_address(0));
  }
  *at += value;
}

void AtomicAdd(uint64_t* at, uint64_t value) {
  if (AccessChecker* const checker = current.block->checker(); checker != nullptr) {
    checker->Add(at, sizeof(*at), __builtin_return_address(0));
  }
  *at += value;
}

void CopyAsync16(void* shared, const void* global, bool valid, Place place) {
  current.block->AddCopy(shared, global, valid, place, __builtin_return_address(0));
}

void CopyAsyncCommit() { current.block->CommitCopies(); }

void CopyAsyncWait(int groups) { current.block->WaitForCopies(groups); }

void* SharedArray(const void* key, const char* name, size_t bytes, Place place) {
  return current.block->SharedArray(key, name, bytes, place);
}

void* DynamicShared() { return current.block->shared().dynamic(); }

void Misaligned16(const void* at) {
  current.block->SetError(
      absl::StrCat("a 16-byte access of 0x", absl::Hex(reinterpret_cast<uintptr_t>(at)),
                   ", which is misaligned, at ", PlaceOfCode(__builtin_return_address(0))));
  current.block->Abandon();
}

}  // namespace baton::simt
