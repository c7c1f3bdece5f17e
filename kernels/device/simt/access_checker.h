#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "kernels/device/runtime/kernel.h"
#include "kernels/device/simt/fiber.h"
#include "kernels/device/simt/memory_map.h"

namespace baton::simt {

class ThreadBlock;

// Checks every load and store of one grid of a checked kernel: for races, bounds, reads of
// unwritten bytes, alignment, and accesses to the data of a cp.async in flight. The first error
// ends the grid with a message that names kernel, block, thread and place.
//
// Two accesses to the same byte race if one of them is a write and nothing orders them. An atomic
// add is a read and a write, but two adds never race. Accesses are ordered if they are by one
// thread, by threads of one warp with a SyncWarp in between, or by threads of one block with a
// SyncThreads in between. Nothing orders accesses of different blocks.
//
// So the checker keeps, for each byte, the last write and a summary of the reads since then: either
// the one reader, or that there were several lanes, warps or blocks. That is enough to decide if a
// later write is ordered after all of these reads.
class AccessChecker {
 public:
  // Max number of blocks in a grid.
  static constexpr int64_t kMaxBlocks = (1 << 19) - 2;

  // All arguments must outlive this object. `memory` may be null: then any address is global
  // memory.
  AccessChecker(ThreadBlock& block, const LaunchShape& shape, const void* params,
                size_t params_bytes, const FiberStacks& stacks, MemoryMap* memory);

  // Call it when a block begins, after the thread-local variable `current` has been set for the
  // block.
  void BeginBlock();
  // Checks an access by the running thread. `code` is the place of the access in the program: the
  // address to which the call that reports the access returns. `align` 1 allows any address.
  void Access(const void* at, size_t bytes, size_t align, bool write, const void* code);
  // Checks an AtomicAdd of 4 or 8 bytes.
  void Add(const void* at, size_t bytes, const void* code);
  // Begins a cp.async of 16 bytes to shared memory. No thread may touch these bytes until CopyEnds.
  void CopyBegins(const void* to, const void* code);
  void CopyEnds(const void* to);

 private:
  // Identifies an access by its time and its thread. 0 means that there was no access.
  using Stamp = uint64_t;
  struct Shadow {
    static constexpr size_t kBytes = 256;
    std::array<Stamp, kBytes> written{}, read{};
    // Code address, per word, of the last write and read.
    std::array<uint32_t, kBytes / 4> written_at{}, read_at{};
    // Per word: stamp of the AtomicAdds to it. A later read or write must be ordered after them.
    std::array<Stamp, kBytes / 4> added{};
    std::array<uint32_t, kBytes / 4> added_at{};
  };
  struct Fault {
    const void* at;
    size_t bytes;
    bool write;
    const void* code;
    bool add = false;  // an add; `write` is then true as well
  };

  Stamp Now() const;
  Shadow& ShadowOf(uintptr_t page);
  // Finds out which memory the access is in. Fails the grid if the kernel may not access that
  // memory in this way. Calls Check if other threads may access the same memory.
  void Judge(const Fault& access, size_t align);
  // Checks the access against earlier accesses to the same bytes, and then records it.
  void Check(const Fault& access, bool shared, bool in_flight);
  // Ends the grid, because the access conflicts with an earlier one. `other` is "read", "write" or
  // "add"; `code` is the place of the earlier access.
  [[noreturn]] void FailAfter(const Fault& access, const char* other, Stamp stamp, uint32_t code);
  std::string Name(const void* at) const;
  std::string Who(Stamp stamp) const;
  void SetError(const Fault& access, absl::string_view problem) const;

  ThreadBlock& block_;
  const LaunchShape& shape_;
  const void* params_;
  size_t params_bytes_;
  const FiberStacks& stacks_;
  MemoryMap* memory_;
  Stamp block_stamp_ = 0;  // the current block, as part of a stamp
  absl::flat_hash_map<uintptr_t, std::unique_ptr<Shadow>> shadows_;  // key: address / kBytes
  struct Recent {
    uintptr_t page = 0;
    Shadow* shadow = nullptr;
  };
  std::array<Recent, 64> recent_;
};

}  // namespace baton::simt
