#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/block_name.h"

// The memory of PrefixIndex, in cells of 64 bytes. A cell is the record of one name, or a page of
// holders of a name that many workers hold.
namespace baton {

using CellId = uint32_t;
using WorkerSlot = uint16_t;  // A worker's small number in the index.
inline constexpr CellId kNoCell = ~CellId{0};

// The workers that hold a name. Up to kInline slots are stored here, unordered; more slots are
// stored in a list of pages. HolderSets changes it.
struct HolderSet {
  static constexpr int kInline = 8;
  uint16_t count = 0;
  union {
    WorkerSlot slots[kInline];  // Used while `count` is at most kInline.
    CellId first_page;          // Used while `count` is larger.
  };
  bool paged() const { return count > kInline; }
};

// All that the index knows of one name. Fills one line of the processor's cache.
struct PrefixRecord {
  BlockName name;
  uint64_t touched = 0;     // Number of the last touch of the name; a later touch has a larger one.
  CellId next = kNoCell;    // Next record of the same bucket of the hash table.
  CellId parent = kNoCell;  // Record of the parent. Only a name with holders has a parent.
  uint32_t children = 0;    // Number of records whose `parent` is this record.
  uint32_t leaf_position = 0;  // Position in LeafHeap, for a leaf.
  HolderSet holders;

  bool held() const { return holders.count > 0; }
};
static_assert(sizeof(PrefixRecord) == 64);

// Bitmap of kSlots worker slots, of which the first is kSlots * number.
struct HolderPage {
  static constexpr int kWords = 7;
  static constexpr int kSlots = 64 * kWords;
  uint64_t bits[kWords] = {};
  CellId next = kNoCell;  // Next page of the same name, with a larger number.
  uint32_t number = 0;
};
static_assert(sizeof(HolderPage) == 64);

// Lends out cells. Allocates them in chunks of 64, and frees a chunk when no cell of it is in use.
// So no call takes long, however large the pool is. One thread only.
class CellPool {
 public:
  static constexpr size_t kChunkCells = 64;
  // Bytes of a chunk: its cells, and what the allocator adds to align them.
  static constexpr size_t kChunkBytes = 64 * kChunkCells + 32;
  // Bytes that the constructor allocates for each chunk, for the vectors below.
  static constexpr size_t kFixedBytesPerChunk = 2 * sizeof(uint64_t) + 1;

  // Allocates no cell yet.
  explicit CellPool(size_t max_chunks);
  CellPool(const CellPool&) = delete;
  CellPool& operator=(const CellPool&) = delete;

  // Returns a cell with undefined content. Aborts if none is available.
  CellId Take();
  void Give(CellId cell);

  PrefixRecord& record(CellId cell) { return At(cell).record; }
  const PrefixRecord& record(CellId cell) const { return At(cell).record; }
  HolderPage& page(CellId cell) { return At(cell).page; }

  // Number of cells that can still be taken.
  size_t available() const { return chunks_.size() * kChunkCells - used_; }
  size_t used() const { return used_; }
  // Bytes of the chunks that are allocated now.
  size_t bytes() const { return allocated_ * kChunkBytes; }

 private:
  union Cell {
    Cell() {}  // The user of the cell fills it.
    PrefixRecord record;
    HolderPage page;
  };
  struct Chunk {
    alignas(64) Cell cells[kChunkCells];
  };
  Cell& At(CellId cell) const { return chunks_[cell / kChunkCells]->cells[cell % kChunkCells]; }

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<uint64_t> free_;  // For each chunk, one bit per cell that can be taken.
  std::vector<uint64_t> open_;  // One bit per chunk, allocated or not: 1 if a cell can be taken.
  size_t first_open_ = 0;       // No word of `open_` before this one has a bit.
  size_t used_ = 0;
  size_t allocated_ = 0;
};

}  // namespace baton
