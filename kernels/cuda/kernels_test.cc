#include "kernels/cuda/kernels.h"

#include "gtest/gtest.h"
#include "kernels/cuda/kernel_cases.h"

namespace baton {
namespace {

// Built twice: with the kernels as they run, and with the checker watching them
// (kernels_checked_test).
TEST(KernelsTest, EmbeddingIsItsTwin) {
  EXPECT_EQ(RunCases(EmbeddingCase(), {}), absl::OkStatus());
}
TEST(KernelsTest, GatherRowsIsItsTwin) {
  EXPECT_EQ(RunCases(GatherRowsCase(), {}), absl::OkStatus());
}
TEST(KernelsTest, RmsNormIsItsTwin) { EXPECT_EQ(RunCases(RmsNormCase(), {}), absl::OkStatus()); }
TEST(KernelsTest, BiasRowsIsItsTwin) { EXPECT_EQ(RunCases(BiasRowsCase(), {}), absl::OkStatus()); }
TEST(KernelsTest, SiluMulIsItsTwin) { EXPECT_EQ(RunCases(SiluMulCase(), {}), absl::OkStatus()); }
TEST(KernelsTest, RopeTableIsItsTwin) {
  EXPECT_EQ(RunCases(RopeTableCase(), {}), absl::OkStatus());
}
TEST(KernelsTest, RopeWriteKvIsItsTwin) {
  EXPECT_EQ(RunCases(RopeWriteKvCase(), {}), absl::OkStatus());
}
TEST(KernelsTest, PagedAttentionIsItsTwin) {
  EXPECT_EQ(RunCases(PagedAttentionCase(), {}), absl::OkStatus());
}
TEST(KernelsTest, AttentionPlanIsItsTwin) {
  EXPECT_EQ(RunCases(AttentionPlanCase(), {}), absl::OkStatus());
}
TEST(KernelsTest, SplitAttentionIsItsTwin) {
  EXPECT_EQ(RunCases(SplitAttentionCase(), {}), absl::OkStatus());
}
TEST(KernelsTest, PrefillAttentionIsItsTwin) {
  EXPECT_EQ(RunCases(PrefillAttentionCase(), {}), absl::OkStatus());
}
TEST(KernelsTest, ArgmaxIsItsTwin) { EXPECT_EQ(RunCases(ArgmaxCase(), {}), absl::OkStatus()); }

}  // namespace
}  // namespace baton
