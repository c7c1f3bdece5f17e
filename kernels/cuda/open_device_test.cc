#include "kernels/cuda/open_device.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/open_emulated_device.h"
#include "kernels/cuda/test_device.h"

namespace baton {
namespace {

// Returns the parameters for the CUDA device, if there is one. If not, OpenDeviceTest says why.
std::vector<ConformanceParam> CudaParams() {
  std::vector<ConformanceParam> params;
  if (auto cuda = OpenCudaDevice(0); cuda.ok()) params.push_back(ParamOf("cuda", *std::move(cuda)));
  return params;
}

INSTANTIATE_TEST_SUITE_P(Cuda, BackendConformanceTest, testing::ValuesIn(CudaParams()),
                         [](const auto& info) { return info.param.name; });

TEST(OpenDeviceTest, CudaRunsHereOrSaysWhatIsMissing) {
  const auto device = OpenCudaDevice(0);
  if (!device.ok()) {
    EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
    GTEST_SKIP() << device.status().message();
  }
  EXPECT_FALSE(device->runtime->info().name.empty());
}

TEST(OpenDeviceTest, TheEmulatedDeviceHasTheMemoryThatItIsGiven) {
  const auto device = OpenEmulatedDevice(size_t{8} << 20);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->name, "cuda-emulated");
  EXPECT_EQ(device->runtime->Allocate(size_t{9} << 20).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(OpenDeviceTest, TheNodeHasEightEmulatedDevices) {
  EXPECT_EQ(OpenEmulatedDevice(size_t{1} << 20, 7)->runtime->info().id, "EMULATED-7");
  for (const int index : {-1, 8}) {
    const absl::Status status = OpenEmulatedDevice(size_t{1} << 20, index).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find(absl::StrCat("device ", index, " of 8")), std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace baton
