#include "kernels/device/cuda/cuda_runtime.h"

#include <cstdlib>
#include <iostream>
#include <string>

#include "gmock/gmock.h"
#include "kernels/device/conformance/device_runtime_conformance.h"

#ifdef BATON_HAVE_CUDA
#include "kernels/device/cuda/cublas_lt.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/cuda/cuda_status.h"
#endif

namespace baton {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

DeviceRuntimeParam Cuda() {
  DeviceRuntimeParam param;
  param.name = "cuda";
  param.create = [](uint64_t) { return CreateCudaRuntime(0); };
#ifdef BATON_HAVE_CUDA
  param.add = &cuda_kernels::kAdd;
#endif
  return param;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceRuntimeConformanceTest, testing::Values(Cuda()),
                         testing::PrintToStringParamName());

TEST(CudaRuntimeTest, WithoutTheDeviceItSaysWhy) {
  const absl::Status status = CreateCudaRuntime(1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AnyOf(HasSubstr("built without CUDA"), HasSubstr("no NVIDIA driver is on this machine"),
            HasSubstr("cudaGetDeviceCount: cudaError"), HasSubstr("device 1000 of ")));
}

TEST(CudaRuntimeTest, ADriverThatIsTooOldIsNotAMachineWithoutAGpu) {
#ifndef BATON_HAVE_CUDA
  GTEST_SKIP() << "built without CUDA";
#else
  EXPECT_TRUE(CudaDeviceCountStatus(cudaSuccess, 13000).ok());
  for (const absl::Status& missing : {CudaDeviceCountStatus(cudaErrorNoDevice, 13000),
                                      CudaDeviceCountStatus(cudaErrorInsufficientDriver, 0)}) {
    EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition) << missing;
  }
  EXPECT_THAT(std::string(CudaDeviceCountStatus(cudaErrorInsufficientDriver, 0).message()),
              testing::AllOf(HasSubstr("no NVIDIA driver is on this machine"),
                             testing::Not(HasSubstr("nsufficient"))));
  const absl::Status old = CudaDeviceCountStatus(cudaErrorInsufficientDriver, 11040);
  EXPECT_EQ(old.code(), absl::StatusCode::kInternal) << old;
  EXPECT_THAT(std::string(old.message()),
              testing::AllOf(HasSubstr("cudaErrorInsufficientDriver"),
                             HasSubstr("the driver is made for CUDA 11.4, this program for ")));
  const absl::Status other = CudaDeviceCountStatus(cudaErrorSystemNotReady, 13000);
  EXPECT_EQ(other.code(), absl::StatusCode::kInternal) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("cudaErrorSystemNotReady"));
#endif
}

// Runs in its own process: after an error that ends CUDA, the process cannot use CUDA any more.
TEST(CudaRuntimeDeathTest, ErrorsThatEndCudaAreToldAtOnceAndOnce) {
#ifndef BATON_HAVE_CUDA
  GTEST_SKIP() << "built without CUDA";
#else
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [] {
    const auto hear = [](const absl::Status& why) {
      std::cerr << "heard " << why.message() << ";";
    };
    OnCudaFailure(hear);
    for (const cudaError_t error :
         {cudaSuccess, cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorNotReady,
          cudaErrorStreamCaptureUnsupported, cudaErrorLaunchOutOfResources}) {
      CudaStatus(error, "a call").IgnoreError();
    }
    CudaStatusOfOthers(cudaErrorUnknown, "cudaIpcOpenMemHandle").IgnoreError();
    CudaStatus(cudaErrorIllegalAddress, "cudaStreamSynchronize").IgnoreError();
    CudaStatus(cudaErrorECCUncorrectable, "cudaEventQuery").IgnoreError();
    std::cerr << "again ";
    OnCudaFailure(hear);  // CUDA has already failed, so this calls the handler
    OnCudaFailure(nullptr);
    std::exit(0);
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(0),
              "^heard cudaStreamSynchronize: cudaErrorIllegalAddress[^;]*;again "
              "heard cudaStreamSynchronize: cudaErrorIllegalAddress[^;]*;$");
#endif
}

TEST(CudaRuntimeTest, FindsAllItNeedsInCublasLt) {
#ifndef BATON_HAVE_CUDA
  GTEST_SKIP() << "built without CUDA";
#else
  const auto lt = CublasLt::Load();
  if (absl::IsFailedPrecondition(lt.status()) &&
      lt.status().message().find("has no") == std::string::npos) {
    GTEST_SKIP() << lt.status().message();
  }
  ASSERT_TRUE(lt.ok()) << lt.status();
  EXPECT_EQ((*lt)->GetVersion() / 10000, size_t{CUBLAS_VER_MAJOR});
  const absl::Status status = (*lt)->Status(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cublasLtMatmul: "));
#endif
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (baton::IsIpcPeer(argc, argv)) return baton::RunIpcPeer(baton::Cuda());
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
