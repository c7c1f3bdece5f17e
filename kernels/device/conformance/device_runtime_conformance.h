#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/device/conformance/conformance_kernels.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Parameters of the suite: one runtime.
struct DeviceRuntimeParam {
  std::string name;
  // Creates the runtime. The seed decides what a device leaves open, for example the order of
  // independent work. FailedPrecondition means that this machine has no such device; the tests are
  // then skipped.
  std::function<absl::StatusOr<std::unique_ptr<DeviceRuntime>>(uint64_t seed)> create;
  // The kernel kAdd of conformance_kernels.h, as compiled for this runtime.
  const Kernel* add = nullptr;
  // True if a stream may wait for an imported event after the exporting process has ended. CUDA's
  // documentation does not say whether such a wait is allowed.
  bool events_outlive_makers = false;
};

inline std::ostream& operator<<(std::ostream& out, const DeviceRuntimeParam& param) {
  return out << param.name;
}

// Tests that every runtime must pass. They are in device_*_conformance.cc, which are compiled into
// the test binary of each runtime. That binary contains INSTANTIATE_TEST_SUITE_P and a main that
// begins with
//   if (IsIpcPeer(argc, argv)) return RunIpcPeer(param);
// because the tests of IPC start the binary once more as the other process.
class DeviceRuntimeConformanceTest : public testing::TestWithParam<DeviceRuntimeParam> {
 protected:
  void SetUp() override {
    auto runtime = GetParam().create(1);
    if (absl::IsFailedPrecondition(runtime.status())) GTEST_SKIP() << runtime.status().message();
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    stream_ = Stream();
  }
  void TearDown() override {
    if (runtime_ == nullptr) return;
    stream_.reset();
    for (std::byte* memory : device_) runtime_->Free(memory);
    for (std::byte* memory : pinned_) runtime_->FreePinned(memory);
  }

  std::unique_ptr<DeviceStream> Stream(StreamKind kind = StreamKind::kCompute) {
    auto stream = runtime_->CreateStream(kind);
    EXPECT_TRUE(stream.ok()) << stream.status();
    return *std::move(stream);
  }
  std::unique_ptr<DeviceEvent> Event(bool interprocess = false) {
    auto event = runtime_->CreateEvent(interprocess);
    EXPECT_TRUE(event.ok()) << event.status();
    return *std::move(event);
  }
  // Allocates memory that is freed at the end of the test.
  template <typename T>
  T* Device(size_t count, bool interprocess = false) {
    auto memory = runtime_->Allocate(count * sizeof(T), interprocess);
    EXPECT_TRUE(memory.ok()) << memory.status();
    device_.push_back(*memory);
    return reinterpret_cast<T*>(*memory);
  }
  template <typename T>
  T* Pinned(size_t count) {
    auto memory = runtime_->AllocatePinned(count * sizeof(T));
    EXPECT_TRUE(memory.ok()) << memory.status();
    pinned_.push_back(*memory);
    return reinterpret_cast<T*>(*memory);
  }
  template <typename T>
  T* Upload(const std::vector<T>& values, bool interprocess = false) {
    T* const memory = Device<T>(values.size(), interprocess);
    Ok(runtime_->Copy(memory, values.data(), values.size() * sizeof(T), *stream_));
    Ok(runtime_->Synchronize(*stream_));
    return memory;
  }
  template <typename T>
  std::vector<T> Download(const T* memory, size_t count) {
    std::vector<T> values(count);
    Ok(runtime_->Copy(values.data(), memory, count * sizeof(T), *stream_));
    return values;
  }
  void Add(uint32_t* to, const uint32_t* from, uint32_t value, int count, DeviceStream& stream) {
    LaunchShape shape;
    shape.threads = kAddThreads;
    shape.grid_x = (count + kAddThreads - 1) / kAddThreads;
    Ok(runtime_->Launch(*GetParam().add, shape, AddParams{to, from, value, count}, stream));
  }
  static void Ok(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

  std::unique_ptr<DeviceRuntime> runtime_;
  std::unique_ptr<DeviceStream> stream_;

 private:
  std::vector<std::byte*> device_, pinned_;
};

// IsIpcPeer returns true if this process was started as the other process of an IPC test.
// RunIpcPeer is the main program of that process.
bool IsIpcPeer(int argc, char** argv);
int RunIpcPeer(const DeviceRuntimeParam& param);

}  // namespace baton
