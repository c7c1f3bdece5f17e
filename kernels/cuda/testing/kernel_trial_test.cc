#include "kernels/cuda/testing/kernel_trial.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_cases.h"
#include "kernels/device/emulated/emulated_runtime.h"

namespace baton {
namespace {

using testing::HasSubstr;

// Returns kernels on an emulated device. As on a GPU, the host can't access the device's memory.
TestedKernels OnADevice() {
  return {EmulatedKernels(), CreateEmulatedRuntime({.memory_bytes = size_t{64} << 20}).value()};
}

TEST(KernelTrialTest, CasesRunInTheMemoryOfADeviceAsWell) {
  const TestedKernels tested = OnADevice();
  const size_t free = tested.runtime->FreeBytes().value();
  EXPECT_EQ(RunCases(EmbeddingCase(), tested), absl::OkStatus());
  EXPECT_EQ(RunCases(RopeWriteKvCase(), tested), absl::OkStatus());
  KernelCase split = SplitAttentionCase();
  split.cases = 3;
  EXPECT_EQ(RunCases(split, tested), absl::OkStatus());
  EXPECT_EQ(tested.runtime->FreeBytes().value(), free);
}

TEST(KernelTrialTest, WhatADeviceWroteIsCompared) {
  const TestedKernels tested = OnADevice();
  // `out` holds one row of three elements; a second row would be outside of it.
  const auto run = [&](int rows_of_kernel, int32_t token_of_reference) {
    KernelTrial trial(1, &tested);
    ReferenceMemory* const table = trial.Memory(DType::kBF16, 6);
    for (int i = 0; i < 6; ++i) table->Set(i, static_cast<float>(i));
    ReferenceMemory* const tokens = trial.Array<int32_t>({0, token_of_reference});
    ReferenceMemory* const out = trial.Memory(DType::kBF16, 3, 0, /*is_output=*/true);
    const auto params = [&](Side side, int rows) {
      return EmbeddingParams{.table = table->at(side),
                             .tokens = reinterpret_cast<int32_t*>(tokens->at(side)) +
                                       (side == Side::kReference ? 1 : 0),
                             .out = out->at(side),
                             .out_stride = 3,
                             .rows = rows,
                             .hidden = 3};
    };
    trial.Run(trial.kernels().embedding, params(Side::kKernel, rows_of_kernel),
              params(Side::kReference, 1));
    trial.Check("embedding", 0, 0);
    return trial.status();
  };
  EXPECT_EQ(run(1, 0), absl::OkStatus());
  EXPECT_THAT(std::string(run(1, 1).message()), HasSubstr("element 0 is 0, its reference's 3"));
  EXPECT_THAT(std::string(run(2, 0).message()), HasSubstr("outside"));
}

}  // namespace
}  // namespace baton
