#include "router/core/served_identity.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

const ModelIdentity kOld = {"old", "n"}, kNew = {"new", "n"}, kThird = {"third", "n"};
const absl::Time kBegan = absl::FromUnixSeconds(1000);

absl::Time At(double seconds) { return kBegan + absl::Seconds(seconds); }

TEST(ServedIdentityTest, TheFirstWithAUsableWorkerIsServedAtOnce) {
  ServedIdentity served({}, absl::Seconds(10));
  EXPECT_FALSE(served.served());
  EXPECT_FALSE(served.Update({}, At(0)));
  // If no identity has a usable worker, the identity that is most likely to get one is served.
  EXPECT_TRUE(served.Update({{kThird, {.attached = 3}}}, At(1)));
  EXPECT_EQ(served.served(), kThird);
  EXPECT_TRUE(
      served.Update({{kThird, {.attached = 3}}, {kOld, {.decode = 1, .attached = 1}}}, At(1)));
  EXPECT_EQ(served.served(), kOld);
  EXPECT_FALSE(served.found());
  EXPECT_TRUE(served.Update({{kOld, {.decode = 9, .attached = 9}}, {kNew, {.usable = 1}}}, At(1)));
  EXPECT_EQ(served.served(), kNew);
  EXPECT_TRUE(served.found());
  EXPECT_FALSE(served.Update({{kOld, {.usable = 2}}, {kNew, {.usable = 1}}}, At(1)))
      << "from now on it takes a lead of 10 s";
}

TEST(ServedIdentityTest, AnotherIsServedAfterItHasLedForTenSeconds) {
  ServedIdentity served({}, absl::Seconds(10));
  served.Update({{kOld, {.usable = 2}}}, At(0));
  EXPECT_FALSE(served.Update({{kOld, {.usable = 2}}, {kNew, {.usable = 2}}}, At(1)));
  EXPECT_FALSE(served.leader()) << "a tie keeps the present one";
  EXPECT_EQ(served.ChangesAt(), absl::InfiniteFuture());
  EXPECT_FALSE(served.Update({{kOld, {.usable = 1}}, {kNew, {.usable = 2}}}, At(50)));
  EXPECT_EQ(served.leader(), kNew);
  EXPECT_EQ(served.ChangesAt(), At(60));
  // The identity now has nine workers instead of two, but it must still lead for the full ten
  // seconds.
  EXPECT_FALSE(served.Update({{kNew, {.usable = 9}}}, At(59.999)));
  EXPECT_EQ(served.served(), kOld);
  EXPECT_TRUE(served.Update({{kNew, {.usable = 9}}}, At(60)));
  EXPECT_EQ(served.served(), kNew);
  EXPECT_FALSE(served.leader());
}

TEST(ServedIdentityTest, ALeadThatBreaksBeginsAnew) {
  ServedIdentity served({}, absl::Seconds(10));
  served.Update({{kOld, {.usable = 2}}}, At(0));
  served.Update({{kOld, {.usable = 1}}, {kNew, {.usable = 2}}}, At(1));
  EXPECT_FALSE(served.Update({{kOld, {.usable = 2}}, {kNew, {.usable = 2}}}, At(10)));
  EXPECT_FALSE(served.leader());
  EXPECT_FALSE(served.Update({{kOld, {.usable = 1}}, {kNew, {.usable = 2}}}, At(12)));
  EXPECT_EQ(served.ChangesAt(), At(22));
  // A third identity now has the most workers. It must keep this lead for ten seconds of its own:
  // the time for which kNew led does not count.
  EXPECT_FALSE(served.Update(
      {{kOld, {.usable = 1}}, {kNew, {.usable = 2}}, {kThird, {.usable = 3}}}, At(20)));
  EXPECT_EQ(served.leader(), kThird);
  EXPECT_EQ(served.ChangesAt(), At(30));
  // The leader is the identity with the most workers. An identity with as many workers as the
  // leader does not replace it.
  EXPECT_FALSE(served.Update(
      {{kOld, {.usable = 1}}, {kNew, {.usable = 3}}, {kThird, {.usable = 3}}}, At(25)));
  EXPECT_EQ(served.leader(), kThird);
  EXPECT_EQ(served.ChangesAt(), At(30));
}

// The only worker of the served identity restarts. The identity stays the same for ten seconds.
TEST(ServedIdentityTest, TheServedOneMayBeGoneForAWhile) {
  ServedIdentity served({}, absl::Seconds(10));
  served.Update({{kOld, {.usable = 1}}}, At(0));
  EXPECT_FALSE(served.Update({{kNew, {.usable = 1}}}, At(1)));
  EXPECT_FALSE(served.Update({{kNew, {.usable = 1}}, {kOld, {.usable = 1}}}, At(10)));
  EXPECT_FALSE(served.Update({}, At(100)));
  EXPECT_EQ(served.served(), kOld);
}

TEST(ServedIdentityTest, TimeThatNobodyObservedIsNoLead) {
  ServedIdentity served({}, absl::Seconds(10));
  served.Update({{kOld, {.usable = 1}}}, At(0));
  served.Update({{kNew, {.usable = 1}}}, At(1));
  served.Excuse(absl::Seconds(100), At(105));
  EXPECT_EQ(served.ChangesAt(), At(111));
  served.Excuse(absl::Seconds(100), At(106));
  EXPECT_EQ(served.ChangesAt(), At(116)) << "it can't have begun to lead in the future";
}

TEST(ServedIdentityTest, AFixedOneNeverChanges) {
  ServedIdentity served({.fingerprint = "old", .numerics_id = "n"}, absl::Seconds(10));
  EXPECT_EQ(served.served(), kOld);
  EXPECT_FALSE(served.Update({{kNew, {.usable = 5}}}, At(0)));
  EXPECT_FALSE(served.Update({{kNew, {.usable = 5}}}, At(100)));
  EXPECT_EQ(served.served(), kOld);
}

TEST(ServedIdentityTest, AFixedFingerprintLeavesTheNumericsOpen) {
  ServedIdentity served({.fingerprint = "old"}, absl::Seconds(10));
  EXPECT_FALSE(served.served());
  EXPECT_FALSE(served.Update({{kNew, {.usable = 5}}}, At(0)));
  EXPECT_FALSE(served.served());
  const ModelIdentity other = {"old", "m"};
  EXPECT_TRUE(served.Update({{kNew, {.usable = 5}}, {kOld, {.usable = 1}}}, At(1)));
  EXPECT_EQ(served.served(), kOld);
  EXPECT_FALSE(
      served.Update({{kNew, {.usable = 5}}, {kOld, {.usable = 1}}, {other, {.usable = 2}}}, At(2)));
  EXPECT_TRUE(served.Update({{kNew, {.usable = 5}}, {kOld, {.usable = 1}}, {other, {.usable = 2}}},
                            At(12)));
  EXPECT_EQ(served.served(), other);
}

TEST(FixedIdentityTest, IsReadAsModelsShowsIt) {
  const auto both = ParseFixedIdentity("0123456789abcdef/cpu-f32x16-v1/kv-f16");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->fingerprint, "0123456789abcdef");
  EXPECT_EQ(both->numerics_id, "cpu-f32x16-v1/kv-f16");
  EXPECT_EQ(both->ToString(), "0123456789abcdef/cpu-f32x16-v1/kv-f16");
  const auto model = ParseFixedIdentity("0123456789abcdef");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->ToString(), "0123456789abcdef");
  EXPECT_EQ(ParseFixedIdentity("")->ToString(), "");
  for (const absl::string_view bad :
       {"demo", "0123456789abcde", "0123456789abcdefg", "0123456789ABCDEF", "0123456789abcdef/",
        "/cpu", "0123456789abcde /n"}) {
    const auto refused = ParseFixedIdentity(bad);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(absl::StrCat("'", bad, "'")));
  }
}

}  // namespace
}  // namespace baton
