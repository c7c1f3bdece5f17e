#include "kernels/cuda/kernels/kernels.h"

#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_cases.h"

namespace baton {
namespace {

// Part of three programs: with normal emulated kernels (kernels_emulated_test), with kernels whose
// accesses are checked (kernels_checked_test), and with a GPU (kernels_cuda_test).
class KernelsTest : public testing::Test {
 protected:
  void ExpectTwins(const KernelCase& kernel_case) {
    const auto tested = OpenTestedKernels();
    if (absl::IsFailedPrecondition(tested.status())) GTEST_SKIP() << tested.status().message();
    ASSERT_TRUE(tested.ok()) << tested.status();
    EXPECT_EQ(RunCases(kernel_case, *tested), absl::OkStatus());
  }
};

TEST_F(KernelsTest, EmbeddingIsItsTwin) { ExpectTwins(EmbeddingCase()); }
TEST_F(KernelsTest, GatherRowsIsItsTwin) { ExpectTwins(GatherRowsCase()); }
TEST_F(KernelsTest, RmsNormIsItsTwin) { ExpectTwins(RmsNormCase()); }
TEST_F(KernelsTest, BiasRowsIsItsTwin) { ExpectTwins(BiasRowsCase()); }
TEST_F(KernelsTest, SiluMulIsItsTwin) { ExpectTwins(SiluMulCase()); }
TEST_F(KernelsTest, RopeTableIsItsTwin) { ExpectTwins(RopeTableCase()); }
TEST_F(KernelsTest, RopeWriteKvIsItsTwin) { ExpectTwins(RopeWriteKvCase()); }
TEST_F(KernelsTest, PagedAttentionIsItsTwin) { ExpectTwins(PagedAttentionCase()); }
TEST_F(KernelsTest, AttentionPlanIsItsTwin) { ExpectTwins(AttentionPlanCase()); }
TEST_F(KernelsTest, SplitAttentionIsItsTwin) { ExpectTwins(SplitAttentionCase()); }
TEST_F(KernelsTest, PrefillAttentionIsItsTwin) { ExpectTwins(PrefillAttentionCase()); }
TEST_F(KernelsTest, ArgmaxIsItsTwin) { ExpectTwins(ArgmaxCase()); }

}  // namespace
}  // namespace baton
