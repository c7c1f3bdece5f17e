#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/kv_checksum.h"
#include "kernels/device/emulated/emulated_event.h"
#include "kernels/device/emulated/emulated_handle.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kernels/device/runtime/ipc_handle.h"
#include "kv_transfer/device/device_transport.h"
#include "kv_transfer/device_checksums.h"
#include "kv_transfer/kv_test_world.h"
#include "kv_transfer/testing/inprocess_transport.h"

namespace baton {
namespace {

constexpr KvLayout kDeviceLayout{
    .layers = 3, .kv_heads = 2, .head_dim = 32, .block_tokens = 8, .type = DType::kBF16};
constexpr int kBlocks = 32;

// The KV pool of one worker in a device's memory, with the objects that publish or pull its KV.
struct DeviceWorker {
  DeviceWorker(InProcessFabric* fabric, bool reads, WorkerEpoch epoch, uint64_t seed)
      : device(CreateEmulatedRuntime({.seed = seed, .memory_bytes = 64 << 20}).value()),
        compute(device->CreateStream().value()),
        transport(CreateDeviceTransport(fabric->CreateTransport(), device.get()).value()) {
    KvPlane::Options options;
    options.epoch = epoch;
    options.numerics_id = "test";
    options.layout = kDeviceLayout;
    options.blocks = kBlocks;
    options.proves_links = reads;
    options.device = device.get();
    options.checksum_kernel = EmulatedKernels().kv_checksum;
    plane = KvPlane::Create(transport.get(), options).value();
    blocks = std::make_unique<LifoBlocks>(plane.get());
    if (reads) {
      puller = KvPuller::Create(plane.get(), {});
    } else {
      publisher = KvPublisher::Create(plane.get(), {.owner = "owner"});
    }
  }
  KvPeer AsPeer() const { return {plane->options().epoch, "worker", plane->address()}; }

  std::unique_ptr<DeviceRuntime> device;
  std::unique_ptr<DeviceStream> compute;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<KvPlane> plane;
  std::unique_ptr<LifoBlocks> blocks;
  std::unique_ptr<KvPublisher> publisher;
  std::unique_ptr<KvPuller> puller;
};

// An event that another process has recorded. The event completes when the test calls Open.
class Gate {
 public:
  Gate() {
    int handle[2], open[2];
    EXPECT_EQ(pipe(handle), 0);
    EXPECT_EQ(pipe(open), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(open[1]);
      const auto event = SharedEvent::Create().value();
      const uint32_t recording = event->BeginRecording().value();
      EmulatedHandle body;
      body.process = getpid();
      body.file = event->file();
      body.inode = event->inode();
      const std::string sealed = SealHandle(kEmulatedMaker, IpcKind::kEvent, body);
      char word;
      if (write(handle[1], sealed.data(), sealed.size()) < 0 || read(open[0], &word, 1) < 1) {
        _exit(1);
      }
      event->EndRecording(recording);
      _exit(read(open[0], &word, 1) != 0);
    }
    close(handle[1]);
    close(open[0]);
    open_ = open[1];
    char bytes[256];
    const ssize_t got = read(handle[0], bytes, sizeof(bytes));
    EXPECT_GT(got, 0);
    handle_.assign(bytes, std::max<ssize_t>(got, 0));
    close(handle[0]);
  }
  ~Gate() {
    close(open_);
    waitpid(pid_, nullptr, 0);
  }
  const std::string& handle() const { return handle_; }
  void Open() { EXPECT_EQ(write(open_, "o", 1), 1); }

 private:
  pid_t pid_;
  int open_;
  std::string handle_;
};

// One owner and one reader, driven by one thread.
class HandoverWorld {
 protected:
  explicit HandoverWorld(uint64_t seed)
      : owner_(&fabric_, false, 77, 2 * seed), reader_(&fabric_, true, 88, 2 * seed + 1) {
    owner_.plane->SetPeers({reader_.AsPeer()});
    reader_.plane->SetPeers({owner_.AsPeer()});
    EXPECT_TRUE(Until([&] { return reader_.plane->links().size() == 1; }));
  }
  bool Until(const std::function<bool()>& done) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (!done()) {
      const absl::Time now = absl::Now();
      if (now > end) return false;
      owner_.plane->RunOnce(now);
      reader_.plane->RunOnce(now);
    }
    return true;
  }
  // Enqueues a write of a slice on the owner's stream, as a step does. The bytes are in the pool
  // once that write has run.
  void WriteLate(BlockId block, int layer, uint64_t content) {
    pinned_.push_back(owner_.device->AllocatePinned(kDeviceLayout.LayerBytes()).value());
    std::memcpy(pinned_.back(), SliceContent(kDeviceLayout, layer, content).data(),
                kDeviceLayout.LayerBytes());
    EXPECT_TRUE(owner_.device
                    ->Copy(owner_.plane->pool() + kDeviceLayout.LayerOffset(block, layer),
                           pinned_.back(), kDeviceLayout.LayerBytes(), *owner_.compute)
                    .ok());
  }
  std::shared_ptr<DeviceEvent> Written() {
    std::shared_ptr<DeviceEvent> event = owner_.device->CreateEvent().value();
    EXPECT_TRUE(owner_.device->Record(*event, *owner_.compute).ok());
    return event;
  }
  uint64_t Start(const KvTicket& ticket, const std::vector<BlockId>& blocks) {
    result_.reset();
    return reader_.puller->Start(ticket, ++attempt_, blocks,
                                 [this](PullResult result) { result_ = std::move(result); });
  }
  ~HandoverWorld() {
    for (std::byte* memory : pinned_) owner_.device->FreePinned(memory);
  }

  InProcessFabric fabric_{{.single_threaded = true}};
  DeviceWorker owner_, reader_;
  std::vector<std::byte*> pinned_;
  uint32_t attempt_ = 0;
  std::optional<PullResult> result_;
};

class DeviceHandoverTest : public testing::TestWithParam<uint64_t>, protected HandoverWorld {
 protected:
  DeviceHandoverTest() : HandoverWorld(GetParam()) {}
};

TEST_P(DeviceHandoverTest, ALayerIsPulledWhileTheNextOneHasNotRun) {
  Gate gate;
  const auto closed = owner_.device->ImportEvent(gate.handle()).value();
  const std::vector<BlockId> theirs = owner_.blocks->Take(1), ours = reader_.blocks->Take(1);
  const KvTicket ticket =
      owner_.publisher->Open(theirs, kDeviceLayout.block_tokens, [](absl::Status) {});
  Start(ticket, ours);
  for (int layer = 0; layer < kDeviceLayout.layers; ++layer) {
    if (layer == 1) {
      ASSERT_TRUE(owner_.device->WaitFor(*closed, *owner_.compute).ok());
    }
    WriteLate(theirs[0], layer, 100);
    owner_.publisher->Publish(ticket.handover_id, kDeviceLayout.block_tokens, layer + 1, Written());
  }
  owner_.publisher->Complete(ticket.handover_id, "first token");
  ASSERT_TRUE(Until([&] { return SliceIs(reader_.plane.get(), ours[0], 0, 100); }));
  for (int i = 0; i < 100; ++i) {
    owner_.plane->RunOnce(absl::Now());
    reader_.plane->RunOnce(absl::Now());
  }
  EXPECT_FALSE(result_.has_value());
  for (int layer = 1; layer < kDeviceLayout.layers; ++layer) {
    EXPECT_FALSE(SliceIs(owner_.plane.get(), theirs[0], layer, 100)) << layer;
    EXPECT_FALSE(SliceIs(reader_.plane.get(), ours[0], layer, 100)) << layer;
  }
  gate.Open();
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  for (int layer = 0; layer < kDeviceLayout.layers; ++layer) {
    EXPECT_TRUE(SliceIs(reader_.plane.get(), ours[0], layer, 100)) << layer;
  }
}

// Runs one hand-over. IsRight(true) publishes each layer with the event of the work that writes the
// layer. IsRight(false) leaves the events out, which is a mistake.
class OneHandover : HandoverWorld {
 public:
  explicit OneHandover(uint64_t seed) : HandoverWorld(seed) {}
  bool IsRight(bool with_events) {
    const std::vector<BlockId> theirs = owner_.blocks->Take(2), ours = reader_.blocks->Take(2);
    const int tokens = 2 * kDeviceLayout.block_tokens;
    const KvTicket ticket = owner_.publisher->Open(theirs, tokens, [](absl::Status) {});
    Start(ticket, ours);
    for (int layer = 0; layer < kDeviceLayout.layers; ++layer) {
      for (int i = 0; i < 2; ++i) WriteLate(theirs[i], layer, 100 + i);
      owner_.publisher->Publish(ticket.handover_id, tokens, layer + 1,
                                with_events ? Written() : nullptr);
      owner_.plane->RunOnce(absl::Now());
      reader_.plane->RunOnce(absl::Now());
    }
    EXPECT_TRUE(owner_.device->Synchronize(*owner_.compute).ok());  // waits for the end of the step
    owner_.publisher->Complete(ticket.handover_id, "");
    EXPECT_TRUE(Until([&] { return result_.has_value(); }));
    if (!result_->status.ok()) return false;
    for (int i = 0; i < 2; ++i) {
      for (int layer = 0; layer < kDeviceLayout.layers; ++layer) {
        if (!SliceIs(reader_.plane.get(), ours[i], layer, 100 + i)) return false;
      }
    }
    return true;
  }
};

TEST(DeviceHandoverOrderTest, WhatIsPublishedBeforeItsEventIsFoundOut) {
  constexpr int kSeeds = 20;
  int wrong = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    EXPECT_TRUE(OneHandover(seed).IsRight(true)) << "seed " << seed;
    wrong += !OneHandover(seed).IsRight(false);
  }
  RecordProperty("seeds_that_show_it", wrong);
  EXPECT_GE(wrong, kSeeds / 2);
}

TEST_P(DeviceHandoverTest, NothingIsNamedBeforeTheWorkThatWritesItHasRun) {
  const std::vector<BlockId> theirs = owner_.blocks->Take(4), ours = reader_.blocks->Take(4);
  std::optional<absl::Status> ended;
  const KvTicket ticket =
      owner_.publisher->Open(theirs, 4 * kDeviceLayout.block_tokens,
                             [&](absl::Status status) { ended = std::move(status); });
  Start(ticket, ours);
  // Two chunks of two blocks each. Every layer is published right after the calls that write it.
  for (int chunk = 0; chunk < 2; ++chunk) {
    for (int layer = 0; layer < kDeviceLayout.layers; ++layer) {
      for (int i = 2 * chunk; i < 2 * chunk + 2; ++i) WriteLate(theirs[i], layer, 100 + i);
      owner_.publisher->Publish(ticket.handover_id, 2 * (chunk + 1) * kDeviceLayout.block_tokens,
                                layer + 1, Written());
      owner_.plane->RunOnce(absl::Now());
      reader_.plane->RunOnce(absl::Now());
    }
  }
  owner_.publisher->Complete(ticket.handover_id, "first token");
  ASSERT_TRUE(Until([&] { return result_.has_value() && ended.has_value(); }));
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_TRUE(ended->ok()) << *ended;
  EXPECT_EQ(result_->payload, "first token");
  for (int i = 0; i < 4; ++i) {
    for (int layer = 0; layer < kDeviceLayout.layers; ++layer) {
      EXPECT_TRUE(SliceIs(reader_.plane.get(), ours[i], layer, 100 + i)) << i << ", " << layer;
    }
  }
}

TEST_P(DeviceHandoverTest, AnAbortWhileChecksumsAreTakenLeavesNoTraceOfThem) {
  const std::vector<BlockId> theirs = owner_.blocks->Take(2);
  const KvMeta meta = owner_.plane->meta();
  const auto sum = [&](int i) {
    uint64_t value = 0;
    std::memcpy(&value, owner_.plane->meta_data() + meta.ChecksumOffset(theirs[i], 0), 8);
    return value;
  };
  const KvTicket first =
      owner_.publisher->Open(theirs, 2 * kDeviceLayout.block_tokens, [](absl::Status) { FAIL(); });
  for (const BlockId block : theirs) {
    for (int layer = 0; layer < kDeviceLayout.layers; ++layer) WriteLate(block, layer, 1);
  }
  owner_.publisher->Publish(first.handover_id, 2 * kDeviceLayout.block_tokens, kDeviceLayout.layers,
                            Written());
  EXPECT_TRUE(owner_.publisher->Abort(first.handover_id).ok());
  owner_.blocks->Return(theirs);
  owner_.plane->checksums()->Finish();
  EXPECT_EQ(sum(0), 0u) << "it may be the next holder's by now";
  EXPECT_EQ(sum(1), 0u);
}

TEST_P(DeviceHandoverTest, APublisherThatEndsWaitsForItsChecksums) {
  const std::vector<BlockId> theirs = owner_.blocks->Take(2);
  const KvTicket ticket =
      owner_.publisher->Open(theirs, 2 * kDeviceLayout.block_tokens, [](absl::Status) { FAIL(); });
  owner_.publisher->Publish(ticket.handover_id, 2 * kDeviceLayout.block_tokens,
                            kDeviceLayout.layers, Written());
  owner_.publisher.reset();
  EXPECT_FALSE(owner_.plane->checksums()->busy());
}

TEST_P(DeviceHandoverTest, APullerThatEndsWaitsForWhatIsUnderWay) {
  for (int turns = 0; turns < 40; turns += 3) {
    const std::vector<BlockId> theirs = owner_.blocks->Take(4), ours = reader_.blocks->Take(4);
    const KvTicket ticket =
        owner_.publisher->Open(theirs, 4 * kDeviceLayout.block_tokens, [](absl::Status) {});
    owner_.publisher->Publish(ticket.handover_id, 4 * kDeviceLayout.block_tokens,
                              kDeviceLayout.layers);
    owner_.publisher->Complete(ticket.handover_id, "");
    Start(ticket, ours);
    for (int i = 0; i < turns && !result_.has_value(); ++i) {
      owner_.plane->RunOnce(absl::Now());
      reader_.plane->RunOnce(absl::Now());
    }
    reader_.puller.reset();
    ASSERT_TRUE(result_.has_value());
    EXPECT_TRUE(absl::IsCancelled(result_->status) || result_->status.ok()) << result_->status;
    EXPECT_FALSE(reader_.plane->checksums()->busy());
    EXPECT_TRUE(owner_.publisher->Abort(ticket.handover_id).ok());
    owner_.blocks->Return(theirs);
    reader_.blocks->Return(ours);
    reader_.puller = KvPuller::Create(reader_.plane.get(), {});
    ASSERT_TRUE(Until([&] { return reader_.plane->links().size() == 1; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeviceHandoverTest, testing::Range<uint64_t>(1, 9));

TEST(DeviceTransportTest, APeerWithoutADeviceIsRefusedByAddressAndByKey) {
  InProcessFabric fabric({.single_threaded = true});
  const auto device = CreateEmulatedRuntime({.memory_bytes = 16 << 20}).value();
  const auto on_device = CreateDeviceTransport(fabric.CreateTransport(), device.get()).value();
  const auto on_host = fabric.CreateTransport();
  EXPECT_TRUE(absl::IsInvalidArgument(on_device->Connect(on_host->address()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(on_host->Connect(on_device->address()).status()));

  const auto peer_device = CreateEmulatedRuntime({.memory_bytes = 16 << 20}).value();
  const auto peer = CreateDeviceTransport(fabric.CreateTransport(), peer_device.get()).value();
  const TransportMemory host = peer->Allocate(4096).value();
  const TransportMemory ours = on_device->AllocatePool(4096).value();
  const PeerId id = on_device->Connect(peer->address()).value();
  absl::Status status;
  on_device->Read({id, host.key, 0, ours.data, 4096, [&](absl::Status s) { status = s; }});
  on_device->Progress();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST(DeviceChecksumsTest, SlicesThatAreNoMultipleOf16BytesAreRefused) {
  const auto device = CreateEmulatedRuntime({.memory_bytes = 16 << 20}).value();
  const KvLayout odd{
      .layers = 1, .kv_heads = 1, .head_dim = 6, .block_tokens = 1, .type = DType::kBF16};
  const auto checksums =
      CreateDeviceKvChecksums(device.get(), EmulatedKernels().kv_checksum, nullptr, odd);
  ASSERT_TRUE(absl::IsInvalidArgument(checksums.status())) << checksums.status();
  EXPECT_TRUE(absl::StrContains(checksums.status().message(), "24 bytes")) << checksums.status();
}

TEST(DeviceChecksumsTest, ManyAskedForAtOnceAreReportedInOrderAndRight) {
  const auto device = CreateEmulatedRuntime({.seed = 3, .memory_bytes = 16 << 20}).value();
  const auto stream = device->CreateStream().value();
  const KvLayout layout{
      .layers = 2, .kv_heads = 1, .head_dim = 8, .block_tokens = 2, .type = DType::kBF16};
  const size_t bytes = 64 * layout.BlockBytes();
  std::vector<std::byte> content(bytes);
  for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>(i * 7 + i / 64);
  std::byte* const pool = device->Allocate(bytes).value();
  ASSERT_TRUE(device->Copy(pool, content.data(), bytes, *stream).ok());
  ASSERT_TRUE(device->Synchronize(*stream).ok());
  {
    const auto checksums =
        CreateDeviceKvChecksums(device.get(), EmulatedKernels().kv_checksum, pool, layout).value();
    int reported = 0;
    const std::vector<int> takes = {3, 0, kKvChecksumSlices + 1, 17 * kKvChecksumSlices, 0, 5};
    for (int take = 0; take < static_cast<int>(takes.size()); ++take) {
      // The call with 17 * kKvChecksumSlices slices needs more kernel launches than may be under
      // way at one time.
      std::vector<KvSlice> slices;
      for (int i = 0; i < takes[take]; ++i) {
        slices.push_back({.block = i % 64, .layer = i / 64 % 2, .seed = uint64_t{5} * i + take});
      }
      checksums->Take(std::move(slices), nullptr,
                      [&, take](const absl::Status& status, absl::Span<const KvSlice> taken) {
                        EXPECT_TRUE(status.ok()) << status;
                        EXPECT_EQ(reported++, take);
                        EXPECT_EQ(taken.size(), static_cast<size_t>(takes[take]));
                        for (const KvSlice& slice : taken) {
                          ASSERT_EQ(slice.checksum,
                                    PlainKvChecksum(content.data() + layout.LayerOffset(
                                                                         slice.block, slice.layer),
                                                    layout.LayerBytes() / 8, slice.seed));
                        }
                      });
      if (take % 3 == 1) checksums->Progress();
    }
    EXPECT_TRUE(checksums->busy());
    checksums->Finish();
    EXPECT_EQ(reported, static_cast<int>(takes.size()));
  }
  device->Free(pool);
}

}  // namespace
}  // namespace baton
