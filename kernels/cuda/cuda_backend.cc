#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/launches.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/cuda/upload_slab.h"
#include "kernels/cuda/weight_upload.h"
#include "kernels/op_checks.h"

namespace baton {
namespace {

#define RETURN_IF_ERROR(expression) \
  if (absl::Status status_ = (expression); !status_.ok()) return status_

constexpr size_t kElement = 2;  // bytes of an activation or a weight
constexpr int kMaxGridY = 65535;

absl::Status CheckLoaded(absl::string_view op, const Matrix& weight) {
  if (weight.type == DType::kBF16) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(op, ": a weight of type ", DTypeName(weight.type),
                                                 "; expected bf16, as LoadWeight gives it"));
}

// A single row may have any stride, which a product would refuse.
int64_t StrideOf(const Tensor& t) { return std::max(t.stride, t.cols); }

LayerPages PagesOf(const KvView& kv, int layer) {
  const KvLayout& layout = kv.layout;
  return {.data = kv.data,
          .block_bytes = static_cast<int64_t>(layout.BlockBytes()),
          .key_offset = static_cast<int64_t>(layout.HeadOffset(0, layer, KvLayout::kKeys, 0)),
          .value_offset = static_cast<int64_t>(layout.HeadOffset(0, layer, KvLayout::kValues, 0)),
          .head_bytes = static_cast<int64_t>(layout.HeadBytes()),
          .block_tokens = layout.block_tokens,
          .kv_heads = layout.kv_heads,
          .head_dim = layout.head_dim,
          .type = layout.type};
}

template <typename T>
absl::Span<const std::byte> BytesOf(absl::Span<const T> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaBackendOptions& options, std::unique_ptr<DeviceStream> stream)
      : runtime_(options.runtime),
        kernels_(options.kernels),
        name_(options.name),
        stream_(std::move(stream)),
        weight_upload_(runtime_, stream_.get()),
        tokens_(runtime_, stream_.get()),
        logit_rows_(runtime_, stream_.get()),
        step_(runtime_, stream_.get(), &kernels_),
        attention_(runtime_, stream_.get(), &kernels_),
        gathered_(runtime_),
        logits_(runtime_) {}
  ~CudaBackend() override {
    for (std::byte* memory : allocated_) runtime_->Free(memory);
  }

  std::string numerics_id() const override { return absl::StrCat(name_, "-bf16-v1"); }
  std::string Describe() const override {
    const DeviceInfo& info = runtime_->info();
    return absl::StrFormat("%s: %s (%d.%d), %d multiprocessors, %.1f GiB", name_, info.name,
                           info.major, info.minor, info.multiprocessors, info.total_bytes / 0x1p30);
  }

  absl::StatusOr<Matrix> LoadWeight(const Matrix& host) override {
    RETURN_IF_ERROR(CheckWeight(host));
    auto memory = runtime_->Allocate(kElement * host.rows * host.cols);
    if (!memory.ok()) return memory.status();
    allocated_.push_back(*memory);
    RETURN_IF_ERROR(weight_upload_.Upload(host, *memory));
    return Matrix{*memory, DType::kBF16, host.rows, host.cols};
  }

  absl::StatusOr<Tensor> Allocate(int rows, int cols) override {
    if (rows < 0 || cols <= 0 || cols > (1 << 30)) {
      return absl::InvalidArgumentError(absl::StrCat("allocate: [", rows, ", ", cols, "]"));
    }
    const int stride = (cols + 7) / 8 * 8;  // rows aligned to 16 bytes
    auto memory = runtime_->Allocate(kElement * std::max(rows, 1) * stride);
    if (!memory.ok()) return memory.status();
    allocated_.push_back(*memory);
    return Tensor{*memory, rows, cols, stride};
  }

  absl::Status Embed(const EmbedArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    RETURN_IF_ERROR(CheckLoaded("embed", args.table));
    if (args.out.rows == 0) return absl::OkStatus();
    const auto tokens = tokens_.Upload(BytesOf(args.tokens));
    if (!tokens.ok()) return tokens.status();
    return Launch(kernels_.embedding,
                  EmbeddingParams{.table = args.table.data,
                                  .tokens = reinterpret_cast<const int32_t*>(*tokens),
                                  .out = args.out.data,
                                  .out_stride = args.out.stride,
                                  .rows = args.out.rows,
                                  .hidden = args.out.cols});
  }

  absl::Status RmsNorm(const RmsNormArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    RETURN_IF_ERROR(CheckLoaded("rms norm", args.weight));
    if (args.in.rows == 0) return absl::OkStatus();
    return Launch(kernels_.rms_norm, RmsNormParams{.in = args.in.data,
                                                   .in_stride = args.in.stride,
                                                   .weight = args.weight.data,
                                                   .out = args.out.data,
                                                   .out_stride = args.out.stride,
                                                   .rows = args.in.rows,
                                                   .groups = args.in.cols / args.weight.cols,
                                                   .n = args.weight.cols,
                                                   .epsilon = args.epsilon});
  }

  absl::Status Gemm(const GemmArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    RETURN_IF_ERROR(CheckLoaded("gemm", args.weight));
    if (args.in.rows == 0) return absl::OkStatus();
    bool accumulate = args.accumulate;
    if (args.bias.data != nullptr) {
      RETURN_IF_ERROR(CheckLoaded("gemm", args.bias));
      // The product then adds itself to the bias, as to a residual.
      RETURN_IF_ERROR(Launch(kernels_.bias_rows, BiasRowsParams{.bias = args.bias.data,
                                                                .out = args.out.data,
                                                                .out_stride = args.out.stride,
                                                                .rows = args.out.rows,
                                                                .cols = args.out.cols,
                                                                .accumulate = accumulate}));
      accumulate = true;
    }
    return runtime_->Product({.in = args.in.data,
                              .in_stride = StrideOf(args.in),
                              .weight = args.weight.data,
                              .out = args.out.data,
                              .out_stride = StrideOf(args.out),
                              .out_type = DType::kBF16,
                              .rows = args.in.rows,
                              .n = args.weight.rows,
                              .k = args.weight.cols,
                              .accumulate = accumulate},
                             *stream_);
  }

  absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    if (args.q.rows == 0 || args.sequences.empty()) return absl::OkStatus();
    const auto step = step_.Rows(args.sequences, args.q.rows, args.kv.layout);
    if (!step.ok()) return step.status();
    const auto ropes = step_.RopeTable(args.ropes, *step);
    if (!ropes.ok()) return ropes.status();
    return Launch(kernels_.rope_write_kv,
                  RopeWriteKvParams{.step = *step,
                                    .ropes = ropes->ropes,
                                    .table = ropes->table,
                                    .max_pairs = ropes->max_pairs,
                                    .shared = ropes->shared,
                                    .q = args.q.data,
                                    .k = args.k.data,
                                    .v = args.v.data,
                                    .q_stride = args.q.stride,
                                    .k_stride = args.k.stride,
                                    .v_stride = args.v.stride,
                                    .heads = args.q.cols / args.kv.layout.head_dim,
                                    .pages = PagesOf(args.kv, args.layer)});
  }

  absl::Status Attention(const AttentionArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    const KvLayout& layout = args.kv.layout;
    if (layout.head_dim > kMaxHeadDim || layout.kv_heads > kMaxGridY) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention: ", layout.kv_heads, " KV heads of ", layout.head_dim,
                       " elements; at most ", kMaxGridY, " of ", kMaxHeadDim, " can be done"));
    }
    if (args.q.rows == 0 || args.sequences.empty()) return absl::OkStatus();
    const auto step = step_.Rows(args.sequences, args.q.rows, layout);
    if (!step.ok()) return step.status();
    return attention_.Attend({.step = *step,
                              .q = args.q.data,
                              .out = args.out.data,
                              .q_stride = args.q.stride,
                              .out_stride = args.out.stride,
                              .heads = args.heads,
                              .window = args.window,
                              .scale = args.scale,
                              .pages = PagesOf(args.kv, args.layer)},
                             args.sequences, step_.rows_version());
  }

  absl::Status SiluMul(const SiluMulArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    if (args.out.rows == 0) return absl::OkStatus();
    return Launch(kernels_.silu_mul, SiluMulParams{.gate = args.gate.data,
                                                   .up = args.up.data,
                                                   .out = args.out.data,
                                                   .gate_stride = args.gate.stride,
                                                   .up_stride = args.up.stride,
                                                   .out_stride = args.out.stride,
                                                   .rows = args.out.rows,
                                                   .cols = args.out.cols});
  }

  absl::Status Logits(const LogitsArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    RETURN_IF_ERROR(CheckLoaded("logits", args.head));
    if (args.rows.empty()) return absl::OkStatus();
    const int count = static_cast<int>(args.rows.size());
    const auto rows = logit_rows_.Upload(BytesOf(args.rows));
    if (!rows.ok()) return rows.status();
    const auto gathered = gathered_.AtLeast(kElement * count * args.in.cols);
    if (!gathered.ok()) return gathered.status();
    const auto logits = logits_.AtLeast(args.out.size() * sizeof(float));
    if (!logits.ok()) return logits.status();
    RETURN_IF_ERROR(Launch(kernels_.gather_rows,
                           GatherRowsParams{.in = args.in.data,
                                            .in_stride = args.in.stride,
                                            .rows = reinterpret_cast<const int32_t*>(*rows),
                                            .out = *gathered,
                                            .count = count,
                                            .cols = args.in.cols}));
    RETURN_IF_ERROR(runtime_->Product({.in = *gathered,
                                       .in_stride = args.in.cols,
                                       .weight = args.head.data,
                                       .out = *logits,
                                       .out_stride = args.head.rows,
                                       .out_type = DType::kF32,
                                       .rows = count,
                                       .n = args.head.rows,
                                       .k = args.head.cols},
                                      *stream_));
    RETURN_IF_ERROR(
        runtime_->Copy(args.out.data(), *logits, args.out.size() * sizeof(float), *stream_));
    return Synchronize();
  }

  absl::Status Synchronize() override {
    step_.ForgetViews();
    return runtime_->Synchronize(*stream_);
  }

 private:
  template <typename Params>
  absl::Status Launch(const Kernel& kernel, const Params& params) {
    return runtime_->Launch(kernel, LaunchOf(params), params, *stream_);
  }

  DeviceRuntime* const runtime_;
  const KernelTable kernels_;
  const std::string name_;
  const std::unique_ptr<DeviceStream> stream_;
  WeightUpload weight_upload_;
  UploadSlab tokens_, logit_rows_;
  StepUpload step_;
  AttentionLaunches attention_;
  DeviceBuffer gathered_, logits_;
  std::vector<std::byte*> allocated_;  // weights and activations
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options) {
  auto stream = options.runtime->CreateStream(StreamKind::kCompute);
  if (!stream.ok()) return stream.status();
  return std::make_unique<CudaBackend>(options, *std::move(stream));
}

}  // namespace baton
