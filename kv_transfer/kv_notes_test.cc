#include "kv_transfer/kv_notes.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_transfer/kv_address.h"
#include "kv_transfer/transport/transport.h"

namespace baton {
namespace {

KvNote StateNote() {
  KvNote note;
  note.type = KvNote::Type::kState;
  note.from = 11;
  note.to = 22;
  note.handover_id = 33;
  note.secret = "0123456789abcdef";
  note.attempt = 4;
  note.full_blocks = 5;
  note.partial_blocks = 6;
  note.partial_layers = 7;
  note.complete = true;
  note.payload = "token 1";
  return note;
}

TEST(KvNotesTest, EveryTypeComesBackAsItWas) {
  for (int type = 1; type <= 7; ++type) {
    KvNote note = StateNote();
    note.type = static_cast<KvNote::Type>(type);
    note.nonce = 99;
    note.reason = KvNote::Reason::kAborted;
    note.outcome = KvNote::Outcome::kCorrupt;
    const auto back = DecodeNote(EncodeNote(note));
    ASSERT_TRUE(back.has_value()) << type;
    EXPECT_EQ(back->type, note.type);
    EXPECT_EQ(back->from, 11u);
    EXPECT_EQ(back->to, 22u);
    if (type <= 2) {
      EXPECT_EQ(back->nonce, 99u);
      continue;
    }
    EXPECT_EQ(back->handover_id, 33u);
    EXPECT_EQ(back->secret, note.secret);
    EXPECT_EQ(back->attempt, 4u);
    if (note.type == KvNote::Type::kState) {
      EXPECT_EQ(back->partial_layers, 7u);
      EXPECT_EQ(back->payload, "token 1");
      EXPECT_TRUE(back->complete);
    }
    if (note.type == KvNote::Type::kRefused) {
      EXPECT_EQ(back->reason, note.reason);
    }
    if (note.type == KvNote::Type::kRelease) {
      EXPECT_EQ(back->outcome, note.outcome);
    }
  }
}

TEST(KvNotesTest, TheLongestNoteFitsATransport) {
  KvNote note = StateNote();
  note.payload.assign(kMaxPayloadBytes, 'x');
  EXPECT_LE(EncodeNote(note).size(), Transport::kMaxNoteBytes);
}

TEST(KvNotesTest, CutAndPaddedNotesAreNone) {
  const std::string bytes = EncodeNote(StateNote());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(DecodeNote(absl::string_view(bytes).substr(0, length)).has_value()) << length;
  }
  EXPECT_FALSE(DecodeNote(bytes + "x").has_value());
}

TEST(KvNotesTest, RandomBytesNeverDoMoreThanDecode) {
  std::mt19937_64 random(7);
  const std::string good = EncodeNote(StateNote());
  for (int i = 0; i < 200000; ++i) {
    std::string bytes = good;
    const int flips = 1 + random() % 4;
    for (int flip = 0; flip < flips; ++flip) bytes[random() % bytes.size()] = random();
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    const auto note = DecodeNote(bytes);
    if (note) {
      EXPECT_EQ(EncodeNote(*note), bytes);
    }
  }
}

TEST(KvAddressTest, AnyChangedByteIsNoticed) {
  const KvAddress address{7, "transport", "pool", "meta", 100, "layout", "numerics"};
  const std::string bytes = PackKvAddress(address);
  ASSERT_TRUE(UnpackKvAddress(bytes).ok());
  EXPECT_EQ(UnpackKvAddress(bytes)->meta_key, "meta");
  EXPECT_EQ(UnpackKvAddress(bytes)->blocks, 100u);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= 1;
    EXPECT_FALSE(UnpackKvAddress(changed).ok()) << i;
    EXPECT_FALSE(UnpackKvAddress(bytes.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(UnpackKvAddress(bytes + bytes).ok());
}

}  // namespace
}  // namespace baton
