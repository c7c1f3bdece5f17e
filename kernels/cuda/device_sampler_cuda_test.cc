#include "gtest/gtest.h"
#include "kernels/cuda/device_sampler_cases.h"
#include "kernels/cuda/testing/kernel_cases.h"

namespace baton {
namespace {

TEST(DeviceSamplerCudaTest, SamplesWhatTheHostSamples) {
  const auto tested = OpenTestedKernels();
  if (absl::IsFailedPrecondition(tested.status())) GTEST_SKIP() << tested.status().message();
  ASSERT_TRUE(tested.ok()) << tested.status();
  for (const int i : ChosenCases(kSampleCases)) {
    EXPECT_EQ(RunSampleCase(tested->runtime.get(), tested->kernels, i), absl::OkStatus());
  }
}

}  // namespace
}  // namespace baton
