#include "common/engine/handover_note.h"

#include <random>

#include "gtest/gtest.h"

namespace baton {
namespace {

HandoverNote Full() {
  HandoverNote note;
  note.first_token = {.id = 127999, .position = 8191, .logprob = -0.25f};
  for (int i = 0; i < 20; ++i) note.first_token.top.push_back({i * 1000, -0.5f * i});
  return note;
}

TEST(HandoverNoteTest, ComesBackAsItWas) {
  const HandoverNote full = Full();
  const HandoverNote back = HandoverNote::Decode(full.Encode()).value();
  EXPECT_EQ(back.first_token.id, 127999);
  EXPECT_EQ(back.first_token.position, 8191);
  EXPECT_EQ(back.first_token.logprob, -0.25f);
  ASSERT_EQ(back.first_token.top.size(), 20u);
  EXPECT_EQ(back.first_token.top[19].id, 19000);
  EXPECT_EQ(back.first_token.top[19].logprob, -9.5f);

  HandoverNote plain;
  plain.first_token = {.id = 3, .position = 4};
  EXPECT_EQ(plain.Encode().size(), 11u);
  EXPECT_FALSE(HandoverNote::Decode(plain.Encode())->first_token.logprob);
}

TEST(HandoverNoteTest, RefusesWhatIsCutGrownOrChanged) {
  const std::string good = Full().Encode();
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_FALSE(HandoverNote::Decode(good.substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(HandoverNote::Decode(good + "x").ok());
  for (const auto& [at, value] :
       {std::pair<int, char>{0, 2}, {1, 2}, {2, 21}, {6, '\x80'}, {10, '\xff'}, {18, '\x90'}}) {
    std::string bad = good;
    bad[at] = value;
    EXPECT_EQ(HandoverNote::Decode(bad).status().code(), absl::StatusCode::kInvalidArgument) << at;
  }
}

TEST(HandoverNoteTest, NoiseIsRefusedOrHarmless) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string noise(random() % 200, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    if (random() % 2 == 0 && noise.size() > 3) {
      noise[0] = 1;
      noise[1] = random() % 2;
      noise[2] = static_cast<char>(random() % 22);
    }
    const auto note = HandoverNote::Decode(noise);
    if (note.ok()) {
      EXPECT_EQ(note->Encode(), noise);
    }
  }
}

}  // namespace
}  // namespace baton
