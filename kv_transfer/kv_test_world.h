#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kv_transfer/kv_plane.h"
#include "kv_transfer/kv_publisher.h"
#include "kv_transfer/kv_puller.h"
#include "kv_transfer/testing/faulty_transport.h"
#include "kv_transfer/testing/inprocess_transport.h"

namespace baton {

// Layout, pool size and epoch of the KV that kv_test_owner serves.
constexpr KvLayout kProcessLayout{
    .layers = 4, .kv_heads = 4, .head_dim = 64, .block_tokens = 16};  // slices of 32 KiB
constexpr int kProcessBlocks = 128;
constexpr WorkerEpoch kProcessOwnerEpoch = 77;

// A block pool that reuses the block returned last, so that a block returned too early is
// overwritten soon.
class LifoBlocks {
 public:
  explicit LifoBlocks(KvPlane* plane) : plane_(plane) {
    for (BlockId block = plane->options().blocks - 1; block >= 0; --block) free_.push_back(block);
  }
  size_t free() const { return free_.size(); }
  std::vector<BlockId> Take(int n) {
    EXPECT_LE(static_cast<size_t>(n), free_.size());
    std::vector<BlockId> taken(free_.rbegin(), free_.rbegin() + n);
    free_.resize(free_.size() - n);
    for (const BlockId block : taken) plane_->generations()[block].fetch_add(1);
    return taken;
  }
  void Return(const std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) {
      plane_->generations()[block].fetch_add(1);
      free_.push_back(block);
    }
  }

 private:
  KvPlane* const plane_;
  std::vector<BlockId> free_;
};

// The KV pool of one worker, with the objects that publish or pull its KV over a faulty in-process
// transport, in virtual time.
struct TestWorker {
  TestWorker(InProcessFabric* fabric, bool reads, WorkerEpoch epoch, KvLayout layout, int blocks,
             uint64_t seed, const absl::Time* now, KvPublisher::Options publishing = {},
             KvPuller::Options pulling = {})
      : inner(fabric->CreateTransport()),
        transport(std::make_unique<FaultyTransport>(inner.get(), seed, [now] { return *now; })) {
    KvPlane::Options options;
    options.epoch = epoch;
    options.numerics_id = "test";
    options.layout = layout;
    options.blocks = blocks;
    options.proves_links = reads;
    plane = KvPlane::Create(transport.get(), options).value();
    pool = std::make_unique<LifoBlocks>(plane.get());
    publishing.owner = "worker" + std::to_string(epoch);
    if (reads) {
      puller = KvPuller::Create(plane.get(), pulling);
    } else {
      publisher = KvPublisher::Create(plane.get(), publishing);
    }
  }
  KvPeer AsPeer() const {
    return {plane->options().epoch, "worker" + std::to_string(plane->options().epoch),
            plane->address()};
  }

  std::unique_ptr<Transport> inner;
  std::unique_ptr<FaultyTransport> transport;
  std::unique_ptr<KvPlane> plane;
  std::unique_ptr<LifoBlocks> pool;
  std::unique_ptr<KvPublisher> publisher;
  std::unique_ptr<KvPuller> puller;
};

// Copies between host memory and a pool, which may lie in device memory, and waits for the copy.
inline void CopyTest(const KvPlane& plane, void* to, const void* from, size_t bytes) {
  DeviceRuntime* const device = plane.options().device;
  if (device == nullptr) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto stream = device->CreateStream(StreamKind::kCopy).value();
  EXPECT_TRUE(device->Copy(to, from, bytes, *stream).ok());
  EXPECT_TRUE(device->Synchronize(*stream).ok());
}

// Returns the bytes of one slice as a test's prefill writes them. They differ for each layer and
// each `content`.
inline std::vector<uint64_t> SliceContent(const KvLayout& layout, int layer, uint64_t content) {
  std::vector<uint64_t> words(layout.LayerBytes() / sizeof(uint64_t));
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = content * 0x9E3779B97F4A7C15ull + layer * 0x100000001ull + i;
  }
  return words;
}
inline void FillSlice(KvPlane* plane, BlockId block, int layer, uint64_t content) {
  const KvLayout& layout = plane->options().layout;
  CopyTest(*plane, plane->pool() + layout.LayerOffset(block, layer),
           SliceContent(layout, layer, content).data(), layout.LayerBytes());
}
inline bool SliceIs(KvPlane* plane, BlockId block, int layer, uint64_t content) {
  const KvLayout& layout = plane->options().layout;
  std::vector<uint64_t> words(layout.LayerBytes() / sizeof(uint64_t));
  CopyTest(*plane, words.data(), plane->pool() + layout.LayerOffset(block, layer),
           layout.LayerBytes());
  return words == SliceContent(layout, layer, content);
}
// Returns all layers of a block, each with the bytes that FillSlice writes.
inline std::vector<uint64_t> BlockContent(const KvLayout& layout, uint64_t content) {
  std::vector<uint64_t> words;
  for (int layer = 0; layer < layout.layers; ++layer) {
    const std::vector<uint64_t> slice = SliceContent(layout, layer, content);
    words.insert(words.end(), slice.begin(), slice.end());
  }
  return words;
}
inline void FillBlock(KvPlane* plane, BlockId block, uint64_t content) {
  const KvLayout& layout = plane->options().layout;
  CopyTest(*plane, plane->pool() + layout.BlockOffset(block), BlockContent(layout, content).data(),
           layout.BlockBytes());
}
inline bool BlockIs(KvPlane* plane, BlockId block, uint64_t content) {
  const KvLayout& layout = plane->options().layout;
  std::vector<uint64_t> words(layout.BlockBytes() / sizeof(uint64_t));
  CopyTest(*plane, words.data(), plane->pool() + layout.BlockOffset(block), layout.BlockBytes());
  return words == BlockContent(layout, content);
}

}  // namespace baton
