#include <cstdlib>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_cases.h"

namespace baton {
namespace {

// Runs each case under the kinds of schedules (run_grid.h) under which kernels_test.cc does not run
// it. A kernel may be right only with one order of its warps, or only with copies that arrive
// early. Here it must be right with all.
class KernelSchedulesTest : public testing::TestWithParam<KernelCase (*)()> {};

TEST_P(KernelSchedulesTest, AreItsReferenceUnderOthersToo) {
  // The emulator has six kinds of schedules: three orders of the warps, each with early and with
  // late copies. kernels_test.cc runs each case under only one kind.
  constexpr int kKinds = 6;
  // Tries one schedule of each kind, or BATON_CASES schedules if that is above 10. Schedules after
  // the first kKinds repeat the kinds; those with a random order of warps have another order.
  const char* const cases = std::getenv("BATON_CASES");
  int wanted = 0;
  if (cases == nullptr || !absl::SimpleAtoi(cases, &wanted) || wanted <= 10) wanted = kKinds;
  const TestedKernels tested = OpenTestedKernels().value();
  for (int schedule = 1; schedule < wanted; ++schedule) {
    simt::SimtOptions options;
    options.seed = schedule;
    EXPECT_EQ(RunCases(GetParam()(), tested, options), absl::OkStatus()) << options.seed;
  }
}

TEST(KernelWorkTest, WarpsOfPrefillAttentionWithoutRowsComputeNothing) {
  const TestedKernels tested = OpenTestedKernels().value();
  const int64_t of_one_warp = MmasOfPrefillAttention(tested, 1);
  ASSERT_GT(of_one_warp, 0);
  EXPECT_EQ(MmasOfPrefillAttention(tested, 16), of_one_warp);
  EXPECT_EQ(MmasOfPrefillAttention(tested, 17), 2 * of_one_warp);
  EXPECT_EQ(MmasOfPrefillAttention(tested, 32), 2 * of_one_warp);
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelSchedulesTest,
                         testing::Values(EmbeddingCase, GatherRowsCase, RmsNormCase, BiasRowsCase,
                                         SiluMulCase, RopeTableCase, RopeWriteKvCase,
                                         PagedAttentionCase, AttentionPlanCase, SplitAttentionCase,
                                         PrefillAttentionCase, ArgmaxCase));

}  // namespace
}  // namespace baton
