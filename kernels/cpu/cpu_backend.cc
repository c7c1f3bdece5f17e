#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/backend/op_checks.h"
#include "kernels/cpu/angle.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/isa_kernels.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/cpu/usable_cores.h"
#include "kernels/formats/quantised_product.h"
#include "kernels/formats/weight_group.h"

namespace baton {
namespace cpu {
namespace {

static_assert(static_cast<int>(DType::kF32) == static_cast<int>(Element::kF32) &&
              static_cast<int>(DType::kF16) == static_cast<int>(Element::kF16) &&
              static_cast<int>(DType::kBF16) == static_cast<int>(Element::kBf16));

// Blocks has the same order as the quantised formats.
constexpr int kFirstBlocks = static_cast<int>(WeightFormat::kQ4_0);
static_assert(static_cast<int>(WeightFormat::kQ6_K) - kFirstBlocks ==
              static_cast<int>(Blocks::kQ6_K));

// If an operation has less work than these limits, the calling thread does all of it: handing so
// little work to other threads would cost more than it saves.
constexpr int64_t kMinGemm = 256 << 10;      // weights * (rows + 3): reading a weight counts 3
constexpr int64_t kMinAttention = 64 << 10;  // multiply-adds
constexpr int64_t kMinElements = 32 << 10;

float* Row(const Tensor& t, int row) {
  return static_cast<float*>(t.data) + static_cast<ptrdiff_t>(row) * t.stride;
}

const std::byte* RowOf(const Matrix& m, ptrdiff_t row) {
  return static_cast<const std::byte*>(m.data) + row * RowBytes(m.format, m.cols);
}

// Writes heads whose pairs lie beside each other in the order of Rope.
void Deinterleave(const float* in, int heads, int head_dim, int pairs, float* out) {
  for (int head = 0; head < heads; ++head, in += head_dim, out += head_dim) {
    for (int i = 0; i < pairs; ++i) {
      out[i] = in[2 * i];
      out[i + pairs] = in[2 * i + 1];
    }
    std::copy(in + 2 * pairs, in + head_dim, out + 2 * pairs);
  }
}

// `m` must not be quantised.
Element ElementOf(const Matrix& m) { return static_cast<Element>(*ElementTypeOf(m.format)); }

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<float, Free>;

Memory AllocateFloats(size_t n) {
  return Memory(static_cast<float*>(std::aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64)));
}

// Scratch memory that only grows.
class Scratch {
 public:
  // Returns at least `n` floats, 64-byte aligned. The old contents are lost. The pointer is valid
  // until the next call.
  float* Floats(size_t n) {
    if (n > size_) {
      memory_ = AllocateFloats(n);
      BATON_CHECK(memory_ != nullptr) << n << " floats of scratch memory";
      size_ = n;
    }
    return memory_.get();
  }

 private:
  Memory memory_;
  size_t size_ = 0;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Dispatch& dispatch, CpuNumerics numerics, int threads)
      : kernels_(*dispatch.f32),
        bf16_(dispatch.bf16),
        quantised_(dispatch.quantised),
        numerics_(numerics),
        team_(threads),
        thread_scratch_(threads) {}

  std::string numerics_id() const override {
    switch (numerics_) {
      case CpuNumerics::kF32:
        return "cpu-f32x16-v1";
      case CpuNumerics::kAmx:
        return "cpu-amx-bf16-v1";
      case CpuNumerics::kAvx512Bf16:
        return "cpu-avx512-bf16-v1";
      case CpuNumerics::kQ8:
        return "cpu-q8-v1";
    }
    return "?";
  }
  std::string Describe() const override {
    std::string text = absl::StrCat("cpu: ", kernels_.name);
    if (numerics_ == CpuNumerics::kQ8) {
      absl::StrAppend(&text, ", products of quantised weights by ",
                      quantised_ == nullptr ? "plain code" : quantised_->name);
    }
    if (bf16_ != nullptr) {
      absl::StrAppend(&text, ", GEMMs in ", CpuNumericsName(numerics_), " order by ", bf16_->name);
    }
    absl::StrAppend(&text, ", ", team_.threads(), team_.threads() == 1 ? " thread" : " threads");
    return text;
  }

  absl::StatusOr<Matrix> LoadWeight(const Matrix& host) override {
    RETURN_IF_ERROR(CheckWeight(host));
    return host;
  }

  absl::StatusOr<Tensor> Allocate(int rows, int cols) override {
    if (rows < 0 || cols <= 0 || cols > (1 << 30)) {
      return absl::InvalidArgumentError(absl::StrCat("allocate: [", rows, ", ", cols, "]"));
    }
    const int stride = static_cast<int>(RoundUp16(cols));
    Memory memory = AllocateFloats(std::max<size_t>(static_cast<size_t>(rows) * stride, 1));
    if (memory == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("allocate: no memory for [", rows, ", ", cols, "] floats"));
    }
    allocated_.push_back(std::move(memory));
    return Tensor{allocated_.back().get(), rows, cols, stride};
  }

  absl::Status Embed(const EmbedArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    ForRows(args.out.rows, args.out.cols,
            [&](int row, int) { Widen(args.table, args.tokens[row], Row(args.out, row)); });
    return absl::OkStatus();
  }

  absl::Status RmsNorm(const RmsNormArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    const int n = args.weight.cols;
    ForRows(args.in.rows, args.in.cols, [&](int row, int) {
      for (int begin = 0; begin < args.in.cols; begin += n) {
        kernels_.rms_norm(Row(args.in, row) + begin, args.weight.data, ElementOf(args.weight),
                          args.epsilon, n, Row(args.out, row) + begin);
      }
    });
    return absl::OkStatus();
  }

  absl::Status Gemm(const GemmArgs& args) override { return Gemms({&args, 1}); }
  absl::Status Gemms(absl::Span<const GemmArgs> all) override {
    size_t bias_floats = 0;
    for (const GemmArgs& args : all) {
      RETURN_IF_ERROR(CheckArgs(args));
      if (args.in.data != all[0].in.data || args.in.rows != all[0].in.rows ||
          args.in.cols != all[0].in.cols) {
        return absl::InvalidArgumentError("gemms: they have several inputs");
      }
      if (args.bias.data != nullptr) bias_floats += args.bias.cols;
    }
    if (all.empty() || all[0].in.rows == 0) return absl::OkStatus();
    float* bias = bias_.Floats(bias_floats);
    products_.clear();
    for (const GemmArgs& args : all) {
      products_.push_back({.weight = args.weight,
                           .bias = args.bias.data != nullptr ? bias : nullptr,
                           .accumulate = args.accumulate,
                           .out = static_cast<float*>(args.out.data),
                           .out_stride = args.out.stride});
      if (args.bias.data == nullptr) continue;
      Widen(args.bias, 0, bias);
      bias += args.bias.cols;
    }
    Multiply(all[0].in, products_);
    return absl::OkStatus();
  }

  absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    const KvLayout& layout = args.kv.layout;
    for (size_t s = 0; s < args.sequences.size(); ++s) {
      const SequenceRows& sequence = args.sequences[s];
      const Rope& rope = args.ropes[args.ropes.size() == 1 ? 0 : s];
      ForRows(sequence.rows, args.q.cols + 2 * args.k.cols, [&](int i, int thread) {
        const int row = sequence.first_row + i, position = sequence.first_position + i;
        const int pairs = static_cast<int>(rope.inverse_frequency.size());
        float* cosine = thread_scratch_[thread].Floats(2 * pairs + args.k.cols +
                                                       (rope.interleaved ? args.q.cols : 0));
        float* sine = cosine + pairs;
        float* k = sine + pairs;
        float* ordered = k + args.k.cols;  // q or k in order, if they are interleaved
        const auto in_order = [&](const Tensor& from) -> const float* {
          if (!rope.interleaved) return Row(from, row);
          Deinterleave(Row(from, row), from.cols / layout.head_dim, layout.head_dim, pairs,
                       ordered);
          return ordered;
        };
        for (int j = 0; j < pairs; ++j) {
          // The angle is rounded to float, as in the code that the models were trained with.
          CosSin(static_cast<float>(position) * rope.inverse_frequency[j], &cosine[j], &sine[j]);
          cosine[j] *= rope.scale;
          sine[j] *= rope.scale;
        }
        kernels_.rotate({.in = in_order(args.q),
                         .out = Row(args.q, row),
                         .heads = args.q.cols / layout.head_dim,
                         .head_dim = layout.head_dim,
                         .pairs = pairs,
                         .cosine = cosine,
                         .sine = sine});
        kernels_.rotate({.in = in_order(args.k),
                         .out = k,
                         .heads = layout.kv_heads,
                         .head_dim = layout.head_dim,
                         .pairs = pairs,
                         .cosine = cosine,
                         .sine = sine});
        const BlockId block = sequence.blocks[position / layout.block_tokens];
        const size_t slot = position % layout.block_tokens * layout.TokenBytes();
        for (int head = 0; head < layout.kv_heads; ++head) {
          const auto write = [&](KvLayout::Plane plane, const float* in) {
            kernels_.narrow(
                in + head * layout.head_dim, layout.head_dim, static_cast<Element>(layout.type),
                args.kv.data + layout.HeadOffset(block, args.layer, plane, head) + slot);
          };
          write(KvLayout::kKeys, k);
          write(KvLayout::kValues, Row(args.v, row));
        }
      });
    }
    return absl::OkStatus();
  }

  absl::Status Attention(const AttentionArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    const KvLayout& layout = args.kv.layout;
    const int group = args.heads / layout.kv_heads;
    const int tile_rows = std::max(1, kAttendQueries / group);
    tasks_.clear();
    int64_t work = 0;
    for (const SequenceRows& sequence : args.sequences) {
      const int keys = sequence.first_position + sequence.rows;
      work += int64_t{sequence.rows} * args.q.cols * 2 *
              (args.window > 0 ? std::min(keys, args.window) : keys);
      const int tiles = (sequence.rows + tile_rows - 1) / tile_rows;
      // Items are started in the order of this list. The last tile of queries has the most keys to
      // read, so it comes first.
      for (int tile = tiles - 1; tile >= 0; --tile) {
        const int begin = tile * tile_rows, end = std::min(begin + tile_rows, sequence.rows);
        for (int head = 0; head < layout.kv_heads; ++head) {
          tasks_.push_back(TaskOf(args, sequence, begin, end, head));
        }
      }
    }
    size_t scratch = 0;
    for (const AttentionTask& task : tasks_) {
      scratch = std::max(scratch, kernels_.attend_scratch(task.rows * task.group, layout.head_dim));
    }
    const int tasks = static_cast<int>(tasks_.size());
    const bool alone = work < kMinAttention;
    if (!alone && team_.threads() > 1 && tasks < 4 * team_.threads()) {
      AttendBySpans(scratch);
      return absl::OkStatus();
    }
    Run(tasks, alone, [&](int item, int thread) {
      kernels_.attend(tasks_[item], thread_scratch_[thread].Floats(scratch));
    });
    return absl::OkStatus();
  }

  absl::Status SiluMul(const SiluMulArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    ForRows(args.out.rows, args.out.cols, [&](int row, int) {
      kernels_.silu_mul(Row(args.gate, row), Row(args.up, row), args.out.cols, Row(args.out, row));
    });
    return absl::OkStatus();
  }

  absl::Status Logits(const LogitsArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    if (args.rows.empty()) return absl::OkStatus();
    const int stride = static_cast<int>(RoundUp16(args.in.cols));
    float* gathered = gathered_.Floats(args.rows.size() * stride);
    for (size_t i = 0; i < args.rows.size(); ++i) {
      std::memcpy(gathered + i * stride, Row(args.in, args.rows[i]), args.in.cols * sizeof(float));
    }
    const Product product = {
        .weight = args.head, .out = args.out.data(), .out_stride = args.head.rows};
    Multiply({gathered, static_cast<int>(args.rows.size()), args.in.cols, stride}, {&product, 1});
    return absl::OkStatus();
  }

  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  void Run(int items, bool alone, absl::FunctionRef<void(int, int)> body) {
    if (alone) {
      for (int item = 0; item < items; ++item) body(item, 0);
    } else {
      team_.Run(items, body);
    }
  }

  void ForRows(int rows, int cols, absl::FunctionRef<void(int row, int thread)> body) {
    const int64_t elements = int64_t{rows} * cols;
    const int pieces = static_cast<int>(std::min<int64_t>(rows, 4 * team_.threads()));
    Run(pieces, elements < kMinElements, [&](int piece, int thread) {
      const int end = static_cast<int>(int64_t{piece + 1} * rows / pieces);
      for (int row = static_cast<int>(int64_t{piece} * rows / pieces); row < end; ++row) {
        body(row, thread);
      }
    });
  }

  // Writes the values of a row of weights.
  void Widen(const Matrix& matrix, int row, float* out) {
    if (IsQuantised(matrix.format)) {
      Dequantise(matrix.format, RowOf(matrix, row), {out, static_cast<size_t>(matrix.cols)});
    } else {
      kernels_.widen(RowOf(matrix, row), ElementOf(matrix), matrix.cols, out);
    }
  }

  // One of the GEMMs that are computed together.
  struct Product {
    Matrix weight;
    const float* bias = nullptr;
    bool accumulate = false;
    float* out = nullptr;
    ptrdiff_t out_stride = 0;
  };
  // Weight rows [n0, n1) of a product with activation rows [m0, m1), which one thread computes.
  struct Piece {
    size_t product;
    int n0, n1, m0, m1;
  };

  // Cuts products with `m` rows into pieces_. There are about eight for each thread, but none has
  // less than a panel of weight rows. So a thread whose core is slow for a while can compute fewer
  // pieces than the others. Returns true if the calling thread had better do all of them.
  bool Cut(absl::Span<const Product> products, int m, int panel, int max_rows, int block) {
    int64_t n = 0;
    for (const Product& product : products) n += product.weight.rows;
    const bool alone = n * products[0].weight.cols * (m + 3) < kMinGemm;
    const int64_t wanted = alone ? 1 : 8 * team_.threads();
    const int rows =
        static_cast<int>(std::min<int64_t>((n + wanted - 1) / wanted, max_rows) + panel - 1) /
        panel * panel;
    in_order_.clear();
    for (size_t i = 0; i < products.size(); ++i) {
      const int outputs = products[i].weight.rows;
      for (int n0 = 0; n0 < outputs; n0 += rows) {
        for (int m0 = 0; m0 < m; m0 += block) {
          in_order_.push_back({i, n0, std::min(outputs, n0 + rows), m0, std::min(m, m0 + block)});
        }
      }
    }
    // One part of the pieces for each thread, and a piece of each part in turns. So threads that
    // take turns take pieces that follow one another: kernels prefetch the weights behind their
    // piece.
    const size_t count = in_order_.size(), parts = alone ? 1 : team_.threads();
    pieces_.clear();
    for (size_t turn = 0; pieces_.size() < count; ++turn) {
      for (size_t part = 0; part < parts; ++part) {
        const size_t at = part * count / parts + turn;
        if (at < (part + 1) * count / parts) pieces_.push_back(in_order_[at]);
      }
    }
    return alone;
  }

  // Computes products of one input. Those of one kind share what is made of the input.
  void Multiply(const Tensor& in, absl::Span<const Product> products) {
    const auto all = [&](auto of_kind) {
      return std::all_of(products.begin(), products.end(),
                         [&](const Product& one) { return of_kind(one.weight.format); });
    };
    if (quantised_ != nullptr && all(IsQuantised)) return MultiplyQuantised(in, products);
    if (bf16_ != nullptr && all([](WeightFormat f) { return f == WeightFormat::kBF16; })) {
      return MultiplyBf16(in, products);
    }
    for (const Product& one : products) {
      MultiplyOne(in, one.weight, one.bias, one.accumulate, one.out, one.out_stride);
    }
  }

  void MultiplyOne(const Tensor& in, const Matrix& weight, const float* bias, bool accumulate,
                   float* out, ptrdiff_t out_stride) {
    const Product product = {weight, bias, accumulate, out, out_stride};
    if (IsQuantised(weight.format)) {
      if (quantised_ != nullptr) return MultiplyQuantised(in, {&product, 1});
      return numerics_ == CpuNumerics::kQ8
                 ? MultiplyPlainly(in, weight, bias, accumulate, out, out_stride)
                 : MultiplyWidened(in, weight, bias, accumulate, out, out_stride);
    }
    if (bf16_ != nullptr && weight.format == WeightFormat::kBF16) {
      return MultiplyBf16(in, {&product, 1});
    }
    GemmTask task{.x = static_cast<const float*>(in.data),
                  .x_stride = in.stride,
                  .w = weight.data,
                  .type = ElementOf(weight),
                  .k = weight.cols,
                  .bias = bias,
                  .out = out,
                  .out_stride = out_stride,
                  .accumulate = accumulate};
    if (in.cols % 16 != 0) {
      task.x_stride = RoundUp16(in.cols);
      float* padded = padded_.Floats(in.rows * task.x_stride);
      for (int row = 0; row < in.rows; ++row) {
        float* to = padded + row * task.x_stride;
        std::memcpy(to, Row(in, row), in.cols * sizeof(float));
        std::fill(to + in.cols, to + task.x_stride, 0.0f);
      }
      task.x = padded;
    }
    const int m = in.rows, n = weight.rows;
    const bool alone = int64_t{n} * weight.cols * (m + 3) < kMinGemm;
    if (m <= kernels_.small_rows) {
      // The weight rows are cut into eight pieces per thread, but no piece is smaller than 24 rows.
      const int wanted = alone ? 1 : 8 * team_.threads();
      const int piece = std::max(24, ((n + wanted - 1) / wanted + 23) / 24 * 24);
      Run((n + piece - 1) / piece, alone, [&](int item, int) {
        kernels_.gemm_small(task, 0, m, item * piece, std::min(n, (item + 1) * piece));
      });
      return;
    }
    const int panels = (n + kPanelCols - 1) / kPanelCols;
    const int blocks = (m + kBlockRows - 1) / kBlockRows;
    Run(panels * blocks, alone, [&](int item, int thread) {
      const int n0 = item / blocks * kPanelCols, block = item % blocks;
      kernels_.gemm(task, static_cast<int>(int64_t{block} * m / blocks),
                    static_cast<int>(int64_t{block + 1} * m / blocks), n0,
                    std::min(n, n0 + kPanelCols),
                    thread_scratch_[thread].Floats(kernels_.gemm_scratch));
    });
  }

  // Multiplies with the exact values of quantised weights, as if they were stored as floats: the
  // bits are the same.
  void MultiplyWidened(const Tensor& in, const Matrix& weight, const float* bias, bool accumulate,
                       float* out, ptrdiff_t out_stride) {
    const int m = in.rows, n = weight.rows;
    const ptrdiff_t k = weight.cols;
    const int panels = (n + kPanelCols - 1) / kPanelCols;
    const ptrdiff_t scratch = RoundUp16(static_cast<ptrdiff_t>(kernels_.gemm_scratch));
    Run(panels, int64_t{n} * k * (m + 3) < kMinGemm, [&](int item, int thread) {
      const int n0 = item * kPanelCols, cols = std::min(kPanelCols, n - n0);
      float* const for_gemm = thread_scratch_[thread].Floats(scratch + kPanelCols * k);
      float* const wide = for_gemm + scratch;
      for (int i = 0; i < cols; ++i) Widen(weight, n0 + i, wide + i * k);
      const GemmTask task{.x = static_cast<const float*>(in.data),
                          .x_stride = in.stride,
                          .w = wide,
                          .type = Element::kF32,
                          .k = k,
                          .bias = bias == nullptr ? nullptr : bias + n0,
                          .out = out + n0,
                          .out_stride = out_stride,
                          .accumulate = accumulate};
      if (m <= kernels_.small_rows) return kernels_.gemm_small(task, 0, m, 0, cols);
      for (int m0 = 0; m0 < m; m0 += kBlockRows) {
        kernels_.gemm(task, m0, std::min(m, m0 + kBlockRows), 0, cols, for_gemm);
      }
    });
  }

  // Multiplies as quantised_product.h defines it.
  void MultiplyQuantised(const Tensor& in, absl::Span<const Product> products) {
    const int m = in.rows;
    const ptrdiff_t k = in.cols, groups = k / kGroupValues;
    const bool few = m <= kFewQuantisedRows && quantised_->for_few != nullptr;
    const QuantisedKernels& kernels = few ? *quantised_->for_few : *quantised_;
    // Three parts: the values, the scale of each group, and the sums of its halves.
    float* const scales = rounded_.Floats(m * groups * (3 + kGroupValues / sizeof(float)));
    auto* const sums = reinterpret_cast<int32_t*>(scales + m * groups);
    auto* const x = reinterpret_cast<int8_t*>(sums + 2 * m * groups);
    ForRows(m, in.cols, [&](int row, int) {
      kernels.quantise(Row(in, row), k, x + row * k, scales + row * groups,
                       sums + 2 * row * groups);
    });
    const bool alone = Cut(products, m, kernels.panel_rows, 1 << 30, kQuantisedRows);
    Run(static_cast<int>(pieces_.size()), alone, [&](int item, int thread) {
      const Piece& piece = pieces_[item];
      const Product& product = products[piece.product];
      const QuantisedTask task{
          .x = x,
          .x_scale = scales,
          .x_sums = sums,
          .k = k,
          .w = static_cast<const char*>(product.weight.data),
          .row_bytes = static_cast<ptrdiff_t>(RowBytes(product.weight.format, k)),
          .bias = product.bias,
          .out = product.out,
          .out_stride = product.out_stride,
          .accumulate = product.accumulate};
      float* const scratch = thread_scratch_[thread].Floats(kernels.scratch_bytes / sizeof(float));
      kernels.gemm[static_cast<int>(product.weight.format) - kFirstBlocks](
          task, piece.m0, piece.m1, piece.n0, piece.n1, reinterpret_cast<char*>(scratch));
    });
  }

  // Does the same by the plain implementation.
  void MultiplyPlainly(const Tensor& in, const Matrix& weight, const float* bias, bool accumulate,
                       float* out, ptrdiff_t out_stride) {
    constexpr int kRows = 16;  // weight rows in a piece of work
    const int m = in.rows, n = weight.rows;
    const size_t groups = weight.cols / WeightGroup::kValues;
    activations_.resize(m * groups);
    ForRows(m, weight.cols, [&](int row, int) {
      QuantiseActivations({Row(in, row), static_cast<size_t>(in.cols)},
                          absl::MakeSpan(activations_).subspan(row * groups, groups));
    });
    thread_groups_.resize(team_.threads());
    Run((n + kRows - 1) / kRows, int64_t{n} * weight.cols * (m + 3) < kMinGemm,
        [&](int item, int thread) {
          std::vector<WeightGroup>& unpacked = thread_groups_[thread];
          unpacked.resize(groups);
          for (int row = item * kRows; row < std::min(n, (item + 1) * kRows); ++row) {
            UnpackGroups(weight.format, RowOf(weight, row), absl::MakeSpan(unpacked));
            for (int i = 0; i < m; ++i) {
              float value = QuantisedProduct(
                  unpacked, absl::MakeConstSpan(activations_).subspan(i * groups, groups));
              if (bias != nullptr) value += bias[row];
              float& to = out[i * out_stride + row];
              to = accumulate ? to + value : value;
            }
          }
        });
  }

  void MultiplyBf16(const Tensor& in, absl::Span<const Product> products) {
    const int m = in.rows;
    const ptrdiff_t k = in.cols;
    const bool alone = Cut(products, m, bf16_->panel_cols, m <= 32 ? 1 << 30 : bf16_->group_cols,
                           bf16_->block_rows);
    char* packed =
        reinterpret_cast<char*>(padded_.Floats(bf16_->packed_bytes(m, k) / sizeof(float) + 1));
    Run((m + 15) / 16, alone || int64_t{m} * k < kMinElements, [&](int item, int) {
      bf16_->pack(static_cast<const float*>(in.data), in.stride, m, k, 16 * item, packed);
    });
    const size_t scratch =
        bf16_->scratch_bytes(std::min(m, bf16_->block_rows), k) / sizeof(float) + 1;
    Run(static_cast<int>(pieces_.size()), alone, [&](int item, int thread) {
      const Piece& piece = pieces_[item];
      const Product& product = products[piece.product];
      const Bf16Task task{.x = packed,
                          .m = m,
                          .k = k,
                          .w = static_cast<const Bf16*>(product.weight.data),
                          .bias = product.bias,
                          .out = product.out,
                          .out_stride = product.out_stride,
                          .accumulate = product.accumulate};
      bf16_->gemm(task, piece.m0, piece.m1, piece.n0, piece.n1,
                  reinterpret_cast<char*>(thread_scratch_[thread].Floats(scratch)));
    });
  }

  AttentionTask TaskOf(const AttentionArgs& args, const SequenceRows& sequence, int begin, int end,
                       int head) const {
    const KvLayout& layout = args.kv.layout;
    const int group = args.heads / layout.kv_heads, row = sequence.first_row + begin;
    const int position = sequence.first_position + begin;
    const int first_key = args.window > 0 ? std::max(0, position + 1 - args.window) : 0;
    const char* pool = reinterpret_cast<const char*>(args.kv.data);
    return {.q = Row(args.q, row) + head * group * layout.head_dim,
            .q_stride = args.q.stride,
            .out = Row(args.out, row) + head * group * layout.head_dim,
            .out_stride = args.out.stride,
            .rows = end - begin,
            .group = group,
            .head_dim = layout.head_dim,
            .first_position = position,
            .window = args.window,
            .first_span = first_key / kKeySpan,
            .scale = args.scale,
            .soft_cap = args.soft_cap,
            .keys = pool + layout.HeadOffset(0, args.layer, KvLayout::kKeys, head),
            .values = pool + layout.HeadOffset(0, args.layer, KvLayout::kValues, head),
            .block_bytes = layout.BlockBytes(),
            .token_bytes = layout.TokenBytes(),
            .block_tokens = layout.block_tokens,
            .blocks = sequence.blocks.data(),
            .type = static_cast<Element>(layout.type)};
  }

  // Computes attention when there are few tasks: each span of keys becomes a work item of its own.
  void AttendBySpans(size_t scratch) {
    spans_.clear();
    first_span_.clear();
    size_t floats = 0;
    for (size_t task = 0; task < tasks_.size(); ++task) {
      const AttentionTask& t = tasks_[task];
      const int last_span = static_cast<int>((t.first_position + t.rows - 1) / kKeySpan);
      first_span_.push_back(spans_.size());
      for (int span = t.first_span; span <= last_span; ++span) {
        spans_.push_back({static_cast<int>(task), span, floats});
        floats += kernels_.attend_partial(t.rows * t.group, t.head_dim);
      }
    }
    float* partials = partials_.Floats(floats);
    team_.Run(static_cast<int>(spans_.size()), [&](int item, int thread) {
      const Span& span = spans_[item];
      kernels_.attend_span(tasks_[span.task], span.span, partials + span.offset,
                           thread_scratch_[thread].Floats(scratch));
    });
    for (size_t task = 0; task < tasks_.size(); ++task) {
      kernels_.attend_merge(tasks_[task], partials + spans_[first_span_[task]].offset,
                            thread_scratch_[0].Floats(scratch));
    }
  }

  struct Span {
    int task;
    int span;
    size_t offset;
  };

  const IsaKernels& kernels_;
  const Bf16Kernels* const bf16_;            // null: kernels_ does all GEMMs
  const QuantisedKernels* const quantised_;  // null: the plain implementation
  const CpuNumerics numerics_;
  ThreadTeam team_;
  std::vector<Scratch> thread_scratch_;  // one per thread of the team
  Scratch bias_, padded_, rounded_, gathered_, partials_;
  std::vector<ActivationGroup> activations_;  // [rows, groups], for the plain implementation
  std::vector<std::vector<WeightGroup>> thread_groups_;  // per thread: one row of its weights
  std::vector<Product> products_;
  std::vector<Piece> in_order_, pieces_;
  std::vector<AttentionTask> tasks_;
  std::vector<Span> spans_;
  std::vector<size_t> first_span_;
  std::vector<Memory> allocated_;
};

}  // namespace
}  // namespace cpu

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    return absl::InvalidArgumentError(absl::StrCat(
        "CPU backend: ", options.threads, " threads; it takes 0 (one per core) to ", "1024"));
  }
  ASSIGN_OR_RETURN(const auto dispatch, cpu::Choose(options));
  const int threads = options.threads > 0 ? options.threads : cpu::UsableCores();
  return std::make_unique<cpu::CpuBackend>(dispatch, options.numerics, threads);
}

}  // namespace baton
