#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/kernel_cases.h"
#include "kernels/cuda/simt/mutations.h"

namespace baton {
namespace {

using testing::IsEmpty;

// The tests of kernels_test.cc fail for every mutation that is written in the kernels, `count` in
// this one.
void ExpectAllCaught(const KernelCase& kernel_case, size_t count) {
  const simt::MutationReport report = simt::TryMutations(
      [&](const simt::SimtOptions& options) {
        return RunCases(kernel_case, {EmulatedKernels(), nullptr}, options);
      },
      /*seeds=*/2);
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_THAT(report.missed, IsEmpty());
  EXPECT_EQ(report.caught.size(), count);
}

TEST(KernelMutationsTest, OfEmbeddingAreCaught) { ExpectAllCaught(EmbeddingCase(), 6); }
TEST(KernelMutationsTest, OfGatherRowsAreCaught) { ExpectAllCaught(GatherRowsCase(), 3); }
TEST(KernelMutationsTest, OfRmsNormAreCaught) { ExpectAllCaught(RmsNormCase(), 10); }
TEST(KernelMutationsTest, OfBiasRowsAreCaught) { ExpectAllCaught(BiasRowsCase(), 3); }
TEST(KernelMutationsTest, OfSiluMulAreCaught) { ExpectAllCaught(SiluMulCase(), 4); }
TEST(KernelMutationsTest, OfRopeTableAreCaught) { ExpectAllCaught(RopeTableCase(), 5); }
TEST(KernelMutationsTest, OfRopeWriteKvAreCaught) { ExpectAllCaught(RopeWriteKvCase(), 13); }
TEST(KernelMutationsTest, OfPagedAttentionAreCaught) { ExpectAllCaught(PagedAttentionCase(), 25); }
TEST(KernelMutationsTest, OfAttentionPlanAreCaught) { ExpectAllCaught(AttentionPlanCase(), 8); }
TEST(KernelMutationsTest, OfSplitAttentionAreCaught) { ExpectAllCaught(SplitAttentionCase(), 54); }
TEST(KernelMutationsTest, OfPrefillAttentionAreCaught) {
  ExpectAllCaught(PrefillAttentionCase(), 48);
}
TEST(KernelMutationsTest, OfArgmaxAreCaught) { ExpectAllCaught(ArgmaxCase(), 5); }

}  // namespace
}  // namespace baton
