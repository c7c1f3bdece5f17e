#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kv_transfer/kv_checksums.h"
#include "kv_transfer/kv_plane.h"

namespace baton {

// State of one pull: which slices are ready, fetched and checked. It computes the reads but does
// not start them. KV thread only.
class KvPull {
 public:
  // One contiguous read: whole blocks, or some layers of one block.
  struct Piece {
    int first = 0;  // index among the sequence's blocks
    int count = 0;
    int first_layer = 0;
    int end_layer = 0;
    uint64_t remote_offset = 0;  // offset in the owner's pool
    uint64_t local_offset = 0;   // offset in our pool
    size_t bytes = 0;
  };
  // One contiguous read of the owner's generations or checksums, which lie in its KvMeta.
  struct MetaRead {
    uint64_t offset = 0;
    size_t bytes = 0;
    uint64_t* to = nullptr;
  };

  // `blocks` are blocks of our pool, as many as the ticket names. The first `held_blocks` of them
  // hold their KV already and are not pulled.
  KvPull(KvTicket ticket, std::vector<BlockId> blocks, const KvLayout& layout, int held_blocks = 0);

  const KvTicket& ticket() const { return ticket_; }

  // Handles a state note from the owner. Ignores a note that is older than the last one. Returns
  // false if no hand-over can be in the state that the note reports.
  bool Absorb(const KvNote& state);
  bool complete() const { return complete_; }
  const std::string& payload() const { return payload_; }

  // Takes the next piece to read: slices that the owner has published and that were not taken
  // before. A slice is one layer of one block. The piece has at most `max_bytes`, unless a single
  // slice is larger. Returns false if there is nothing to take.
  bool TakePiece(size_t max_bytes, Piece* piece);
  // Returns the slices of a piece in our pool, for computing their checksums.
  std::vector<KvSlice> Slices(const Piece& piece) const;
  // Records that the bytes of `piece` (one contiguous read) have arrived. `slices` is the result of
  // Slices(piece) with the checksums filled in.
  void Landed(const Piece& piece, absl::Span<const KvSlice> slices);
  // Returns true if every slice of every block has arrived and has its checksum.
  bool all_landed() const { return slices_landed_ == blocks_.size() * layout_.layers; }

  // Returns the reads that fetch the generations and checksums of the blocks from the owner.
  // Verdict compares what these reads fetch. Call this once, after all KV has arrived.
  std::vector<MetaRead> MetaReads(const KvMeta& meta);
  // Returns OK if the KV that arrived is right: the pulled blocks have the generations that the
  // ticket names, and the owner's checksums equal those of the bytes that arrived. Otherwise
  // returns DataLoss, which names the first wrong block. Call it after the reads of MetaReads have
  // ended.
  absl::Status Verdict() const;

 private:
  struct Window {  // a contiguous range of the owner's KvMeta
    uint64_t offset = 0;
    std::vector<uint64_t> values;
  };

  int ReadyLayers(int block) const;
  void AddWindows(std::vector<uint64_t> offsets, size_t bytes_each, std::vector<Window>* windows);
  static uint64_t ValueAt(const std::vector<Window>& windows, uint64_t offset);

  const KvTicket ticket_;
  const std::vector<BlockId> blocks_;
  const KvLayout layout_;
  const size_t held_;  // number of leading blocks that are not pulled
  KvMeta meta_;        // layout of the owner's KvMeta

  uint32_t full_blocks_ = 0;
  uint32_t partial_blocks_ = 0;
  uint32_t partial_layers_ = 0;
  bool complete_ = false;
  std::string payload_;

  std::vector<int> taken_layers_;  // number of layers taken, for each block
  size_t first_open_ = 0;          // all layers of the blocks before this index have been taken
  size_t slices_landed_ = 0;
  std::vector<uint64_t> sums_;  // checksums of the slices that have arrived: [block][layer]
  std::vector<Window> generations_;
  std::vector<Window> checksums_;
};

}  // namespace baton
