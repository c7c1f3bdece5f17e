#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace baton::simt {

// The memory that a device's kernels may touch, and which bytes of it nobody has written yet. Kept
// by the emulated runtime: Allocate adds, Free removes, copies and fills mark. One thread at a
// time.
class MemoryMap {
 public:
  class Region {
   public:
    const std::byte* base() const { return base_; }
    size_t bytes() const { return bytes_; }
    // Offsets from base; within the region.
    void MarkWritten(size_t offset, size_t bytes);
    void MarkUnwritten(size_t offset, size_t bytes);
    bool Written(size_t offset, size_t bytes) const;

   private:
    friend class MemoryMap;
    const std::byte* base_ = nullptr;
    size_t bytes_ = 0;
    std::vector<uint64_t> written_;  // a bit per byte; empty: all of it is
  };

  // A run of memory that overlaps no other. `written` false: reading it before it was written is an
  // error of a checked kernel; costs an eighth of its size.
  void Add(const void* base, size_t bytes, bool written);
  // What Add was given.
  void Remove(const void* base);
  // Of any bytes; those in no region don't count.
  void MarkWritten(const void* at, size_t bytes);

  // Bytes that were made from others: unwritten where those are. Each run in one region or in none,
  // where all is written.
  void CopyWritten(const void* to, const void* from, size_t bytes);
  // Bytes that came of some that nobody has written.
  void MarkUnwritten(const void* at, size_t bytes);
  // Whether all of them are; those in no region are.
  bool Written(const void* at, size_t bytes);

  // The region with this byte, or null.
  Region* Find(const void* at);
  // All of these bytes are in one region.
  bool Contains(const void* at, size_t bytes);

 private:
  std::map<uintptr_t, Region> regions_;  // by base
  Region* latest_ = nullptr;             // that Find gave
};

}  // namespace baton::simt
