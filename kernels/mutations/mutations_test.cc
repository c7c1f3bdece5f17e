#include "kernels/mutations/mutations.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mutations/example.h"

namespace baton::mutations {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> Names(const std::vector<Mutation>& mutations) {
  std::vector<std::string> names;
  for (const Mutation& mutation : mutations) names.push_back(mutation.name);
  return names;
}

absl::Status Judge(uint64_t) {
  if (LargerOf(1, 2) != 2) return absl::DataLossError("larger");
  if (SumTo(3) != 6) return absl::DataLossError("sum");
  return absl::OkStatus();
}

TEST(MutationsTest, TheCopyKnowsItsMutations) {
  const std::vector<Mutation> all = AllMutations();
  EXPECT_THAT(Names(all),
              ElementsAre("larger: the smaller one", "sum: last", "sum: nothing is added",
                          "sum: negative", "sum: first and last", "unreached"));
  EXPECT_EQ(testing::PrintToString(all[2]),
            "sum: nothing is added (kernels/mutations/example.cc:12)");
  EXPECT_EQ(OfList(all, "example_mutations"), all);
  EXPECT_DEATH(OfList(all, "example"), "no mutation of a list named example");
}

TEST(MutationsTest, OneIsOnAtATimeAndAfterwardsNone) {
  EXPECT_EQ(LargerOf(1, 2), 2);
  EXPECT_EQ(SumTo(3), 6);
  {
    const ScopedMutation on(1);
    EXPECT_EQ(LargerOf(1, 2), 1);
    EXPECT_EQ(SumTo(3), 6);
    EXPECT_DEATH(ScopedMutation(2), "mutation 1 is on");
  }
  EXPECT_EQ(LargerOf(1, 2), 2);
  {
    const ScopedMutation on(2);
    EXPECT_EQ(SumTo(3), 3);
  }
  {
    const ScopedMutation on(3);
    EXPECT_EQ(SumTo(3), 0);
  }
  {
    const ScopedMutation on(4);
    EXPECT_EQ(SumTo(3), 6);
    EXPECT_EQ(SumTo(-3), 0);
  }
  {
    const ScopedMutation on(5);  // mutation 5 changes two places
    EXPECT_EQ(SumTo(3), 9);
  }
  EXPECT_EQ(SumTo(3), 6);
  EXPECT_EQ(SumTo(-3), -1);
}

TEST(MutationsTest, LinesAreThoseOfTheSource) { EXPECT_EQ(LineOfThis(), 18); }

TEST(MutationsTest, ReportsWhatBecameOfThoseThatWereReached) {
  const MutationReport report = TryMutations(AllMutations(), Judge);
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_THAT(Names(report.caught), ElementsAre("larger: the smaller one", "sum: last",
                                                "sum: nothing is added", "sum: first and last"));
  EXPECT_THAT(Names(report.missed), ElementsAre("sum: negative"));
  EXPECT_THAT(Names(Without(Without(AllMutations(), report.caught), report.missed)),
              ElementsAre("unreached"));
}

TEST(MutationsTest, OnlySeedsThatReachOneAreTriedUntilItIsCaught) {
  std::vector<uint64_t> seeds;
  const MutationReport report = TryMutations(
      OfList(AllMutations(), "example_mutations"),
      [&](uint64_t seed) {
        seeds.push_back(seed);
        return seed >= 1 && LargerOf(1, 2) != 2 ? absl::DataLossError("larger") : absl::OkStatus();
      },
      /*seeds=*/3);
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_THAT(Names(report.caught), ElementsAre("larger: the smaller one"));
  EXPECT_THAT(seeds, ElementsAre(0, 1, 2, 1));
}

TEST(MutationsTest, NothingIsTriedWhereTheSourceFailsByItself) {
  int calls = 0;
  const MutationReport report = TryMutations(AllMutations(), [&](uint64_t) {
    ++calls;
    return absl::DataLossError("wrong");
  });
  EXPECT_EQ(report.unmutated, absl::DataLossError("wrong"));
  EXPECT_THAT(report.caught, IsEmpty());
  EXPECT_THAT(report.missed, IsEmpty());
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace baton::mutations
