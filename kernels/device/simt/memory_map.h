#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace baton::simt {

// The memory that a device's kernels may touch, and which of its bytes have not been written yet.
// The emulated runtime updates it: Allocate adds a region, Free removes one, copies and fills mark
// bytes as written. One thread at a time.
class MemoryMap {
 public:
  class Region {
   public:
    const std::byte* base() const { return base_; }
    size_t bytes() const { return bytes_; }
    // Marks bytes as written. `offset` counts from base(), and all bytes must be within the region.
    void MarkWritten(size_t offset, size_t bytes);
    void MarkUnwritten(size_t offset, size_t bytes);
    bool Written(size_t offset, size_t bytes) const;

   private:
    friend class MemoryMap;
    const std::byte* base_ = nullptr;
    size_t bytes_ = 0;
    std::vector<uint64_t> written_;  // one bit per byte; empty: all bytes are written
  };

  // Adds a region, which must not overlap another. If `written` is false, a checked kernel may read
  // a byte only after it was written; that costs an eighth of the region's size.
  void Add(const void* base, size_t bytes, bool written);
  // Removes the region that Add added at `base`.
  void Remove(const void* base);
  // Marks bytes as written. Bytes outside all regions are ignored.
  void MarkWritten(const void* at, size_t bytes);

  // Marks each byte from `to` on as written if the byte with the same offset from `from` is
  // written, and otherwise as unwritten. Each of the two ranges must lie within one region, or
  // outside all regions. Bytes outside all regions count as written.
  void CopyWritten(const void* to, const void* from, size_t bytes);
  // Marks bytes as unwritten. For bytes that were computed from unwritten bytes.
  void MarkUnwritten(const void* at, size_t bytes);
  // Returns true if the `bytes` bytes from `at` on are all written. Bytes in no region count as
  // written.
  bool Written(const void* at, size_t bytes);

  // Returns the region that contains the byte at `at`, or null.
  Region* Find(const void* at);
  // Returns true if the `bytes` bytes from `at` on are all in one region.
  bool Contains(const void* at, size_t bytes);

 private:
  std::map<uintptr_t, Region> regions_;  // key: base address
  Region* latest_ = nullptr;             // the latest result of Find
};

}  // namespace baton::simt
