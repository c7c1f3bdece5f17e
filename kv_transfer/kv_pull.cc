#include "kv_transfer/kv_pull.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {
namespace {

// Max gap between values that are fetched in one read: reading unneeded values is cheaper than
// another read.
constexpr size_t kGapBytes = 1024;

}  // namespace

KvPull::KvPull(KvTicket ticket, std::vector<BlockId> blocks, const KvLayout& layout,
               int held_blocks)
    : ticket_(std::move(ticket)),
      blocks_(std::move(blocks)),
      layout_(layout),
      held_(static_cast<size_t>(held_blocks)),
      taken_layers_(blocks_.size(), 0),
      first_open_(held_),
      slices_landed_(held_ * layout.layers),
      sums_(blocks_.size() * layout.layers, 0) {}

bool KvPull::Absorb(const KvNote& state) {
  if (state.full_blocks > state.partial_blocks || state.partial_blocks > blocks_.size() ||
      state.partial_layers > static_cast<uint32_t>(layout_.layers) ||
      (state.complete && state.full_blocks != blocks_.size())) {
    return false;
  }
  // An owner's progress never goes back, so a note with more progress is newer. Progress is the
  // number of full blocks, the number of partial blocks and, for equally many partial blocks, the
  // number of their ready layers.
  const bool newer =
      state.full_blocks > full_blocks_ || state.partial_blocks > partial_blocks_ ||
      (state.partial_blocks == partial_blocks_ && state.partial_layers > partial_layers_);
  if (newer && state.full_blocks >= full_blocks_ && state.partial_blocks >= partial_blocks_) {
    full_blocks_ = state.full_blocks;
    partial_blocks_ = state.partial_blocks;
    partial_layers_ = state.partial_layers;
  }
  if (state.complete && !complete_) {
    complete_ = true;
    payload_ = state.payload;
  }
  return true;
}

int KvPull::ReadyLayers(int block) const {
  if (block < static_cast<int>(full_blocks_)) return layout_.layers;
  return block < static_cast<int>(partial_blocks_) ? static_cast<int>(partial_layers_) : 0;
}

bool KvPull::TakePiece(size_t max_bytes, Piece* piece) {
  while (first_open_ < blocks_.size() && taken_layers_[first_open_] == layout_.layers) {
    ++first_open_;
  }
  int i = static_cast<int>(first_open_);
  const int end = static_cast<int>(partial_blocks_);
  while (i < end && taken_layers_[i] >= ReadyLayers(i)) ++i;
  if (i >= end) return false;

  const int room = static_cast<int>(std::max<size_t>(1, max_bytes / layout_.LayerBytes()));
  piece->first = i;
  piece->count = 1;
  piece->first_layer = taken_layers_[i];
  piece->end_layer = std::min(ReadyLayers(i), piece->first_layer + room);
  if (piece->first_layer == 0 && piece->end_layer == layout_.layers) {
    const int max = room / layout_.layers;
    while (piece->count < max) {
      const int next = i + piece->count;
      if (next >= end || taken_layers_[next] != 0 || ReadyLayers(next) != layout_.layers) break;
      if (ticket_.blocks[next] != ticket_.blocks[i] + piece->count) break;
      if (blocks_[next] != blocks_[i] + piece->count) break;
      ++piece->count;
    }
  }
  piece->remote_offset = layout_.LayerOffset(ticket_.blocks[i], piece->first_layer);
  piece->local_offset = layout_.LayerOffset(blocks_[i], piece->first_layer);
  piece->bytes = piece->count * (piece->end_layer - piece->first_layer) * layout_.LayerBytes();
  for (int k = 0; k < piece->count; ++k) taken_layers_[i + k] = piece->end_layer;
  return true;
}

std::vector<KvSlice> KvPull::Slices(const Piece& piece) const {
  std::vector<KvSlice> slices;
  for (int i = piece.first; i < piece.first + piece.count; ++i) {
    for (int layer = piece.first_layer; layer < piece.end_layer; ++layer) {
      slices.push_back(
          {.block = blocks_[i],
           .layer = layer,
           .seed = KvSeed(ticket_.owner_epoch, ticket_.blocks[i], ticket_.generations[i], layer)});
    }
  }
  return slices;
}

void KvPull::Landed(const Piece& piece, absl::Span<const KvSlice> slices) {
  const int layers = piece.end_layer - piece.first_layer;
  BATON_CHECK(slices.size() == size_t{1} * piece.count * layers) << slices.size();
  for (size_t k = 0; k < slices.size(); ++k) {
    const size_t block = piece.first + k / layers;
    sums_[block * layout_.layers + piece.first_layer + k % layers] = slices[k].checksum;
  }
  slices_landed_ += slices.size();
}

void KvPull::AddWindows(std::vector<uint64_t> offsets, size_t bytes_each,
                        std::vector<Window>* windows) {
  std::sort(offsets.begin(), offsets.end());
  for (const uint64_t offset : offsets) {
    uint64_t end =
        windows->empty() ? 0 : windows->back().offset + windows->back().values.size() * 8;
    if (windows->empty() || offset > end + kGapBytes) {
      windows->push_back({offset, {}});
      end = offset;
    }
    Window& window = windows->back();
    window.values.resize((std::max(end, offset + bytes_each) - window.offset) / 8);
  }
}

std::vector<KvPull::MetaRead> KvPull::MetaReads(const KvMeta& meta) {
  BATON_CHECK(all_landed() && generations_.empty());
  meta_ = meta;
  std::vector<uint64_t> generations, checksums;
  for (size_t i = held_; i < blocks_.size(); ++i) {
    generations.push_back(meta.GenerationOffset(ticket_.blocks[i]));
    checksums.push_back(meta.ChecksumOffset(ticket_.blocks[i], 0));
  }
  AddWindows(std::move(generations), sizeof(uint64_t), &generations_);
  AddWindows(std::move(checksums), layout_.layers * sizeof(uint64_t), &checksums_);
  std::vector<MetaRead> reads;
  for (std::vector<Window>* windows : {&generations_, &checksums_}) {
    for (Window& window : *windows) {
      reads.push_back(
          {window.offset, window.values.size() * sizeof(uint64_t), window.values.data()});
    }
  }
  return reads;
}

uint64_t KvPull::ValueAt(const std::vector<Window>& windows, uint64_t offset) {
  const auto after = std::upper_bound(
      windows.begin(), windows.end(), offset,
      [](uint64_t wanted, const Window& window) { return wanted < window.offset; });
  BATON_CHECK(after != windows.begin());
  const Window& window = *std::prev(after);
  return window.values[(offset - window.offset) / 8];
}

absl::Status KvPull::Verdict() const {
  for (size_t i = held_; i < blocks_.size(); ++i) {
    const BlockId block = ticket_.blocks[i];
    const uint64_t generation = ValueAt(generations_, meta_.GenerationOffset(block));
    if (generation != ticket_.generations[i]) {
      return absl::DataLossError(absl::StrCat("block ", i, " of ", blocks_.size(), " (", block,
                                              " at its owner) has generation ", generation,
                                              ", the ticket says ", ticket_.generations[i]));
    }
    for (int layer = 0; layer < layout_.layers; ++layer) {
      if (ValueAt(checksums_, meta_.ChecksumOffset(block, layer)) !=
          sums_[i * layout_.layers + layer]) {
        return absl::DataLossError(absl::StrCat("layer ", layer, " of block ", i, " of ",
                                                blocks_.size(), " (", block,
                                                " at its owner): wrong checksum"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
