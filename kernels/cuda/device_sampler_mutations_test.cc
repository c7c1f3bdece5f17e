#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_sampler_cases.h"
#include "kernels/mutations/mutations.h"

namespace baton {
namespace {

// The cases must fail for every mutation of the sampling kernels and of the code that they use.
TEST(DeviceSamplerMutationsTest, AllAreCaught) {
  const mutations::MutationReport report = mutations::TryMutations(
      mutations::AllMutations(),
      [](uint64_t seed) { return RunSampleCase(static_cast<int>(seed)); }, kSampleCases);
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_THAT(report.missed, testing::IsEmpty());
  EXPECT_THAT(
      mutations::Without(mutations::OfList(mutations::AllMutations(), "device_sampler_mutations"),
                         report.caught),
      testing::IsEmpty());
}

}  // namespace
}  // namespace baton
