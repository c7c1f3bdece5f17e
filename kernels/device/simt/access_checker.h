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

// Judges every load and store of one grid of a checked kernel: races, bounds, bytes that nobody has
// written, alignment, data of a cp.async in flight. What it finds ends the grid with kernel, block,
// thread and place.
//
// Two accesses of a byte, one of them a write, race unless they are ordered; an atomic add is a
// read and a write, but two adds never race. Ordered are accesses by one thread; by threads of a
// warp with a SyncWarp between; by threads of a block with a SyncThreads between. Nothing orders
// blocks. So of each byte the last write is kept, and of the reads since then as much as decides
// whether a later write is ordered after all of them: the reader, or that there were several lanes,
// warps or blocks.
class AccessChecker {
 public:
  // A grid may have at most this many blocks.
  static constexpr int64_t kMostBlocks = (1 << 19) - 2;

  // All are to outlive it. `memory` may be null: then any address is global memory.
  AccessChecker(ThreadBlock& block, const LaunchShape& shape, const void* params,
                size_t params_bytes, const FiberStacks& stacks, MemoryMap* memory);

  // `current` names another block.
  void BeginBlock();
  // By the running thread; `code` is where its call-out returns to. `align` 1: any.
  void Access(const void* at, size_t bytes, size_t align, bool write, const void* code);
  // AtomicAdd, of 4 or 8 bytes.
  void Add(const void* at, size_t bytes, const void* code);
  // A cp.async of 16 bytes to shared memory: nobody may touch them until it has landed.
  void CopyBegins(const void* to, const void* code);
  void CopyEnds(const void* to);

 private:
  // An access: when and by whom. 0: none.
  using Stamp = uint64_t;
  struct Shadow {
    static constexpr size_t kBytes = 256;
    std::array<Stamp, kBytes> written{}, read{};
    // Where, of a word's last write and read that were noted.
    std::array<uint32_t, kBytes / 4> written_at{}, read_at{};
    std::array<Stamp, kBytes / 4> added{};  // of words; like reads, who has to be waited for
    std::array<uint32_t, kBytes / 4> added_at{};
  };
  struct Fault {
    const void* at;
    size_t bytes;
    bool write;
    const void* code;
    bool add = false;  // and a write
  };

  Stamp Now() const;
  Shadow& ShadowOf(uintptr_t page);
  // Where it is, and then Check.
  void Judge(const Fault& access, size_t align);
  // Against what was before, which it then becomes a part of.
  void Check(const Fault& access, bool shared, bool in_flight);
  // `other`, read or write, was before and at that place.
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
  Stamp block_stamp_ = 0;                                            // the block in a stamp
  absl::flat_hash_map<uintptr_t, std::unique_ptr<Shadow>> shadows_;  // by address / kBytes
  struct Recent {
    uintptr_t page = 0;
    Shadow* shadow = nullptr;
  };
  std::array<Recent, 64> recent_;
};

}  // namespace baton::simt
