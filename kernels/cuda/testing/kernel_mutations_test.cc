#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_cases.h"
#include "kernels/mutations/mutations.h"

namespace baton {
namespace {

using mutations::Mutation;

// The cases of kernels_test.cc must fail for every mutation of the kernels.
class KernelMutationsTest : public testing::Test {
 protected:
  // Checks that the case fails for every mutation whose code it runs, and that there are `count`
  // such mutations. Raise `count` when you add mutations. If the number falls by itself, the case
  // runs less of the kernels than before.
  static void ExpectAllCaught(const KernelCase& kernel_case, size_t count) {
    const mutations::MutationReport report = mutations::TryMutations(
        mutations::AllMutations(),
        [&](uint64_t n) {
          return RunCase(kernel_case, static_cast<int>(n % kernel_case.cases),
                         {EmulatedKernels(), nullptr}, {.seed = n / kernel_case.cases});
        },
        /*seeds=*/kernel_case.cases);
    EXPECT_EQ(report.unmutated, absl::OkStatus());
    EXPECT_THAT(report.missed, testing::IsEmpty());
    EXPECT_EQ(report.caught.size(), count) << testing::PrintToString(report.caught);
    caught_.insert(caught_.end(), report.caught.begin(), report.caught.end());
  }

  // Checks that each mutation of the list kernel_mutations was caught by at least one case.
  static void TearDownTestSuite() {
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->current_test_suite();
    // Some tests were filtered out, so not every mutation can have been reached.
    if (suite.test_to_run_count() < suite.total_test_count()) return;
    EXPECT_THAT(mutations::Without(mutations::OfList(mutations::AllMutations(), "kernel_mutations"),
                                   caught_),
                testing::IsEmpty())
        << "no case finds these";
  }

 private:
  static inline std::vector<Mutation> caught_;  // caught by the cases so far
};

TEST_F(KernelMutationsTest, OfEmbeddingAreCaught) { ExpectAllCaught(EmbeddingCase(), 6); }
TEST_F(KernelMutationsTest, OfGatherRowsAreCaught) { ExpectAllCaught(GatherRowsCase(), 3); }
TEST_F(KernelMutationsTest, OfRmsNormAreCaught) { ExpectAllCaught(RmsNormCase(), 10); }
TEST_F(KernelMutationsTest, OfBiasRowsAreCaught) { ExpectAllCaught(BiasRowsCase(), 3); }
TEST_F(KernelMutationsTest, OfSiluMulAreCaught) { ExpectAllCaught(SiluMulCase(), 4); }
TEST_F(KernelMutationsTest, OfRopeTableAreCaught) { ExpectAllCaught(RopeTableCase(), 5); }
TEST_F(KernelMutationsTest, OfRopeWriteKvAreCaught) { ExpectAllCaught(RopeWriteKvCase(), 13); }
TEST_F(KernelMutationsTest, OfPagedAttentionAreCaught) {
  ExpectAllCaught(PagedAttentionCase(), 25);
}
TEST_F(KernelMutationsTest, OfAttentionPlanAreCaught) { ExpectAllCaught(AttentionPlanCase(), 8); }
TEST_F(KernelMutationsTest, OfSplitAttentionAreCaught) {
  ExpectAllCaught(SplitAttentionCase(), 54);
}
TEST_F(KernelMutationsTest, OfPrefillAttentionAreCaught) {
  ExpectAllCaught(PrefillAttentionCase(), 48);
}
TEST_F(KernelMutationsTest, OfArgmaxAreCaught) { ExpectAllCaught(ArgmaxCase(), 5); }

}  // namespace
}  // namespace baton
