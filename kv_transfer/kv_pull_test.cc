#include "kv_transfer/kv_pull.h"

#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr KvLayout kLayout{.layers = 4, .kv_heads = 1, .head_dim = 8, .block_tokens = 4};

KvPull MakePull(std::vector<BlockId> theirs, std::vector<BlockId> ours) {
  KvTicket ticket;
  ticket.tokens = static_cast<int>(theirs.size()) * kLayout.block_tokens;
  ticket.generations.assign(theirs.size(), 1);
  ticket.blocks = std::move(theirs);
  return KvPull(ticket, std::move(ours), kLayout);
}

KvNote Ready(int full, int partial, int layers, bool complete = false) {
  KvNote note;
  note.type = KvNote::Type::kState;
  note.full_blocks = full;
  note.partial_blocks = partial;
  note.partial_layers = layers;
  note.complete = complete;
  return note;
}

std::vector<KvPull::Piece> TakeAll(KvPull* pull, size_t max_bytes = 1 << 20) {
  std::vector<KvPull::Piece> pieces;
  KvPull::Piece piece;
  while (pull->TakePiece(max_bytes, &piece)) pieces.push_back(piece);
  return pieces;
}

TEST(KvPullTest, AdjacentWholeBlocksAreOneRead) {
  KvPull pull = MakePull({5, 6, 7, 9, 10}, {1, 2, 3, 4, 8});
  ASSERT_TRUE(pull.Absorb(Ready(5, 5, 4)));
  const auto pieces = TakeAll(&pull);
  ASSERT_EQ(pieces.size(), 3u);  // the owner's blocks 5-7 go to 1-3, 9 to 4, 10 to 8
  EXPECT_EQ(pieces[0].count, 3);
  EXPECT_EQ(pieces[0].bytes, 3 * kLayout.BlockBytes());
  EXPECT_EQ(pieces[0].remote_offset, kLayout.BlockOffset(5));
  EXPECT_EQ(pieces[0].local_offset, kLayout.BlockOffset(1));
  EXPECT_EQ(pieces[1].remote_offset, kLayout.BlockOffset(9));
  EXPECT_EQ(pieces[2].local_offset, kLayout.BlockOffset(8));
}

TEST(KvPullTest, LayersComeAsTheyGetReadyAndEachOnce) {
  KvPull pull = MakePull({5, 6}, {1, 2});
  EXPECT_TRUE(TakeAll(&pull).empty());
  ASSERT_TRUE(pull.Absorb(Ready(0, 1, 2)));
  auto pieces = TakeAll(&pull);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].end_layer, 2);
  EXPECT_EQ(pieces[0].bytes, 2 * kLayout.LayerBytes());
  ASSERT_TRUE(pull.Absorb(Ready(0, 1, 2)));  // repeats the last state note
  EXPECT_TRUE(TakeAll(&pull).empty());
  ASSERT_TRUE(pull.Absorb(Ready(1, 2, 1)));
  pieces = TakeAll(&pull);
  // Two pieces (contiguous reads) are ready now: the layers of the first block that were not taken
  // yet, and the first layer of the second block.
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].first_layer, 2);
  EXPECT_EQ(pieces[0].remote_offset, kLayout.LayerOffset(5, 2));
  EXPECT_EQ(pieces[1].first, 1);
  EXPECT_EQ(pieces[1].end_layer, 1);
  ASSERT_TRUE(pull.Absorb(Ready(0, 1, 3)));  // an older state note than the last one
  EXPECT_TRUE(TakeAll(&pull).empty());
  ASSERT_TRUE(pull.Absorb(Ready(2, 2, 4, true)));
  EXPECT_EQ(TakeAll(&pull).size(), 1u);
  EXPECT_TRUE(pull.complete());
}

TEST(KvPullTest, PiecesStayWithinTheirBound) {
  KvPull pull = MakePull({0, 1, 2, 3}, {0, 1, 2, 3});
  ASSERT_TRUE(pull.Absorb(Ready(4, 4, 4)));
  for (const auto& piece : TakeAll(&pull, 2 * kLayout.BlockBytes())) EXPECT_EQ(piece.count, 2);
  KvPull narrow = MakePull({0, 1}, {0, 1});
  ASSERT_TRUE(narrow.Absorb(Ready(2, 2, 4)));
  const auto pieces = TakeAll(&narrow, 3 * kLayout.LayerBytes());
  ASSERT_EQ(pieces.size(), 4u);  // each block is cut into 3 layers and 1 layer
  EXPECT_EQ(pieces[1].first_layer, 3);
}

TEST(KvPullTest, ReadinessThatCannotBeIsRefused) {
  KvPull pull = MakePull({0, 1}, {0, 1});
  EXPECT_FALSE(pull.Absorb(Ready(2, 1, 4)));
  EXPECT_FALSE(pull.Absorb(Ready(0, 3, 4)));
  EXPECT_FALSE(pull.Absorb(Ready(0, 2, 5)));
  EXPECT_FALSE(pull.Absorb(Ready(1, 2, 4, true)));
  EXPECT_FALSE(pull.Absorb(Ready(0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF)));
  EXPECT_TRUE(TakeAll(&pull).empty());
}

TEST(KvPullTest, VerdictNamesAWrongGenerationAndAWrongSlice) {
  std::vector<std::byte> pool(16 * kLayout.BlockBytes(), std::byte{3});
  for (const int wrong : {0, 1, 2}) {
    KvPull pull = MakePull({4, 900, 6}, {1, 2, 3});
    ASSERT_TRUE(pull.Absorb(Ready(3, 3, 4, true)));
    const auto checksums = CreateHostKvChecksums(pool.data(), kLayout);
    for (const auto& piece : TakeAll(&pull)) {
      checksums->Take(pull.Slices(piece), nullptr,
                      [&](const absl::Status& status, absl::Span<const KvSlice> slices) {
                        EXPECT_TRUE(status.ok()) << status;
                        pull.Landed(piece, slices);
                      });
    }
    ASSERT_TRUE(pull.all_landed());
    const KvMeta meta{1000, kLayout.layers};
    const auto reads = pull.MetaReads(meta);
    // Two reads get the generations, and two get the checksums. Blocks 4 and 6 are so near each
    // other that one read gets both. Block 900 needs a read of its own.
    ASSERT_EQ(reads.size(), 4u);
    for (const auto& read : reads) {
      for (size_t i = 0; i < read.bytes / 8; ++i) {
        const uint64_t offset = read.offset + 8 * i;
        read.to[i] = 1;
        for (const BlockId block : {4, 900, 6}) {
          for (int layer = 0; layer < kLayout.layers; ++layer) {
            if (offset != meta.ChecksumOffset(block, layer)) continue;
            read.to[i] = KvChecksum(kLayout, KvSeed(0, block, 1, layer), pool.data());
            if (wrong == 1 && block == 900 && layer == 3) ++read.to[i];
          }
        }
        if (wrong == 2 && offset == meta.GenerationOffset(6)) ++read.to[i];
      }
    }
    const absl::Status verdict = pull.Verdict();
    if (wrong == 0) {
      EXPECT_TRUE(verdict.ok()) << verdict;
    } else {
      EXPECT_TRUE(absl::IsDataLoss(verdict)) << verdict;
    }
  }
}

}  // namespace
}  // namespace baton
