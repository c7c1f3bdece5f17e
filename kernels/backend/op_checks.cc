#include "kernels/backend/op_checks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Max number of positions of a sequence. Rotary angles are computed in float, which represents all
// integers exactly only up to this number.
constexpr int kMaxPositions = 1 << 24;

std::string Shape(const Tensor& t) {
  return absl::StrCat("[", t.rows, ", ", t.cols, "] of stride ", t.stride);
}
std::string Shape(const Matrix& m) { return absl::StrCat("[", m.rows, ", ", m.cols, "]"); }

template <class... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckTensor(absl::string_view op, absl::string_view name, const Tensor& t) {
  if (t.rows < 0 || t.cols <= 0 || (t.rows > 1 && t.stride < t.cols)) {
    return Refuse(op, ": ", name, " is ", Shape(t));
  }
  if (t.rows > 0 && t.data == nullptr) return Refuse(op, ": ", name, " has no data");
  return absl::OkStatus();
}

absl::Status CheckMatrix(absl::string_view op, absl::string_view name, const Matrix& m) {
  if (m.rows <= 0 || m.cols <= 0) return Refuse(op, ": ", name, " is ", Shape(m));
  if (m.data == nullptr) return Refuse(op, ": ", name, " has no data");
  if (static_cast<int>(m.format) >= kWeightFormats) {
    return Refuse(op, ": ", name, " has format ", static_cast<int>(m.format));
  }
  if (m.cols % BlockValues(m.format) != 0) {
    return Refuse(op, ": ", name, " is ", Shape(m), "; rows of ", WeightFormatName(m.format),
                  " have a multiple of ", BlockValues(m.format), " values");
  }
  return absl::OkStatus();
}

absl::Status CheckKv(absl::string_view op, const KvView& kv, int layer) {
  const KvLayout& l = kv.layout;
  if (kv.data == nullptr) return Refuse(op, ": the KV pool has no data");
  if (l.layers <= 0 || l.kv_heads <= 0 || l.head_dim <= 0 || l.block_tokens <= 0) {
    return Refuse(op, ": KV layout is ", l.Fingerprint());
  }
  if (layer < 0 || layer >= l.layers) return Refuse(op, ": layer ", layer, " of ", l.layers);
  return absl::OkStatus();
}

absl::Status CheckSequences(absl::string_view op, absl::Span<const SequenceRows> sequences,
                            int rows, const KvLayout& layout) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceRows& s = sequences[i];
    if (s.rows < 0 || s.first_row < 0 || s.first_row > rows - s.rows) {
      return Refuse(op, ": sequence ", i, " has rows ", s.first_row, "+", s.rows, " of ", rows);
    }
    if (s.rows == 0) continue;
    if (s.first_position < 0 || s.first_position > kMaxPositions - s.rows) {
      return Refuse(op, ": sequence ", i, " is at position ", s.first_position, "+", s.rows,
                    ", the last is ", kMaxPositions - 1);
    }
    const size_t needed = layout.BlocksFor(s.first_position + s.rows);
    if (s.blocks.size() < needed) {
      return Refuse(op, ": sequence ", i, " has ", s.blocks.size(), " blocks, its positions need ",
                    needed);
    }
    for (size_t b = 0; b < needed; ++b) {
      if (s.blocks[b] < 0) return Refuse(op, ": sequence ", i, " has block ", s.blocks[b]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRopes(absl::string_view op, absl::Span<const Rope> ropes, size_t sequences,
                        const KvLayout& layout) {
  if (ropes.size() != 1 && ropes.size() != sequences) {
    return Refuse(op, ": ", ropes.size(), " ropes for ", sequences, " sequences");
  }
  for (const Rope& rope : ropes) {
    if (rope.inverse_frequency.empty() ||
        rope.inverse_frequency.size() > static_cast<size_t>(layout.head_dim / 2)) {
      return Refuse(op, ": ", rope.inverse_frequency.size(), " frequencies for head_dim ",
                    layout.head_dim);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStepTokens(const StepArgs& step) {
  const size_t rows = step.tokens.size();
  if (rows == 0 || rows > static_cast<size_t>(std::max(step.max_rows, 0))) {
    return Refuse("step: ", rows, " rows; expected 1 to ", step.max_rows);
  }
  if (!step.follows.empty() && step.follows.size() != rows) {
    return Refuse("step: what ", step.follows.size(), " rows follow, of ", rows);
  }
  for (size_t row = 0; row < rows; ++row) {
    if (!step.follows.empty() && step.follows[row] != -1) {
      if (step.follows[row] < 0) return Refuse("step: row ", row, " follows ", step.follows[row]);
    } else if (step.tokens[row] < 0 || step.tokens[row] >= step.vocab) {
      return Refuse("step: token ", step.tokens[row], " of a vocabulary of ", step.vocab);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSample(const SampleOptions& sample, size_t row) {
  const size_t max_banned = sample.stop_tokens.empty() ? 512 : 256;
  if (sample.banned.size() > max_banned || sample.stop_tokens.size() > 256) {
    return Refuse("step: logit row ", row, " has ", sample.banned.size(), " banned tokens and ",
                  sample.stop_tokens.size(), " stop tokens; at most ", max_banned, " and 256");
  }
  const bool penalties = sample.repetition_penalty != 1 || sample.presence_penalty != 0 ||
                         sample.frequency_penalty != 0;
  if (penalties && (sample.sequence == 0 || sample.history == nullptr)) {
    return Refuse("step: logit row ", row, " has penalties, and no sequence or history");
  }
  return absl::OkStatus();
}

absl::Status CheckStepResults(const StepArgs& step) {
  for (const int row : step.logit_rows) {
    if (row < 0 || static_cast<size_t>(row) >= step.tokens.size()) {
      return Refuse("step: logits of row ", row, " of ", step.tokens.size());
    }
  }
  if (!step.samples.empty() && step.samples.size() != step.logit_rows.size()) {
    return Refuse("step: ways to sample from ", step.samples.size(), " rows of logits, of ",
                  step.logit_rows.size());
  }
  size_t sampled = 0;
  for (size_t i = 0; i < step.samples.size(); ++i) {
    if (step.samples[i] == nullptr) continue;
    ++sampled;
    RETURN_IF_ERROR(CheckSample(*step.samples[i], i));
  }
  const size_t rest = step.logit_rows.size() - sampled;
  if (step.logits.size() != rest * step.vocab || step.sampled.size() != sampled) {
    return Refuse("step: room for ", step.logits.size(), " logits and ", step.sampled.size(),
                  " tokens; ", rest, " rows of ", step.vocab, " and ", sampled, " are wanted");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckArgs(const StepArgs& step) {
  constexpr absl::string_view kOp = "step";
  RETURN_IF_ERROR(CheckStepTokens(step));
  RETURN_IF_ERROR(CheckKv(kOp, step.kv, 0));
  const int rows = static_cast<int>(step.tokens.size());
  RETURN_IF_ERROR(CheckSequences(kOp, step.sequences, rows, step.kv.layout));
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    const SequenceRows& s = step.sequences[i];
    if (s.rows > 0 && s.first_position > step.context - s.rows) {
      return Refuse(kOp, ": sequence ", i, " is at position ", s.first_position, "+", s.rows,
                    ", the last is ", step.context - 1);
    }
  }
  RETURN_IF_ERROR(CheckRopes(kOp, step.ropes, step.sequences.size(), step.kv.layout));
  return CheckStepResults(step);
}

absl::Status CheckWeight(const Matrix& weight) {
  return CheckMatrix("load weight", "weight", weight);
}

absl::Status CheckArgs(const EmbedArgs& args) {
  constexpr absl::string_view kOp = "embed";
  RETURN_IF_ERROR(CheckMatrix(kOp, "table", args.table));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", args.out));
  if (args.out.cols != args.table.cols) {
    return Refuse(kOp, ": table ", Shape(args.table), " into ", Shape(args.out));
  }
  if (args.tokens.size() != static_cast<size_t>(args.out.rows)) {
    return Refuse(kOp, ": ", args.tokens.size(), " tokens into ", args.out.rows, " rows");
  }
  for (const TokenId token : args.tokens) {
    if (token < 0 || token >= args.table.rows) {
      return Refuse(kOp, ": token ", token, " of a vocabulary of ", args.table.rows);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckArgs(const RmsNormArgs& args) {
  constexpr absl::string_view kOp = "rms norm";
  RETURN_IF_ERROR(CheckTensor(kOp, "in", args.in));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", args.out));
  RETURN_IF_ERROR(CheckMatrix(kOp, "weight", args.weight));
  if (args.in.rows != args.out.rows || args.in.cols != args.out.cols || args.weight.rows != 1 ||
      args.in.cols % args.weight.cols != 0) {
    return Refuse(kOp, ": in ", Shape(args.in), ", weight ", Shape(args.weight), ", out ",
                  Shape(args.out));
  }
  if (!(args.epsilon >= 0) || !std::isfinite(args.epsilon)) {
    return Refuse(kOp, ": epsilon is ", args.epsilon);
  }
  return absl::OkStatus();
}

absl::Status CheckArgs(const GemmArgs& args) {
  constexpr absl::string_view kOp = "gemm";
  RETURN_IF_ERROR(CheckTensor(kOp, "in", args.in));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", args.out));
  RETURN_IF_ERROR(CheckMatrix(kOp, "weight", args.weight));
  if (args.in.rows != args.out.rows || args.in.cols != args.weight.cols ||
      args.out.cols != args.weight.rows) {
    return Refuse(kOp, ": in ", Shape(args.in), ", weight ", Shape(args.weight), ", out ",
                  Shape(args.out));
  }
  if (args.bias.data != nullptr) {
    RETURN_IF_ERROR(CheckMatrix(kOp, "bias", args.bias));
    if (args.bias.rows != 1 || args.bias.cols != args.weight.rows) {
      return Refuse(kOp, ": bias ", Shape(args.bias), " for weight ", Shape(args.weight));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckArgsInStep(const RopeAndWriteKvArgs& args) {
  constexpr absl::string_view kOp = "rope";
  RETURN_IF_ERROR(CheckTensor(kOp, "q", args.q));
  RETURN_IF_ERROR(CheckTensor(kOp, "k", args.k));
  RETURN_IF_ERROR(CheckTensor(kOp, "v", args.v));
  RETURN_IF_ERROR(CheckKv(kOp, args.kv, args.layer));
  const KvLayout& layout = args.kv.layout;
  const int64_t kv_cols = int64_t{layout.kv_heads} * layout.head_dim;
  if (args.q.rows != args.k.rows || args.q.rows != args.v.rows || args.k.cols != kv_cols ||
      args.v.cols != kv_cols || args.q.cols % layout.head_dim != 0) {
    return Refuse(kOp, ": q ", Shape(args.q), ", k ", Shape(args.k), ", v ", Shape(args.v),
                  " for KV layout ", layout.Fingerprint());
  }
  return absl::OkStatus();
}

absl::Status CheckArgs(const RopeAndWriteKvArgs& args) {
  RETURN_IF_ERROR(CheckArgsInStep(args));
  RETURN_IF_ERROR(CheckRopes("rope", args.ropes, args.sequences.size(), args.kv.layout));
  return CheckSequences("rope", args.sequences, args.q.rows, args.kv.layout);
}

absl::Status CheckArgsInStep(const AttentionArgs& args) {
  constexpr absl::string_view kOp = "attention";
  RETURN_IF_ERROR(CheckTensor(kOp, "q", args.q));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", args.out));
  RETURN_IF_ERROR(CheckKv(kOp, args.kv, args.layer));
  const KvLayout& layout = args.kv.layout;
  if (args.heads <= 0 || args.heads % layout.kv_heads != 0) {
    return Refuse(kOp, ": ", args.heads, " query heads for ", layout.kv_heads, " KV heads");
  }
  if (args.q.rows != args.out.rows || args.q.cols != int64_t{args.heads} * layout.head_dim ||
      args.out.cols != args.q.cols) {
    return Refuse(kOp, ": q ", Shape(args.q), ", out ", Shape(args.out), " for ", args.heads,
                  " heads and KV layout ", layout.Fingerprint());
  }
  if (!std::isfinite(args.scale)) return Refuse(kOp, ": scale is ", args.scale);
  if (args.window < 0) return Refuse(kOp, ": window is ", args.window);
  if (args.soft_cap != 0 && !(args.soft_cap >= 1e-3f && args.soft_cap <= 1e4f)) {
    return Refuse(kOp, ": soft cap is ", args.soft_cap, "; expected 0 or 0.001 to 10000");
  }
  return absl::OkStatus();
}

absl::Status CheckArgs(const AttentionArgs& args) {
  RETURN_IF_ERROR(CheckArgsInStep(args));
  return CheckSequences("attention", args.sequences, args.q.rows, args.kv.layout);
}

absl::Status CheckArgs(const SiluMulArgs& args) {
  constexpr absl::string_view kOp = "silu mul";
  RETURN_IF_ERROR(CheckTensor(kOp, "gate", args.gate));
  RETURN_IF_ERROR(CheckTensor(kOp, "up", args.up));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", args.out));
  if (args.gate.rows != args.up.rows || args.gate.rows != args.out.rows ||
      args.gate.cols != args.up.cols || args.gate.cols != args.out.cols) {
    return Refuse(kOp, ": gate ", Shape(args.gate), ", up ", Shape(args.up), ", out ",
                  Shape(args.out));
  }
  return absl::OkStatus();
}

absl::Status CheckArgs(const LogitsArgs& args) {
  constexpr absl::string_view kOp = "logits";
  RETURN_IF_ERROR(CheckTensor(kOp, "in", args.in));
  RETURN_IF_ERROR(CheckMatrix(kOp, "head", args.head));
  if (args.head.cols != args.in.cols) {
    return Refuse(kOp, ": in ", Shape(args.in), ", head ", Shape(args.head));
  }
  if (args.out.size() != args.rows.size() * args.head.rows) {
    return Refuse(kOp, ": room for ", args.out.size(), " logits, ", args.rows.size(), " rows of ",
                  args.head.rows, " are wanted");
  }
  for (const int row : args.rows) {
    if (row < 0 || row >= args.in.rows) return Refuse(kOp, ": row ", row, " of ", args.in.rows);
  }
  return absl::OkStatus();
}

}  // namespace baton
