#include "kernels/cuda/small_decoder.h"

#include <cmath>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/device/emulated/emulated_runtime.h"

namespace baton {

SmallDecoder::SmallDecoder(const TestDevice& device, const Shape& shape, bool graphs)
    : device_(device),
      shape_(shape),
      layout_{static_cast<int>(shape.windows.size()), shape.kv_heads, shape.head_dim,
              shape.block_tokens, shape.kv_type},
      backend_(device
                   .CreateBackend({.graphs = graphs,
                                   .graph_counts = &counts_,
                                   .max_partial_bytes = shape.max_partial_bytes})
                   .value()),
      program_(backend_->NewProgram()) {
  std::mt19937 random(7);
  const auto weight = [&](int rows, int cols) {
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(cols)));
    std::vector<float> values(static_cast<size_t>(rows) * cols);
    for (float& value : values) value = normal(random);
    kept_.push_back(std::move(values));
    return backend_->LoadWeight({kept_.back().data(), WeightFormat::kF32, rows, cols}).value();
  };
  const int queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  table_ = weight(kVocab, kHidden);
  norm_ = weight(1, kHidden);
  bias_ = weight(1, queries);
  for (int i = 0; i < layout_.layers; ++i) {
    q_w_.push_back(weight(queries, kHidden));
    k_w_.push_back(weight(keys, kHidden));
    v_w_.push_back(weight(keys, kHidden));
    o_w_.push_back(weight(kHidden, queries));
  }
  hidden_ = backend_->Allocate(shape.max_rows, kHidden).value();
  normed_ = backend_->Allocate(shape.max_rows, kHidden).value();
  q_ = backend_->Allocate(shape.max_rows, queries).value();
  k_ = backend_->Allocate(shape.max_rows, keys).value();
  v_ = backend_->Allocate(shape.max_rows, keys).value();
  out_ = backend_->Allocate(shape.max_rows, queries).value();
  for (int i = 0; i < shape.head_dim / 2; ++i) {
    frequencies_[0].push_back(std::pow(100.0f, -2.0f * i / shape.head_dim));
    frequencies_[1].push_back(frequencies_[0].back() / 2);
  }
  NewPool();
}

SmallDecoder::~SmallDecoder() {
  for (std::byte* pool : pools_) device_.runtime().Free(pool);
}

void SmallDecoder::NewPool() {
  const size_t bytes = kBlocks * layout_.BlockBytes();
  std::byte* const pool = device_.runtime().Allocate(bytes).value();
  std::vector<std::byte> content(bytes, std::byte{0x3c});
  if (!pools_.empty()) device_.Copy(content.data(), pools_.back(), bytes);
  device_.Copy(pool, content.data(), bytes);
  pools_.push_back(pool);
}

std::vector<std::byte> SmallDecoder::Pool() const {
  std::vector<std::byte> content(kBlocks * layout_.BlockBytes());
  device_.Copy(content.data(), pools_.back(), content.size());
  return content;
}

absl::Status SmallDecoder::Start(const std::vector<Item>& items, absl::Span<float> logits,
                                 bool recorded, const Samples& samples) {
  std::vector<TokenId> tokens;
  std::vector<SequenceRows> sequences;
  std::vector<Rope> ropes;
  std::vector<int> logit_rows;
  for (const Item& item : items) {
    sequences.push_back({static_cast<int>(tokens.size()), static_cast<int>(item.tokens.size()),
                         item.first_position, item.blocks});
    ropes.push_back({frequencies_[item.id % 2], 1});
    tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    logit_rows.push_back(static_cast<int>(tokens.size()) - 1);
  }
  return backend_->StartStep({.program = recorded ? program_ : 0,
                              .max_rows = shape_.max_rows,
                              .context = shape_.context,
                              .vocab = kVocab,
                              .tokens = tokens,
                              .follows = samples.follows,
                              .sequences = sequences,
                              .ropes = ropes,
                              .kv = {pools_.back(), layout_},
                              .logit_rows = logit_rows,
                              .samples = samples.options,
                              .logits = logits,
                              .sampled = samples.sampled},
                             [&](const StepArgs& step) { return Operations(step); });
}

std::vector<float> SmallDecoder::Run(const std::vector<Item>& items, bool recorded) {
  std::vector<float> logits(items.size() * kVocab);
  EXPECT_EQ(Start(items, absl::MakeSpan(logits), recorded), absl::OkStatus());
  EXPECT_EQ(backend_->FinishStep(), absl::OkStatus());
  return logits;
}

absl::Status SmallDecoder::Operations(const StepArgs& step) {
  const StepArgs* const named = named_step ? named_step(step) : &step;
  const auto first = [&](Tensor tensor) {
    tensor.rows = static_cast<int>(step.tokens.size());
    return tensor;
  };
  const Tensor hidden = first(hidden_), normed = first(normed_), q = first(q_), k = first(k_),
               v = first(v_), out = first(out_);
  absl::Status status = backend_->Embed({table_, step.tokens, hidden, named});
  const auto then = [&](const absl::Status& next) {
    if (status.ok()) status = next;
  };
  for (int i = 0; i < layout_.layers; ++i) {
    then(backend_->RmsNorm({hidden, norm_, 1e-5f, normed}));
    then(backend_->Gemm({normed, q_w_[i], bias_, false, q}));
    then(backend_->Gemm({normed, k_w_[i], {}, false, k}));
    then(backend_->Gemm({normed, v_w_[i], {}, false, v}));
    then(backend_->RopeAndWriteKv({q, k, v, step.ropes, i, step.sequences, step.kv, named}));
    then(backend_->Attention(
        {q, shape_.heads, 0.3f, shape_.windows[i], i, step.sequences, step.kv, out, 0, named}));
    then(backend_->Gemm({out, o_w_[i], {}, true, hidden}));
  }
  if (fails) then(backend_->Synchronize());
  then(backend_->RmsNorm({hidden, norm_, 1e-5f, normed}));
  then(backend_->Logits({normed, table_, step.logit_rows, step.logits, named}));
  return status;
}

std::vector<SmallDecoder::Item> Batch(int sequences, int position, int block_tokens) {
  std::vector<SmallDecoder::Item> items;
  for (int s = 0; s < sequences; ++s) {
    SmallDecoder::Item item = {.id = s,
                               .tokens = {(s * 5 + position * 3) % SmallDecoder::kVocab},
                               .first_position = position};
    for (int b = 0; b * block_tokens <= position; ++b) item.blocks.push_back(s + sequences * b);
    items.push_back(item);
  }
  return items;
}

OpenedDevice SeededDevice(uint64_t seed) {
  OpenedDevice device = StrictDevice();
  device.runtime =
      CreateEmulatedRuntime({.seed = seed, .memory_bytes = size_t{64} << 20, .check = true})
          .value();
  return device;
}

}  // namespace baton
