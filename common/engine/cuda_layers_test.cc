#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/pulse.h"
#include "common/engine/engine.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kernels/device/simt/simt_entry.h"

namespace baton {
namespace {

// Runs a step on an emulated device. Another stream copies each layer's KV before the next layer
// begins.
class LayersWorld {
 public:
  static constexpr int kBlockTokens = 8, kTokens = 20;

  explicit LayersWorld(uint64_t seed, const KernelTable& kernels = EmulatedKernels())
      : device_(CreateEmulatedRuntime({.seed = seed, .memory_bytes = 32 << 20}).value()),
        backend_(CreateCudaBackend({device_.get(), kernels, "cuda-emulated"}).value()),
        model_(Model::Load(absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/gqa_bias_bf16"),
                           backend_.get())
                   .value()),
        layout_(model_->LayoutFor(kBlockTokens, DType::kBF16)),
        pool_(device_->Allocate(Bytes()).value()),
        seen_(device_->AllocatePinned(Bytes()).value()),
        side_(device_->CreateStream(StreamKind::kCopy).value()),
        engine_(Engine::Create(model_.get(), backend_.get(), {pool_, layout_}, 32).value()) {
    std::memset(seen_, 0, Bytes());
    EXPECT_TRUE(device_->Fill(pool_, 0, Bytes(), *side_).ok());
    EXPECT_TRUE(device_->Synchronize(*side_).ok());
  }
  ~LayersWorld() {
    device_->Free(pool_);
    device_->FreePinned(seen_);
  }

  int layers() const { return layout_.layers; }
  const KvLayout& layout() const { return layout_; }
  Engine& engine() { return *engine_; }
  // Runs a step. Returns true if the copies of the KV equal what the step has left in the pool.
  // If `wait` is true, each copy waits for the event of its layer.
  bool CopiesAreRight(bool wait) {
    const std::vector<BlockId> blocks = {0, 1, 2};
    std::vector<TokenId> tokens;
    for (int i = 0; i < kTokens; ++i) tokens.push_back(3 + 7 * i % 40);
    std::vector<int> told;
    const auto ran = engine_->Run(
        {{{.tokens = tokens, .blocks = blocks, .original_prompt_tokens = kTokens}}},
        [&](int layer, const std::shared_ptr<DeviceEvent>& written) {
          told.push_back(layer);
          ASSERT_NE(written, nullptr);
          if (wait) {
            EXPECT_TRUE(device_->WaitFor(*written, *side_).ok());
          }
          for (const BlockId block : blocks) {
            const size_t at = layout_.LayerOffset(block, layer);
            EXPECT_TRUE(device_->Copy(seen_ + at, pool_ + at, layout_.LayerBytes(), *side_).ok());
          }
          EXPECT_TRUE(device_->Synchronize(*side_).ok());
        });
    EXPECT_TRUE(ran.ok()) << ran.status();
    EXPECT_EQ(static_cast<int>(told.size()), layers());
    for (int i = 0; i < static_cast<int>(told.size()); ++i) EXPECT_EQ(told[i], i);
    std::vector<std::byte> pool(Bytes());
    EXPECT_TRUE(device_->Copy(pool.data(), pool_, Bytes(), *side_).ok());
    for (const BlockId block : blocks) {
      for (int layer = 0; layer < layers(); ++layer) {
        const std::vector<std::byte> nothing(layout_.LayerBytes());
        EXPECT_NE(std::memcmp(pool.data() + layout_.LayerOffset(block, layer), nothing.data(),
                              nothing.size()),
                  0);
      }
    }
    return std::memcmp(pool.data(), seen_, Bytes()) == 0;
  }

 private:
  size_t Bytes() const { return 3 * layout_.BlockBytes(); }

  const std::unique_ptr<DeviceRuntime> device_;
  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<const Model> model_;
  const KvLayout layout_;
  std::byte* const pool_;
  std::byte* const seen_;
  const std::unique_ptr<DeviceStream> side_;
  const std::unique_ptr<Engine> engine_;
};

// Copies of a layer's KV are right if they wait for the layer's event. Copies that do not wait come
// too early for most seeds of the emulated device. The early copies prove that the step itself does
// not wait for copies.
TEST(CudaLayersTest, ALayersEventIsBehindItsKvAndNothingWaitsForIt) {
  constexpr int kSeeds = 12;
  int early = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    EXPECT_TRUE(LayersWorld(seed).CopiesAreRight(true)) << "seed " << seed;
    early += !LayersWorld(seed).CopiesAreRight(false);
  }
  RecordProperty("seeds_that_show_a_forgotten_wait", early);
  EXPECT_GE(early, kSeeds / 2);
}

// Holds the device before it writes the KV of a layer, until OpenFor lets this layer pass.
class Gate {
 public:
  explicit Gate(KernelTable* kernels) {
    gate_ = this;
    passed_ = *static_cast<const simt::SimtEntry*>(kernels->rope_write_kv.entry);
    entry_ = passed_;
    entry_.body = [](const void* params) {
      const LayerPages& pages = static_cast<const RopeWriteKvParams*>(params)->pages;
      gate_->Pass(pages.key_offset);
      gate_->passed_.body(params);
    };
    kernels->rope_write_kv.entry = &entry_;
  }
  // Waits until the device is stopped just before it writes the KV of `layer`. The layer is given
  // as the offset of its keys in a block.
  void AwaitHeldAt(int64_t layer) {
    MutexLock lock(&mutex_);
    while (held_at_ != layer) changed_.Wait(&mutex_);
  }
  void OpenFor(int64_t layer) {
    MutexLock lock(&mutex_);
    open_for_ = layer;
    changed_.SignalAll();
  }

 private:
  void Pass(int64_t layer) {
    MutexLock lock(&mutex_);
    while (layer > open_for_) {
      held_at_ = layer;
      changed_.SignalAll();
      changed_.Wait(&mutex_);
    }
  }

  static Gate* gate_;  // static, because a kernel body can't capture variables
  simt::SimtEntry passed_, entry_;
  Mutex mutex_;
  CondVar changed_;
  int64_t held_at_ ABSL_GUARDED_BY(mutex_) = -1, open_for_ ABSL_GUARDED_BY(mutex_) = -1;
};
Gate* Gate::gate_ = nullptr;

// The pulse, which shows that the worker makes progress, must go on while the device works on a
// long chunk, and must stop if the device stops. This holds with and without a LayerDone callback.
TEST(CudaPulseTest, BeatsWithEveryLayerThatTheDeviceHasDone) {
  constexpr absl::Duration kLimit = absl::Seconds(30);
  for (const bool published : {false, true}) {
    SCOPED_TRACE(published);
    KernelTable kernels = EmulatedKernels();
    Gate gate(&kernels);
    LayersWorld world(1, kernels);
    const auto layers = static_cast<uint64_t>(world.layers());
    const auto at = [&](int layer) {
      return static_cast<int64_t>(world.layout().HeadOffset(0, layer, KvLayout::kKeys, 0));
    };
    Pulse pulse;
    world.engine().set_pulse(&pulse);
    PulseWatch watch(kLimit);
    watch.Add("core", &pulse);
    absl::Time now = absl::UnixEpoch();
    const auto silent_after = [&](absl::Duration time) {
      bool silent = false;
      for (const absl::Time end = now + time; now < end; now += kLimit / 10) {
        silent = !watch.Silent(now).empty();
      }
      return silent;
    };

    const std::vector<BlockId> blocks = {0, 1, 2};
    const std::vector<TokenId> tokens(LayersWorld::kTokens, 5);
    const SamplingOptions greedy;
    const StepPlan chunk = {{{.tokens = tokens,
                              .blocks = blocks,
                              .sampling = &greedy,
                              .original_prompt_tokens = LayersWorld::kTokens}}};
    std::thread step([&] {
      const LayerDone none = [](int, const std::shared_ptr<DeviceEvent>&) {};
      EXPECT_TRUE(world.engine().Run(chunk, published ? none : nullptr).ok());
    });
    for (int layer = 0; layer < world.layers(); ++layer) {
      gate.AwaitHeldAt(at(layer));
      EXPECT_EQ(pulse.beats(), layers + layer) << "all were put there, and so many were done";
      EXPECT_FALSE(silent_after(0.9 * kLimit));
      if (layer + 1 == world.layers()) {
        EXPECT_TRUE(silent_after(kLimit)) << "it does not get on";
      }
      gate.OpenFor(at(layer));
    }
    step.join();
    EXPECT_EQ(pulse.beats(), 2 * layers);
    EXPECT_FALSE(silent_after(kLimit / 2));

    // In a decode step, the pulse counts each layer when the host calls the operations of that
    // layer. The host calls them when the first step runs directly and when the second is recorded,
    // but not when the third is replayed.
    for (int i = 0; i < 3; ++i) {
      const TokenId next[] = {7};
      ASSERT_TRUE(world.engine()
                      .Run({{{.tokens = next,
                              .first_position = LayersWorld::kTokens + i,
                              .blocks = blocks,
                              .sampling = &greedy,
                              .original_prompt_tokens = LayersWorld::kTokens}}})
                      .ok());
      EXPECT_EQ(pulse.beats(), (2 + std::min(i + 1, 2)) * layers);
    }
  }
}

}  // namespace
}  // namespace baton
