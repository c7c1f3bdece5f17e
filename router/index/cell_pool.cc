#include "router/index/cell_pool.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"

namespace baton {

CellPool::CellPool(size_t max_chunks)
    : chunks_(max_chunks), free_(max_chunks, ~uint64_t{0}), open_((max_chunks + 63) / 64) {
  for (size_t i = 0; i < max_chunks; ++i) open_[i / 64] |= uint64_t{1} << i % 64;
}

// Takes the first cell that is free. So cells in use gather at the front, and the chunks behind
// them become free.
CellId CellPool::Take() {
  while (first_open_ < open_.size() && open_[first_open_] == 0) ++first_open_;
  BATON_CHECK(first_open_ < open_.size()) << "all " << used_ << " cells are in use";
  const size_t chunk = 64 * first_open_ + std::countr_zero(open_[first_open_]);
  if (chunks_[chunk] == nullptr) {
    chunks_[chunk] = std::make_unique_for_overwrite<Chunk>();
    ++allocated_;
  }
  const size_t cell = std::countr_zero(free_[chunk]);
  free_[chunk] &= free_[chunk] - 1;
  if (free_[chunk] == 0) open_[first_open_] &= open_[first_open_] - 1;
  ++used_;
  return static_cast<CellId>(kChunkCells * chunk + cell);
}

void CellPool::Give(CellId cell) {
  const size_t chunk = cell / kChunkCells;
  const uint64_t bit = uint64_t{1} << cell % kChunkCells;
  BATON_CHECK(chunk < chunks_.size() && (free_[chunk] & bit) == 0) << "cell " << cell;
  free_[chunk] |= bit;
  open_[chunk / 64] |= uint64_t{1} << chunk % 64;
  first_open_ = std::min(first_open_, chunk / 64);
  --used_;
  if (free_[chunk] == ~uint64_t{0}) {
    chunks_[chunk] = nullptr;
    --allocated_;
  }
}

}  // namespace baton
