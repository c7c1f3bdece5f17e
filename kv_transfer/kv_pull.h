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

// What one pull has to fetch, has fetched and found: the slices of its blocks, their readiness and
// their checksums. It posts nothing itself. KV thread only.
class KvPull {
 public:
  // One contiguous read: whole blocks, or some layers of one block.
  struct Piece {
    int first = 0;  // of the sequence's blocks
    int count = 0;
    int first_layer = 0;
    int end_layer = 0;
    uint64_t remote_offset = 0;  // in the owner's pool
    uint64_t local_offset = 0;   // in ours
    size_t bytes = 0;
  };
  // One contiguous read of the owner's KvMeta into `values`.
  struct MetaRead {
    uint64_t offset = 0;
    size_t bytes = 0;
    uint64_t* to = nullptr;
  };

  // `blocks` are ours, as many as the ticket's.
  KvPull(KvTicket ticket, std::vector<BlockId> blocks, const KvLayout& layout);

  const KvTicket& ticket() const { return ticket_; }

  // What the owner says is ready; older news than the last is ignored. False when it cannot be.
  bool Absorb(const KvNote& state);
  bool complete() const { return complete_; }
  const std::string& payload() const { return payload_; }

  // The next piece that is ready and was not taken, at most `max_bytes` unless one slice is larger.
  // False when there is none.
  bool TakePiece(size_t max_bytes, Piece* piece);
  // Its slices in our pool, to take the checksums of.
  std::vector<KvSlice> Slices(const Piece& piece) const;
  // Its bytes are there, and these are its Slices with their checksums.
  void Landed(const Piece& piece, absl::Span<const KvSlice> slices);
  // Every slice of every block has landed and has its checksum.
  bool all_landed() const { return slices_landed_ == blocks_.size() * layout_.layers; }

  // What to read of the owner's KvMeta, once all has landed, for Verdict.
  std::vector<MetaRead> MetaReads(const KvMeta& meta);
  // Compares what was read: DataLoss names the first block that is wrong.
  absl::Status Verdict() const;

 private:
  struct Window {  // of the owner's KvMeta
    uint64_t offset = 0;
    std::vector<uint64_t> values;
  };

  int ReadyLayers(int block) const;
  void AddWindows(std::vector<uint64_t> offsets, size_t bytes_each, std::vector<Window>* windows);
  static uint64_t ValueAt(const std::vector<Window>& windows, uint64_t offset);

  const KvTicket ticket_;
  const std::vector<BlockId> blocks_;
  const KvLayout layout_;
  KvMeta meta_;  // the owner's

  uint32_t full_blocks_ = 0;
  uint32_t partial_blocks_ = 0;
  uint32_t partial_layers_ = 0;
  bool complete_ = false;
  std::string payload_;

  std::vector<int> taken_layers_;  // of each block
  size_t first_open_ = 0;          // blocks before it have been taken whole
  size_t slices_landed_ = 0;
  std::vector<uint64_t> sums_;  // [block][layer]
  std::vector<Window> generations_;
  std::vector<Window> checksums_;
};

}  // namespace baton
