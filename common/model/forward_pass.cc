#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/model.h"

namespace baton {
namespace {

#define RETURN_IF_ERROR(expression) \
  if (absl::Status status_ = (expression); !status_.ok()) return status_

// The first `rows` rows.
Tensor First(Tensor tensor, int rows) {
  tensor.rows = rows;
  return tensor;
}

absl::Status CheckTokens(absl::Span<const TokenId> tokens, int vocab) {
  for (size_t row = 0; row < tokens.size(); ++row) {
    if (tokens[row] < 0 || tokens[row] >= vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", row, " has token ", tokens[row], "; the vocabulary has ", vocab));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSequences(const ForwardBatch& batch, const KvLayout& layout, int context) {
  const int64_t rows = batch.tokens.size();
  int64_t next_row = 0;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceRows& sequence = batch.sequences[i];
    if (sequence.first_row != next_row || sequence.rows < 1 || sequence.rows > rows - next_row) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", i, " has ", sequence.rows, " rows from row ",
                       sequence.first_row, "; expected some from row ", next_row, " of ", rows));
    }
    next_row += sequence.rows;
    const int64_t end = int64_t{sequence.first_position} + sequence.rows;
    if (sequence.first_position < 0 || end > context) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", i, " has positions ",
                                                     sequence.first_position, " to ", end - 1,
                                                     "; the context has ", context));
    }
    if (end > static_cast<int64_t>(sequence.blocks.size()) * layout.block_tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", i, " has ", sequence.blocks.size(), " blocks of ",
                       layout.block_tokens, " tokens; its last position is ", end - 1));
    }
    for (const BlockId block : sequence.blocks) {
      if (block < 0) {
        return absl::InvalidArgumentError(absl::StrCat("sequence ", i, " has block ", block));
      }
    }
  }
  if (next_row != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequences have ", next_row, " rows; there are ", rows, " tokens"));
  }
  return absl::OkStatus();
}

absl::Status CheckLogits(const ForwardBatch& batch, size_t logits, int vocab) {
  for (const int row : batch.logit_rows) {
    if (row < 0 || static_cast<size_t>(row) >= batch.tokens.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits of row ", row, " wanted; there are ", batch.tokens.size()));
    }
  }
  if (logits != batch.logit_rows.size() * vocab) {
    return absl::InvalidArgumentError(absl::StrCat("room for ", logits, " logits; expected ",
                                                   batch.logit_rows.size(), " rows of ", vocab));
  }
  return absl::OkStatus();
}

}  // namespace

ForwardPass::ForwardPass(const Model* model, Backend* backend, int max_rows)
    : model_(model), backend_(backend), max_rows_(max_rows) {}

absl::StatusOr<std::unique_ptr<ForwardPass>> ForwardPass::Create(const Model* model,
                                                                 Backend* backend, int max_rows) {
  if (max_rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of at most ", max_rows, " rows; expected at least 1"));
  }
  std::unique_ptr<ForwardPass> pass(new ForwardPass(model, backend, max_rows));
  const ModelConfig& config = model->config();
  const int queries = config.heads * config.head_dim;
  const int keys = config.kv_heads * config.head_dim;
  const std::pair<Tensor*, int> activations[] = {{&pass->hidden_, config.hidden},
                                                 {&pass->normed_, config.hidden},
                                                 {&pass->q_, queries},
                                                 {&pass->k_, keys},
                                                 {&pass->v_, keys},
                                                 {&pass->attention_, queries},
                                                 {&pass->gate_, config.intermediate},
                                                 {&pass->up_, config.intermediate}};
  for (const auto& [tensor, cols] : activations) {
    auto allocated = backend->Allocate(max_rows, cols);
    if (!allocated.ok()) {
      return absl::Status(
          allocated.status().code(),
          absl::StrCat("activations of ", max_rows, " rows: ", allocated.status().message()));
    }
    *tensor = *allocated;
  }
  return pass;
}

absl::Status ForwardPass::Check(const ForwardBatch& batch, const KvView& kv, size_t logits) const {
  const ModelConfig& config = model_->config();
  if (batch.tokens.empty() || batch.tokens.size() > static_cast<size_t>(max_rows_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", batch.tokens.size(), " rows; expected 1 to ", max_rows_));
  }
  const KvLayout expected = model_->LayoutFor(kv.layout.block_tokens, kv.layout.type);
  if (kv.data == nullptr || kv.layout.block_tokens < 1 ||
      kv.layout.Fingerprint() != expected.Fingerprint()) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV pool ", kv.layout.Fingerprint(), "; expected ", expected.Fingerprint()));
  }
  RETURN_IF_ERROR(CheckTokens(batch.tokens, config.vocab));
  RETURN_IF_ERROR(CheckSequences(batch, kv.layout, config.context));
  return CheckLogits(batch, logits, config.vocab);
}

absl::Status ForwardPass::Run(const ForwardBatch& batch, const KvView& kv, absl::Span<float> logits,
                              const std::function<void(int layer)>& layer_done) {
  RETURN_IF_ERROR(Check(batch, kv, logits.size()));
  const absl::Status ran = RunLayers(batch, kv, logits, layer_done);
  // The caller's views end with this call, however it went.
  const absl::Status finished = backend_->Synchronize();
  return ran.ok() ? finished : ran;
}

// The decoder of Touvron et al. 2023 (figure 1 of Vaswani et al. 2017 with the norms in front, RMS
// norms, rotary positions and a gated MLP). Which weights a family has is told in architecture.h.
absl::Status ForwardPass::RunLayers(const ForwardBatch& batch, const KvView& kv,
                                    absl::Span<float> logits,
                                    const std::function<void(int layer)>& layer_done) {
  const ModelConfig& config = model_->config();
  const int rows = batch.tokens.size();
  const float scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  const Tensor hidden = First(hidden_, rows), normed = First(normed_, rows);
  const Tensor q = First(q_, rows), k = First(k_, rows), v = First(v_, rows);
  const Tensor attention = First(attention_, rows);
  const Tensor gate = First(gate_, rows), up = First(up_, rows);
  const auto norm = [&](const Matrix& weight) {
    return backend_->RmsNorm(
        {.in = hidden, .weight = weight, .epsilon = config.rms_epsilon, .out = normed});
  };
  const auto project = [&](Tensor in, const Matrix& weight, const Matrix& bias, Tensor out) {
    return backend_->Gemm({.in = in, .weight = weight, .bias = bias, .out = out});
  };
  const auto project_and_add = [&](Tensor in, const Matrix& weight, const Matrix& bias,
                                   Tensor out) {
    return backend_->Gemm(
        {.in = in, .weight = weight, .bias = bias, .accumulate = true, .out = out});
  };

  const Rope rope = model_->rope();
  RETURN_IF_ERROR(
      backend_->Embed({.table = model_->embedding(), .tokens = batch.tokens, .out = hidden}));
  for (int layer = 0; layer < config.layers; ++layer) {
    const LayerWeights& w = model_->layer(layer);
    RETURN_IF_ERROR(norm(w.attention_norm));
    RETURN_IF_ERROR(project(normed, w.q, w.q_bias, q));
    RETURN_IF_ERROR(project(normed, w.k, w.k_bias, k));
    RETURN_IF_ERROR(project(normed, w.v, w.v_bias, v));
    RETURN_IF_ERROR(backend_->RopeAndWriteKv({.q = q,
                                              .k = k,
                                              .v = v,
                                              .ropes = {&rope, 1},
                                              .layer = layer,
                                              .sequences = batch.sequences,
                                              .kv = kv}));
    if (layer_done) {
      RETURN_IF_ERROR(backend_->Synchronize());
      layer_done(layer);
    }
    // A chunk in the middle of a prompt wants its KV and no logits: the rest of the last layer
    // would be read by nobody.
    if (layer + 1 == config.layers && batch.logit_rows.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(backend_->Attention({.q = q,
                                         .heads = config.heads,
                                         .scale = scale,
                                         .layer = layer,
                                         .sequences = batch.sequences,
                                         .kv = kv,
                                         .out = attention}));
    RETURN_IF_ERROR(project_and_add(attention, w.o, w.o_bias, hidden));

    RETURN_IF_ERROR(norm(w.mlp_norm));
    RETURN_IF_ERROR(project(normed, w.gate, w.gate_bias, gate));
    RETURN_IF_ERROR(project(normed, w.up, w.up_bias, up));
    RETURN_IF_ERROR(backend_->SiluMul({.gate = gate, .up = up, .out = gate}));
    RETURN_IF_ERROR(project_and_add(gate, w.down, w.down_bias, hidden));
  }
  RETURN_IF_ERROR(norm(model_->final_norm()));
  return backend_->Logits(
      {.in = normed, .head = model_->head(), .rows = batch.logit_rows, .out = logits});
}

}  // namespace baton
