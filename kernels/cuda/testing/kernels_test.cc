#include "kernels/cuda/kernels/kernels.h"

#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_cases.h"

namespace baton {
namespace {

// This file is part of three test programs: with normal emulated kernels (kernels_emulated_test),
// with kernels whose accesses are checked (kernels_checked_test), and with a GPU
// (kernels_cuda_test).
class KernelsTest : public testing::Test {
 protected:
  void ExpectReferences(const KernelCase& kernel_case) {
    const auto tested = OpenTestedKernels();
    if (absl::IsFailedPrecondition(tested.status())) GTEST_SKIP() << tested.status().message();
    ASSERT_TRUE(tested.ok()) << tested.status();
    EXPECT_EQ(RunCases(kernel_case, *tested), absl::OkStatus());
  }
};

TEST_F(KernelsTest, EmbeddingIsItsReference) { ExpectReferences(EmbeddingCase()); }
TEST_F(KernelsTest, GatherRowsIsItsReference) { ExpectReferences(GatherRowsCase()); }
TEST_F(KernelsTest, RmsNormIsItsReference) { ExpectReferences(RmsNormCase()); }
TEST_F(KernelsTest, BiasRowsIsItsReference) { ExpectReferences(BiasRowsCase()); }
TEST_F(KernelsTest, SiluMulIsItsReference) { ExpectReferences(SiluMulCase()); }
TEST_F(KernelsTest, RopeTableIsItsReference) { ExpectReferences(RopeTableCase()); }
TEST_F(KernelsTest, RopeWriteKvIsItsReference) { ExpectReferences(RopeWriteKvCase()); }
TEST_F(KernelsTest, PagedAttentionIsItsReference) { ExpectReferences(PagedAttentionCase()); }
TEST_F(KernelsTest, AttentionPlanIsItsReference) { ExpectReferences(AttentionPlanCase()); }
TEST_F(KernelsTest, SplitAttentionIsItsReference) { ExpectReferences(SplitAttentionCase()); }
TEST_F(KernelsTest, PrefillAttentionIsItsReference) { ExpectReferences(PrefillAttentionCase()); }
TEST_F(KernelsTest, ArgmaxIsItsReference) { ExpectReferences(ArgmaxCase()); }

}  // namespace
}  // namespace baton
