#include "kernels/cuda/kernels.h"

#include "gtest/gtest.h"
#include "kernels/cuda/kernel_bench.h"
#include "kernels/cuda/kernel_cases.h"

namespace baton {
namespace {

// Every kernel against its twin, each case under another schedule. Built twice: with the kernels as
// they run, and with the checker watching them (kernels_cuda_checked_test).
void RunCases(const KernelCase& kernel_case) {
  for (int i = 0; i < kernel_case.cases && !testing::Test::HasFailure(); ++i) {
    KernelBench bench(1000 + i);
    bench.options.seed = i;
    kernel_case.run(bench, i);
  }
}

TEST(KernelsTest, EmbeddingIsItsTwin) { RunCases(EmbeddingCase()); }
TEST(KernelsTest, GatherRowsIsItsTwin) { RunCases(GatherRowsCase()); }
TEST(KernelsTest, RmsNormIsItsTwin) { RunCases(RmsNormCase()); }
TEST(KernelsTest, BiasRowsIsItsTwin) { RunCases(BiasRowsCase()); }
TEST(KernelsTest, SiluMulIsItsTwin) { RunCases(SiluMulCase()); }
TEST(KernelsTest, RopeTableIsItsTwin) { RunCases(RopeTableCase()); }
TEST(KernelsTest, RopeWriteKvIsItsTwin) { RunCases(RopeWriteKvCase()); }
TEST(KernelsTest, PagedAttentionIsItsTwin) { RunCases(PagedAttentionCase()); }
TEST(KernelsTest, ArgmaxIsItsTwin) { RunCases(ArgmaxCase()); }

}  // namespace
}  // namespace baton
