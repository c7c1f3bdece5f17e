#include "common/model/reference_backend.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace baton {
namespace {

float* Row(const Tensor& tensor, int row) {
  return static_cast<float*>(tensor.data) + static_cast<size_t>(row) * tensor.stride;
}

float HalfToFloat(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const float sign = half >> 15 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

// Rounds to nearest, ties to even.
uint16_t FloatToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(size)) return sign | 0x7e00;
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size < std::ldexp(1.0f, -14)) {
    return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  }
  int exponent;
  const float fraction = std::frexp(size, &exponent);  // at least 0.5 and less than 1
  const auto mantissa = static_cast<uint32_t>(std::nearbyint(std::ldexp(fraction, 11)));
  return sign | static_cast<uint16_t>((exponent + 14) * 1024 + static_cast<int>(mantissa) - 1024);
}

uint16_t FloatToBfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

float Get(const void* data, DType type, size_t i) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(data) + 4 * i, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(data) + 2 * i, 2);
  if (type == DType::kF16) return HalfToFloat(bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void Put(std::byte* data, DType type, float value) {
  if (type == DType::kF32) {
    std::memcpy(data, &value, 4);
  } else {
    const uint16_t bits = type == DType::kF16 ? FloatToHalf(value) : FloatToBfloat(value);
    std::memcpy(data, &bits, 2);
  }
}

float At(const Matrix& matrix, int row, int col) {
  const auto type = ElementTypeOf(matrix.format);
  if (type) return Get(matrix.data, *type, static_cast<size_t>(row) * matrix.cols + col);
  std::vector<float> block(BlockValues(matrix.format));
  const int begin = col - col % static_cast<int>(block.size());
  Dequantise(matrix.format,
             static_cast<const std::byte*>(matrix.data) +
                 row * RowBytes(matrix.format, matrix.cols) + RowBytes(matrix.format, begin),
             absl::MakeSpan(block));
  return block[col - begin];
}

float Dot(const float* in, const Matrix& weight, int row) {
  double sum = 0;
  for (int i = 0; i < weight.cols; ++i) sum += double{in[i]} * At(weight, row, i);
  return sum;
}

// Returns the address of the K or V of one position and head.
std::byte* Slot(const KvView& kv, const SequenceRows& sequence, int position, int layer,
                KvLayout::Plane plane, int head) {
  const BlockId block = sequence.blocks[position / kv.layout.block_tokens];
  return kv.data + kv.layout.HeadOffset(block, layer, plane, head) +
         position % kv.layout.block_tokens * kv.layout.TokenBytes();
}

void Rotate(const float* in, const Rope& rope, int dim, int position, float* out) {
  const int half = rope.inverse_frequency.size();
  for (int i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * rope.inverse_frequency[i];
    const float cosine = std::cos(angle) * rope.scale, sine = std::sin(angle) * rope.scale;
    const float a = in[rope.interleaved ? 2 * i : i];
    const float b = in[rope.interleaved ? 2 * i + 1 : i + half];
    out[i] = a * cosine - b * sine;
    out[i + half] = b * cosine + a * sine;
  }
  std::copy(in + 2 * half, in + dim, out + 2 * half);
}

}  // namespace

absl::StatusOr<Tensor> ReferenceBackend::Allocate(int rows, int cols) {
  const size_t elements = static_cast<size_t>(rows) * cols;
  memory_.push_back(std::make_unique<float[]>(elements));
  std::fill_n(memory_.back().get(), elements, std::numeric_limits<float>::quiet_NaN());
  return Tensor{.data = memory_.back().get(), .rows = rows, .cols = cols, .stride = cols};
}

absl::Status ReferenceBackend::Embed(const EmbedArgs& args) {
  for (size_t row = 0; row < args.tokens.size(); ++row) {
    for (int i = 0; i < args.out.cols; ++i) {
      Row(args.out, row)[i] = At(args.table, args.tokens[row], i);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::RmsNorm(const RmsNormArgs& args) {
  const int n = args.weight.cols, groups = args.in.cols / n;
  for (int group = 0; group < args.in.rows * groups; ++group) {
    const float* in = Row(args.in, group / groups) + group % groups * n;
    float* out = Row(args.out, group / groups) + group % groups * n;
    double squares = 0;
    for (int i = 0; i < n; ++i) squares += double{in[i]} * in[i];
    const double scale = 1 / std::sqrt(squares / n + args.epsilon);
    for (int i = 0; i < n; ++i) out[i] = in[i] * scale * At(args.weight, 0, i);
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Gemm(const GemmArgs& args) {
  for (int row = 0; row < args.in.rows; ++row) {
    for (int i = 0; i < args.weight.rows; ++i) {
      float sum = Dot(Row(args.in, row), args.weight, i);
      if (args.bias.data != nullptr) sum += At(args.bias, 0, i);
      float& out = Row(args.out, row)[i];
      out = args.accumulate ? out + sum : sum;
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::RopeAndWriteKv(const RopeAndWriteKvArgs& args) {
  const int dim = args.kv.layout.head_dim;
  std::vector<float> rotated(dim);
  for (size_t s = 0; s < args.sequences.size(); ++s) {
    const SequenceRows& sequence = args.sequences[s];
    const Rope& rope = args.ropes[args.ropes.size() == 1 ? 0 : s];
    for (int i = 0; i < sequence.rows; ++i) {
      const int row = sequence.first_row + i, position = sequence.first_position + i;
      for (int head = 0; head < args.q.cols / dim; ++head) {
        Rotate(Row(args.q, row) + head * dim, rope, dim, position, rotated.data());
        std::copy(rotated.begin(), rotated.end(), Row(args.q, row) + head * dim);
      }
      for (int head = 0; head < args.kv.layout.kv_heads; ++head) {
        Rotate(Row(args.k, row) + head * dim, rope, dim, position, rotated.data());
        std::byte* k = Slot(args.kv, sequence, position, args.layer, KvLayout::kKeys, head);
        std::byte* v = Slot(args.kv, sequence, position, args.layer, KvLayout::kValues, head);
        for (int d = 0; d < dim; ++d) {
          const size_t at = d * DTypeBytes(args.kv.layout.type);
          Put(k + at, args.kv.layout.type, rotated[d]);
          Put(v + at, args.kv.layout.type, Row(args.v, row)[head * dim + d]);
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Attention(const AttentionArgs& args) {
  const KvLayout& layout = args.kv.layout;
  const int dim = layout.head_dim, group = args.heads / layout.kv_heads;
  for (const SequenceRows& sequence : args.sequences) {
    for (int i = 0; i < sequence.rows; ++i) {
      const int row = sequence.first_row + i, position = sequence.first_position + i;
      const int first = args.window > 0 ? std::max(0, position + 1 - args.window) : 0;
      for (int head = 0; head < args.heads; ++head) {
        const float* q = Row(args.q, row) + head * dim;
        std::vector<double> scores(position + 1), sum(dim);
        double largest = -INFINITY, total = 0;
        for (int p = first; p <= position; ++p) {
          const auto* k = Slot(args.kv, sequence, p, args.layer, KvLayout::kKeys, head / group);
          for (int d = 0; d < dim; ++d) scores[p] += double{q[d]} * Get(k, layout.type, d);
          scores[p] *= args.scale;
          if (args.soft_cap > 0) {
            scores[p] = args.soft_cap * std::tanh(scores[p] / args.soft_cap);
          }
          largest = std::max(largest, scores[p]);
        }
        for (int p = first; p <= position; ++p) {
          const auto* v = Slot(args.kv, sequence, p, args.layer, KvLayout::kValues, head / group);
          const double weight = std::exp(scores[p] - largest);
          total += weight;
          for (int d = 0; d < dim; ++d) sum[d] += weight * Get(v, layout.type, d);
        }
        for (int d = 0; d < dim; ++d) Row(args.out, row)[head * dim + d] = sum[d] / total;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::SiluMul(const SiluMulArgs& args) {
  for (int row = 0; row < args.gate.rows; ++row) {
    for (int i = 0; i < args.gate.cols; ++i) {
      const double gate = Row(args.gate, row)[i];
      Row(args.out, row)[i] = gate / (1 + std::exp(-gate)) * Row(args.up, row)[i];
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Logits(const LogitsArgs& args) {
  for (size_t i = 0; i < args.rows.size(); ++i) {
    for (int token = 0; token < args.head.rows; ++token) {
      args.out[i * args.head.rows + token] = Dot(Row(args.in, args.rows[i]), args.head, token);
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
