#include "kv_transfer/staging_notes.h"

#include "gtest/gtest.h"
#include "kv_transfer/kv_notes.h"
#include "kv_transfer/transport.h"

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
}

TEST(StagingNotesTest, ChangedOrCutOnesAreNone) {
  for (const std::string& bytes : {EncodeStage(Stage()), EncodeStaged({.reader = 1, .id = 2})}) {
    EXPECT_TRUE(IsStagingNote(bytes));
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string changed = bytes;
      changed[i] ^= 1;
      EXPECT_FALSE(DecodeStage(changed).has_value() || DecodeStaged(changed).has_value()) << i;
      const std::string cut = bytes.substr(0, i);
      EXPECT_FALSE(DecodeStage(cut).has_value() || DecodeStaged(cut).has_value()) << i;
    }
  }
  EXPECT_FALSE(DecodeStaged(EncodeStage(Stage())).has_value());
  EXPECT_FALSE(DecodeStage(EncodeStaged({})).has_value());
}

TEST(StagingNotesTest, TheNotesOfThePlaneAreNotTakenForThem) {
  KvNote note;
  note.type = KvNote::Type::kHello;
  EXPECT_FALSE(IsStagingNote(EncodeNote(note)));
  EXPECT_FALSE(IsStagingNote(""));
}

}  // namespace
}  // namespace baton
