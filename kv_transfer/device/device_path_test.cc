#include "kv_transfer/device/device_path.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/scratch_folder.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kv_transfer/device/device_transport.h"
#include "kv_transfer/testing/device_reading_transport.h"
#include "kv_transfer/testing/inprocess_transport.h"
#include "kv_transfer/transport/ucx_devices.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {
namespace {

using testing::HasSubstr;

std::unique_ptr<DeviceRuntime> Device(uint64_t seed) {
  return CreateEmulatedRuntime({.seed = seed, .memory_bytes = 16 << 20}).value();
}

TEST(DevicePathTest, TheFirstWayThatThereIsIsTaken) {
  const auto device = Device(1);
  DeviceReader reader{device.get(), 7, "ucx auto", absl::OkStatus()};
  DevicePoolKey key;
  key.node = 7;
  key.pool = 3;
  key.bytes = 4096;
  key.handle = "no handle";
  key.direct = "their key";
  auto pool = OpenDevicePool(key, reader, DevicePath::kAuto);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->path, DevicePath::kDirect);
  EXPECT_EQ(pool->direct, "their key");
  EXPECT_EQ(pool->index, 3u);
  EXPECT_EQ(pool->bytes, 4096u);
  EXPECT_THAT(pool->why, HasSubstr("not by cuda ipc: "));

  key.node = 8;
  pool = OpenDevicePool(key, reader, DevicePath::kAuto);
  EXPECT_EQ(pool->path, DevicePath::kDirect);
  EXPECT_EQ(pool->why, "not by cuda ipc: the pool is on another node");

  key.direct.clear();
  pool = OpenDevicePool(key, reader, DevicePath::kAuto);
  EXPECT_EQ(pool->path, DevicePath::kBounced);
  EXPECT_EQ(
      pool->why,
      "not by cuda ipc: the pool is on another node; not by ucx auto: the owner has not registered "
      "its pool");

  key.direct = "their key";
  reader.reads_devices = absl::FailedPreconditionError("no cuda_copy");
  pool = OpenDevicePool(key, reader, DevicePath::kAuto);
  EXPECT_EQ(pool->path, DevicePath::kBounced);
  EXPECT_THAT(pool->why, HasSubstr("not by ucx auto: no cuda_copy"));
}

TEST(DevicePathTest, AWayThatIsAskedForIsTheOnlyOne) {
  const auto device = Device(1);
  const DeviceReader reader{device.get(), 7, "ucx auto", absl::FailedPreconditionError("no RDMA")};
  DevicePoolKey key;
  key.node = 8;
  key.handle = "no handle";
  EXPECT_EQ(OpenDevicePool(key, reader, DevicePath::kBounced)->path, DevicePath::kBounced);
  for (const auto& [path, words] :
       {std::pair(DevicePath::kIpc, "not by cuda ipc: the pool is on another node"),
        {DevicePath::kDirect, "not by ucx auto: no RDMA"}}) {
    const absl::Status status = OpenDevicePool(key, reader, path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
}

TEST(DevicePathTest, NamesAreThoseOfTheFlag) {
  EXPECT_EQ(*DevicePathFromName("auto"), DevicePath::kAuto);
  EXPECT_EQ(*DevicePathFromName("ipc"), DevicePath::kIpc);
  EXPECT_EQ(*DevicePathFromName("direct"), DevicePath::kDirect);
  EXPECT_EQ(*DevicePathFromName("bounced"), DevicePath::kBounced);
  const absl::Status status = DevicePathFromName("nvlink").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'nvlink'"));
}

TEST(DevicePathTest, ANodeThatCannotTellWhichItIsIsNobodysNeighbour) {
  const ScratchFolder folder;
  const std::string file = folder.Write("boot_id", "aaaa\n");
  const uint64_t a = ThisNode(file);
  EXPECT_EQ(ThisNode(file), a);
  folder.Write("boot_id", "bbbb\n");
  EXPECT_NE(ThisNode(file), a);
  folder.Write("boot_id", "");
  EXPECT_NE(ThisNode(file), ThisNode(file));
  std::filesystem::remove(file);
  EXPECT_NE(ThisNode(file), ThisNode(file));
  EXPECT_EQ(ThisNode(), ThisNode());
}

TEST(DevicePathTest, KeysComeBackAsTheyWereAndBentOnesAreRefused) {
  DevicePoolKey key;
  key.node = 1;
  key.device = "GPU-1";
  key.pool = 2;
  key.bytes = 3;
  key.handle = "handle";
  key.direct = "direct";
  const std::string bytes = EncodeDevicePoolKey(key);
  EXPECT_TRUE(IsDevicePoolKey(bytes));
  const auto back = DecodeDevicePoolKey(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->device, "GPU-1");
  EXPECT_EQ(back->handle, "handle");
  EXPECT_EQ(back->direct, "direct");
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string bent = bytes;
    bent[i] ^= 4;
    EXPECT_FALSE(DecodeDevicePoolKey(bent).ok()) << i;
    EXPECT_FALSE(DecodeDevicePoolKey(bytes.substr(0, i)).ok()) << i;
  }
}

// Two device transports on two devices of one process, each on top of a DeviceReadingTransport. The
// `options` of MakeEnd say whether this lower transport fails to register or to read device memory.
class DirectReadsTest : public testing::Test {
 protected:
  struct End {
    std::unique_ptr<DeviceRuntime> device;
    DeviceReadingTransport* below = nullptr;
    std::unique_ptr<Transport> transport;
  };
  End MakeEnd(uint64_t seed, const DeviceReadingTransport::Options& options, DevicePath path) {
    End end;
    end.device = Device(seed);
    auto below = std::make_unique<DeviceReadingTransport>(fabric_.CreateTransport(),
                                                          end.device.get(), registry_, options);
    end.below = below.get();
    end.transport = CreateDeviceTransport(std::move(below), end.device.get(), path).value();
    return end;
  }
  // Makes several reads from the owner's pool into the reader's pool. Returns the first error.
  absl::Status ReadSome(End& reader, End& owner) {
    constexpr size_t kBytes = 3 << 20;
    const auto theirs = owner.transport->AllocatePool(kBytes);
    const auto ours = reader.transport->AllocatePool(kBytes);
    RETURN_IF_ERROR(theirs.status());
    RETURN_IF_ERROR(ours.status());
    std::vector<std::byte> content(kBytes), got(kBytes);
    for (size_t i = 0; i < kBytes; ++i) content[i] = std::byte(i * 31 + (i >> 8));
    const auto stream = owner.device->CreateStream().value();
    EXPECT_TRUE(owner.device->Copy(theirs->data, content.data(), kBytes, *stream).ok());
    EXPECT_TRUE(owner.device->Synchronize(*stream).ok());
    peer_ = reader.transport->Connect(owner.transport->address()).value();
    absl::Status status;
    int ended = 0;
    for (size_t i = 0; i < 3; ++i) {
      reader.transport->Read(
          {peer_, theirs->key, i << 20, ours->data + (i << 20), 1 << 20, [&](absl::Status read) {
             status.Update(read);
             ++ended;
           }});
    }
    for (int turns = 0; ended < 3 && turns < 100000; ++turns) {
      reader.transport->Progress();
      owner.transport->Progress();
    }
    EXPECT_EQ(ended, 3);
    RETURN_IF_ERROR(status);
    const auto back = reader.device->CreateStream().value();
    EXPECT_TRUE(reader.device->Copy(got.data(), ours->data, kBytes, *back).ok());
    EXPECT_EQ(got, content);
    return status;
  }

  InProcessFabric fabric_{{.single_threaded = true}};
  std::shared_ptr<DeviceReadingTransport::Registry> registry_ =
      std::make_shared<DeviceReadingTransport::Registry>();
  PeerId peer_ = -1;
};

TEST_F(DirectReadsTest, AreTakenWhereBothSidesHaveRegistered) {
  End reader = MakeEnd(1, {}, DevicePath::kAuto), owner = MakeEnd(2, {}, DevicePath::kAuto);
  EXPECT_EQ(ReadSome(reader, owner), absl::OkStatus());
  EXPECT_EQ(reader.below->device_reads(), 3);
  EXPECT_EQ(*reader.transport->Link(peer_), "rdma");
}

TEST_F(DirectReadsTest, AreBouncedWhereOneSideCannot) {
  const DeviceReadingTransport::Options cannot = {.registering =
                                                      absl::FailedPreconditionError("not here")};
  for (const bool reader_cannot : {false, true}) {
    using Options = DeviceReadingTransport::Options;
    End reader = MakeEnd(1, reader_cannot ? cannot : Options{}, DevicePath::kAuto);
    End owner = MakeEnd(2, reader_cannot ? Options{} : cannot, DevicePath::kAuto);
    EXPECT_EQ(ReadSome(reader, owner), absl::OkStatus());
    EXPECT_EQ(reader.below->device_reads(), 0);
    EXPECT_EQ(*reader.transport->Link(peer_), "inproc");
  }
}

TEST_F(DirectReadsTest, ThatTurnOutNotToBePossibleAreBounced) {
  const DeviceReadingTransport::Options cannot = {.reading =
                                                      absl::UnimplementedError("unsupported")};
  End reader = MakeEnd(1, cannot, DevicePath::kAuto), owner = MakeEnd(2, {}, DevicePath::kAuto);
  EXPECT_EQ(ReadSome(reader, owner), absl::OkStatus());
  EXPECT_GE(reader.below->device_reads(), 1);
  reader.transport->Disconnect(peer_);
  const int before = reader.below->device_reads();
  EXPECT_EQ(ReadSome(reader, owner), absl::OkStatus());
  EXPECT_GT(reader.below->device_reads(), before) << "asked again with every connection";

  End strict = MakeEnd(3, cannot, DevicePath::kDirect);
  EXPECT_TRUE(absl::IsUnimplemented(ReadSome(strict, owner)));
}

TEST_F(DirectReadsTest, ThatFailOtherwiseFail) {
  const DeviceReadingTransport::Options gone = {.reading = absl::UnavailableError("gone")};
  End reader = MakeEnd(1, gone, DevicePath::kAuto), owner = MakeEnd(2, {}, DevicePath::kAuto);
  EXPECT_TRUE(absl::IsUnavailable(ReadSome(reader, owner)));
}

TEST_F(DirectReadsTest, ThatAreAskedForAndImpossibleSayWhy) {
  const DeviceReadingTransport::Options cannot = {.registering =
                                                      absl::FailedPreconditionError("not here")};
  End reader = MakeEnd(1, cannot, DevicePath::kDirect), owner = MakeEnd(2, {}, DevicePath::kAuto);
  EXPECT_EQ(ReadSome(reader, owner), absl::FailedPreconditionError("not here"));
  End bounced = MakeEnd(3, {}, DevicePath::kBounced);
  EXPECT_EQ(ReadSome(bounced, owner), absl::OkStatus());
  EXPECT_EQ(bounced.below->device_reads(), 0);
}

TEST(UcxDevicesTest, WhatIsMissingIsTold) {
  const std::vector<std::string> plain = {"sysv", "posix", "tcp"};
  absl::Status status = UcxReadsDevices(UCS_BIT(UCS_MEMORY_TYPE_HOST), plain);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("can't use the memory of CUDA"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("sysv, posix, tcp"));
  const uint64_t cuda = UCS_BIT(UCS_MEMORY_TYPE_HOST) | UCS_BIT(UCS_MEMORY_TYPE_CUDA);
  status = UcxReadsDevices(cuda, {"tcp", "cuda_copy", "cuda_ipc"});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rc and dc"));
  EXPECT_TRUE(UcxReadsDevices(cuda, {"tcp", "cuda_copy", "rc_mlx5"}).ok());
  EXPECT_TRUE(UcxReadsDevices(cuda, {"dc_mlx5"}).ok());
}

#if !defined(__SANITIZE_THREAD__)  // UCX is not built for the thread sanitizer
TEST(UcxDevicesTest, AUcxWithoutCudaSaysSoAndTheOtherWaysAreLeft) {
  if (!UcxDeviceTransports().empty()) GTEST_SKIP() << "this UCX has cuda_copy";
  const auto device = Device(1);
  std::byte* const memory = device->Allocate(4096).value();
  const auto ucx = CreateUcxTransport({.tls = "auto", .device_memory = true}).value();
  const absl::Status status = ucx->RegisterDeviceMemory(memory, 4096).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("can't use the memory of CUDA devices"), HasSubstr("tcp"),
                             HasSubstr("sysv")));
  device->Free(memory);
}
#endif

}  // namespace
}  // namespace baton
