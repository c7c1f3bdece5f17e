#include "kernels/cuda/device_buffer.h"

#include "gtest/gtest.h"
#include "kernels/device/emulated/emulated_runtime.h"

namespace baton {
namespace {

class DeviceBufferTest : public testing::Test {
 protected:
  size_t Free() { return *runtime_->FreeBytes(); }

  std::unique_ptr<DeviceRuntime> runtime_ =
      CreateEmulatedRuntime({.memory_bytes = size_t{1} << 20}).value();
  const size_t all_ = Free();
};

TEST_F(DeviceBufferTest, ACaptureThatRefusesMoreLeavesWhatThereWas) {
  {
    const auto stream = *runtime_->CreateStream();
    DeviceBuffer buffer(runtime_.get());
    std::byte* const before = *buffer.AtLeast(1000);
    ASSERT_TRUE(runtime_->BeginCapture(*stream).ok());
    EXPECT_EQ(buffer.AtLeast(5000).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_FALSE(runtime_->EndCapture(*stream).ok());
    EXPECT_EQ(buffer.data(), before);
    EXPECT_EQ(*buffer.AtLeast(1000), before);
    EXPECT_TRUE(buffer.AtLeast(5000).ok());
  }
  EXPECT_EQ(Free(), all_) << "something was lost";
}

TEST_F(DeviceBufferTest, GrowsWhereThereIsNoRoomForBoth) {
  {
    DeviceBuffer buffer(runtime_.get());
    ASSERT_TRUE(buffer.AtLeast(400 << 10).ok());
    EXPECT_TRUE(buffer.AtLeast(800 << 10).ok());
    EXPECT_EQ(buffer.AtLeast(2 << 20).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(Free(), all_);
  }
  EXPECT_EQ(Free(), all_);
}

}  // namespace
}  // namespace baton
