#include "common/model/forward_pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/pulse.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Returns a view of the first `rows` rows of `tensor`.
Tensor First(Tensor tensor, int rows) {
  tensor.rows = rows;
  return tensor;
}

absl::Status CheckTokens(const ForwardBatch& batch, int vocab) {
  const absl::Span<const TokenId> tokens = batch.tokens;
  if (!batch.follows.empty() && batch.follows.size() != tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("what ", batch.follows.size(), " rows follow; there are ", tokens.size()));
  }
  for (size_t row = 0; row < tokens.size(); ++row) {
    if (!batch.follows.empty() && batch.follows[row] >= 0) continue;
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
  if (!batch.rope_reach.empty() && batch.rope_reach.size() != batch.sequences.size()) {
    return absl::InvalidArgumentError(absl::StrCat(batch.rope_reach.size(), " rotary tables for ",
                                                   batch.sequences.size(), " sequences"));
  }
  for (size_t i = 0; i < batch.rope_reach.size(); ++i) {
    const SequenceRows& sequence = batch.sequences[i];
    if (sequence.first_position + sequence.rows > batch.rope_reach[i]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sequence ", i, " ends at position ", sequence.first_position + sequence.rows - 1,
          "; its rotary table reaches ", batch.rope_reach[i], " tokens"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogits(const ForwardBatch& batch, const ForwardResults& results, int vocab) {
  for (const int row : batch.logit_rows) {
    if (row < 0 || static_cast<size_t>(row) >= batch.tokens.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits of row ", row, " wanted; there are ", batch.tokens.size()));
    }
  }
  if (!batch.samples.empty() && batch.samples.size() != batch.logit_rows.size()) {
    return absl::InvalidArgumentError(absl::StrCat("ways to sample for ", batch.samples.size(),
                                                   " rows; logits of ", batch.logit_rows.size(),
                                                   " are wanted"));
  }
  const size_t sampled =
      batch.samples.size() - std::count(batch.samples.begin(), batch.samples.end(), nullptr);
  const size_t rest = batch.logit_rows.size() - sampled;
  if (results.logits.size() != rest * vocab) {
    return absl::InvalidArgumentError(absl::StrCat("room for ", results.logits.size(),
                                                   " logits; expected ", rest, " rows of ", vocab));
  }
  if (results.sampled.size() != sampled) {
    return absl::InvalidArgumentError(
        absl::StrCat("room for ", results.sampled.size(), " sampled tokens; expected ", sampled));
  }
  return absl::OkStatus();
}

}  // namespace

ForwardPass::ForwardPass(const Model* model, Backend* backend, int max_rows, int context)
    : model_(model),
      backend_(backend),
      max_rows_(max_rows),
      context_(context),
      program_(backend->NewProgram()) {}

absl::StatusOr<std::unique_ptr<ForwardPass>> ForwardPass::Create(const Model* model,
                                                                 Backend* backend, int max_rows,
                                                                 int context) {
  if (max_rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of at most ", max_rows, " rows; expected at least 1"));
  }
  if (context < 0 || context > model->config().context) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a context of ", context, " tokens; expected 0 to the model's ", model->config().context));
  }
  if (context == 0) context = model->config().context;
  std::unique_ptr<ForwardPass> pass(new ForwardPass(model, backend, max_rows, context));
  Tensor* const tensors[] = {&pass->hidden_, &pass->normed_,    &pass->q_,    &pass->k_,
                             &pass->v_,      &pass->attention_, &pass->gate_, &pass->up_};
  const std::vector<int> cols = ActivationCols(model->config());
  for (size_t i = 0; i < cols.size(); ++i) {
    auto allocated = backend->Allocate(max_rows, cols[i]);
    if (!allocated.ok()) {
      return absl::Status(
          allocated.status().code(),
          absl::StrCat("activations of ", max_rows, " rows: ", allocated.status().message()));
    }
    *tensors[i] = *allocated;
  }
  return pass;
}

std::vector<int> ForwardPass::ActivationCols(const ModelConfig& config) {
  const int queries = config.heads * config.head_dim, keys = config.kv_heads * config.head_dim;
  return {config.hidden,       config.hidden,      queries, keys, keys, queries,
          config.intermediate, config.intermediate};
}

absl::Status ForwardPass::Check(const ForwardBatch& batch, const KvView& kv,
                                const ForwardResults& results) const {
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
  RETURN_IF_ERROR(CheckTokens(batch, config.vocab));
  RETURN_IF_ERROR(CheckSequences(batch, kv.layout, context_));
  return CheckLogits(batch, results, config.vocab);
}

absl::Status ForwardPass::Run(const ForwardBatch& batch, const KvView& kv, absl::Span<float> logits,
                              const LayerDone& layer_done) {
  if (started_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("a step to be run while ", started_, " are started and not finished"));
  }
  const bool as_a_whole = CanBeRecorded(batch);
  RETURN_IF_ERROR(StartStep(batch, kv, {.logits = logits}, as_a_whole ? nullptr : layer_done));
  RETURN_IF_ERROR(Finish());
  for (int layer = 0; as_a_whole && layer_done && layer < model_->config().layers; ++layer) {
    layer_done(layer, nullptr);
  }
  return absl::OkStatus();
}

absl::Status ForwardPass::Start(const ForwardBatch& batch, const KvView& kv,
                                const ForwardResults& results) {
  return StartStep(batch, kv, results, nullptr);
}

absl::Status ForwardPass::StartStep(const ForwardBatch& batch, const KvView& kv,
                                    const ForwardResults& results, const LayerDone& layer_done) {
  RETURN_IF_ERROR(Check(batch, kv, results));
  ChooseRopes(batch);
  rows_for_more_ = 0;
  const StepArgs step = {.program = CanBeRecorded(batch) ? program_ : 0,
                         .max_rows = max_rows_,
                         .context = context_,
                         .vocab = model_->config().vocab,
                         .tokens = batch.tokens,
                         .follows = batch.follows,
                         .sequences = batch.sequences,
                         .ropes = ropes_,
                         .kv = kv,
                         .logit_rows = batch.logit_rows,
                         .samples = batch.samples,
                         .logits = results.logits,
                         .sampled = results.sampled,
                         .pulse = batch.pulse};
  RETURN_IF_ERROR(backend_->StartStep(step, [&](const StepArgs& padded) {
    return RunLayers(padded, batch.more_logits, layer_done);
  }));
  if (batch.more_logits) rows_for_more_ = static_cast<int>(batch.tokens.size());
  ++started_;
  return absl::OkStatus();
}

absl::Status ForwardPass::Finish() {
  const absl::Status finished = backend_->FinishStep();
  if (started_ > 0) --started_;
  return finished;
}

bool ForwardPass::CanBeRecorded(const ForwardBatch& batch) const {
  const size_t rows = batch.tokens.size();
  if (program_ == 0 || batch.more_logits || batch.sequences.size() != rows ||
      batch.logit_rows.size() != rows) {
    return false;
  }
  for (size_t row = 0; row < rows; ++row) {
    if (batch.logit_rows[row] != static_cast<int>(row)) return false;
  }
  return true;
}

void ForwardPass::ChooseRopes(const ForwardBatch& batch) {
  constexpr size_t kMaxTables = 1024;
  const RopeConfig& config = model_->config().rope;
  ropes_.clear();
  if (rope_tables_.size() > kMaxTables) rope_tables_.clear();
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceRows& sequence = batch.sequences[i];
    const int tokens = sequence.first_position + sequence.rows;
    const int reach =
        batch.rope_reach.empty() ? RopeReach(config, tokens, tokens) : batch.rope_reach[i];
    auto [table, is_new] = rope_tables_.try_emplace(reach);
    if (is_new) table->second = RopeInverseFrequency(config, reach);
    ropes_.push_back({.inverse_frequency = table->second,
                      .scale = static_cast<float>(config.attention_factor),
                      .interleaved = config.interleaved && !backend_->copies_weights()});
  }
}

absl::Status ForwardPass::MoreLogits(absl::Span<const int> rows, absl::Span<float> logits) {
  for (const int row : rows) {
    if (row < 0 || row >= rows_for_more_) {
      return absl::InvalidArgumentError(
          absl::StrCat("more logits of row ", row, " wanted; ", rows_for_more_, " were kept"));
    }
  }
  const size_t vocab = model_->config().vocab;
  if (logits.size() != rows.size() * vocab) {
    return absl::InvalidArgumentError(absl::StrCat("room for ", logits.size(), " logits; expected ",
                                                   rows.size(), " rows of ", vocab));
  }
  if (rows.empty()) return absl::OkStatus();
  const absl::Status ran = backend_->Logits(
      {.in = First(normed_, rows_for_more_), .head = model_->head(), .rows = rows, .out = logits});
  const absl::Status finished = backend_->Synchronize();
  return ran.ok() ? finished : ran;
}

// Runs the decoder of Touvron et al. 2023. It is the decoder in figure 1 of Vaswani et al. 2017,
// but has RMS norms before attention and before the MLP, rotary positions and a gated MLP.
// architecture.h says which weights a family has.
absl::Status ForwardPass::RunLayers(const StepArgs& step, bool more_logits,
                                    const LayerDone& layer_done) {
  const int layers = model_->config().layers, rows = static_cast<int>(step.tokens.size());
  const Tensor hidden = First(hidden_, rows), normed = First(normed_, rows);
  RETURN_IF_ERROR(backend_->Embed(
      {.table = model_->embedding(), .tokens = step.tokens, .out = hidden, .step = &step}));
  for (int layer = 0; layer < layers; ++layer) {
    RETURN_IF_ERROR(WriteKv(step, layer));
    if (step.pulse != nullptr) step.pulse->Beat();
    if (layer_done) {
      ASSIGN_OR_RETURN(auto written, backend_->Record());
      layer_done(layer, std::move(written));
    }
    // A chunk in the middle of a prompt is computed only for its KV, not for logits. So once the
    // last layer's KV is written, the rest of that layer is not needed.
    if (layer + 1 == layers && step.logit_rows.empty() && !more_logits) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Attend(step, layer));
    RETURN_IF_ERROR(FeedForward(rows, layer));
  }
  RETURN_IF_ERROR(Norm(hidden, model_->final_norm(), normed));
  if (step.logit_rows.empty()) return absl::OkStatus();
  return backend_->Logits({.in = normed,
                           .head = model_->head(),
                           .rows = step.logit_rows,
                           .out = step.logits,
                           .step = &step});
}

// Writes the layer's K and V into the pool, and leaves the rotated q in q_.
absl::Status ForwardPass::WriteKv(const StepArgs& step, int layer) {
  const LayerWeights& w = model_->layer(layer);
  const int rows = static_cast<int>(step.tokens.size());
  const Tensor normed = First(normed_, rows);
  const Tensor q = First(q_, rows), k = First(k_, rows), v = First(v_, rows);
  RETURN_IF_ERROR(Norm(First(hidden_, rows), w.attention_norm, normed));
  RETURN_IF_ERROR(backend_->Gemms({{.in = normed, .weight = w.q, .bias = w.q_bias, .out = q},
                                   {.in = normed, .weight = w.k, .bias = w.k_bias, .out = k},
                                   {.in = normed, .weight = w.v, .bias = w.v_bias, .out = v}}));
  if (w.q_norm.data != nullptr) RETURN_IF_ERROR(Norm(q, w.q_norm, q));
  if (w.k_norm.data != nullptr) RETURN_IF_ERROR(Norm(k, w.k_norm, k));
  return backend_->RopeAndWriteKv({.q = q,
                                   .k = k,
                                   .v = v,
                                   .ropes = step.ropes,
                                   .layer = layer,
                                   .sequences = step.sequences,
                                   .kv = step.kv,
                                   .step = &step});
}

absl::Status ForwardPass::Attend(const StepArgs& step, int layer) {
  const ModelConfig& config = model_->config();
  const LayerWeights& w = model_->layer(layer);
  const int rows = static_cast<int>(step.tokens.size());
  const Tensor attention = First(attention_, rows);
  RETURN_IF_ERROR(
      backend_->Attention({.q = First(q_, rows),
                           .heads = config.heads,
                           .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                           .window = config.windows.empty() ? 0 : config.windows[layer],
                           .layer = layer,
                           .sequences = step.sequences,
                           .kv = step.kv,
                           .out = attention,
                           .step = &step}));
  return ProjectAndAdd(attention, w.o, w.o_bias, First(hidden_, rows));
}

absl::Status ForwardPass::FeedForward(int rows, int layer) {
  const LayerWeights& w = model_->layer(layer);
  const Tensor hidden = First(hidden_, rows), normed = First(normed_, rows);
  const Tensor gate = First(gate_, rows), up = First(up_, rows);
  RETURN_IF_ERROR(Norm(hidden, w.mlp_norm, normed));
  RETURN_IF_ERROR(
      backend_->Gemms({{.in = normed, .weight = w.gate, .bias = w.gate_bias, .out = gate},
                       {.in = normed, .weight = w.up, .bias = w.up_bias, .out = up}}));
  RETURN_IF_ERROR(backend_->SiluMul({.gate = gate, .up = up, .out = gate}));
  return ProjectAndAdd(gate, w.down, w.down_bias, hidden);
}

absl::Status ForwardPass::Norm(Tensor in, const Matrix& weight, Tensor out) {
  return backend_->RmsNorm(
      {.in = in, .weight = weight, .epsilon = model_->config().rms_epsilon, .out = out});
}

absl::Status ForwardPass::ProjectAndAdd(Tensor in, const Matrix& weight, const Matrix& bias,
                                        Tensor out) {
  return backend_->Gemm({.in = in, .weight = weight, .bias = bias, .accumulate = true, .out = out});
}

}  // namespace baton
