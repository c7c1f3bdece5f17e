#include "kv_transfer/device/staging_notes.h"

#include "gtest/gtest.h"
#include "kv_transfer/kv_notes.h"
#include "kv_transfer/transport/transport.h"

namespace baton {
namespace {

StageNote Stage() {
  return {.reader = 7,
          .id = ~uint64_t{0},
          .slot = 3,
          .pool = 2,
          .offset = 1ull << 40,
          .bytes = 99,
          .address = std::string(1000, 'a')};
}

TEST(StagingNotesTest, WhatIsSaidIsHeard) {
  const auto stage = DecodeStage(EncodeStage(Stage()));
  ASSERT_TRUE(stage.has_value());
  EXPECT_EQ(stage->reader, 7u);
  EXPECT_EQ(stage->id, ~uint64_t{0});
  EXPECT_EQ(stage->slot, 3u);
  EXPECT_EQ(stage->pool, 2u);
  EXPECT_EQ(stage->offset, 1ull << 40);
  EXPECT_EQ(stage->bytes, 99u);
  EXPECT_EQ(stage->address, std::string(1000, 'a'));
  const StagedNote said = {.reader = 7,
                           .id = 8,
                           .code = absl::StatusCode::kResourceExhausted,
                           .message = std::string(10000, 'm'),
                           .key = std::string(500, 'k'),
                           .offset = 9};
  const std::string bytes = EncodeStaged(said);
  EXPECT_LE(bytes.size(), Transport::kMaxNoteBytes);
  const auto staged = DecodeStaged(bytes);
  ASSERT_TRUE(staged.has_value());
  EXPECT_EQ(staged->id, 8u);
  EXPECT_EQ(staged->code, said.code);
  EXPECT_EQ(staged->message, std::string(kMaxStagedMessage, 'm'));
  EXPECT_EQ(staged->key, said.key);
  EXPECT_EQ(staged->offset, 9u);
  const auto mapped = DecodeMapped(EncodeMapped({.id = 5, .mapped = true, .address = "there"}));
  ASSERT_TRUE(mapped.has_value());
  EXPECT_EQ(mapped->id, 5u);
  EXPECT_TRUE(mapped->mapped);
  EXPECT_EQ(mapped->address, "there");
  EXPECT_FALSE(DecodeMapped(EncodeMapped({.id = 5, .mapped = false}))->mapped);
  const auto unmap = DecodeUnmap(EncodeUnmap({.id = 6}));
  ASSERT_TRUE(unmap.has_value());
  EXPECT_EQ(unmap->id, 6u);
}

// Returns how many of the decoders DecodeStage, DecodeStaged, DecodeMapped and DecodeUnmap accept
// `bytes`.
int Kinds(absl::string_view bytes) {
  return DecodeStage(bytes).has_value() + DecodeStaged(bytes).has_value() +
         DecodeMapped(bytes).has_value() + DecodeUnmap(bytes).has_value();
}

TEST(StagingNotesTest, ChangedOrCutOnesAreNone) {
  for (const std::string& bytes :
       {EncodeStage(Stage()), EncodeStaged({.reader = 1, .id = 2}),
        EncodeMapped({.id = 3, .address = "a"}), EncodeUnmap({.id = 4})}) {
    EXPECT_TRUE(IsStagingNote(bytes));
    EXPECT_EQ(Kinds(bytes), 1);
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string changed = bytes;
      changed[i] ^= 1;
      EXPECT_EQ(Kinds(changed), 0) << i;
      EXPECT_EQ(Kinds(bytes.substr(0, i)), 0) << i;
    }
  }
}

TEST(StagingNotesTest, TheNotesOfThePlaneAreNotTakenForThem) {
  KvNote note;
  note.type = KvNote::Type::kHello;
  EXPECT_FALSE(IsStagingNote(EncodeNote(note)));
  EXPECT_FALSE(IsStagingNote(""));
}

}  // namespace
}  // namespace baton
