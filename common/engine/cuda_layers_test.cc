#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/engine/engine.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated_runtime.h"
#include "kernels/cuda/kernels.h"

namespace baton {
namespace {

// A step that is run on an emulated device, and another stream that copies each layer's KV before
// the next one is begun.
class LayersWorld {
 public:
  static constexpr int kBlockTokens = 8, kTokens = 20;

  explicit LayersWorld(uint64_t seed)
      : device_(CreateEmulatedRuntime({.seed = seed, .memory_bytes = 32 << 20}).value()),
        backend_(CreateCudaBackend({device_.get(), EmulatedKernels(), "cuda-emulated"}).value()),
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
  // Whether the copies found what the step has left in the pool.
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

// Without the wait the copies come too early, which also shows that the step itself does not wait.
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

}  // namespace
}  // namespace baton
