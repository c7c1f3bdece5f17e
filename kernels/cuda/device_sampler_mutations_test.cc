#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_sampler_cases.h"
#include "kernels/cuda/simt/mutations.h"

namespace baton {
namespace {

// The cases fail for every mutation that is written in the kernels.
TEST(DeviceSamplerMutationsTest, AllAreCaught) {
  const simt::MutationReport report = simt::TryMutations(
      [](const simt::SimtOptions& options) {
        return RunDrawCases({.seed = options.seed,
                             .check = true,
                             .mutation = options.mutation,
                             .mutations_seen = options.mutations_seen});
      },
      /*seeds=*/1);
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_THAT(report.missed, testing::IsEmpty());
  EXPECT_EQ(report.caught.size(), 43u);
}

}  // namespace
}  // namespace baton
