#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/pulse.h"
#include "common/base/status_macros.h"
#include "kernels/backend/op_checks.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/event_pool.h"
#include "kernels/cuda/kernels/launches.h"
#include "kernels/cuda/layer_pages.h"
#include "kernels/cuda/step_graphs.h"
#include "kernels/cuda/step_memory.h"
#include "kernels/cuda/step_samples.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/cuda/upload_slab.h"
#include "kernels/cuda/weight_upload.h"

namespace baton {
namespace {

constexpr size_t kElement = 2;  // bytes of an activation or a weight
constexpr int kMaxGridY = 65535;

absl::Status CheckLoaded(absl::string_view op, const Matrix& weight) {
  if (weight.format == WeightFormat::kBF16) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(op, ": a weight of format ",
                                                 WeightFormatName(weight.format),
                                                 "; expected bf16, as LoadWeight gives it"));
}

// A GEMM refuses a stride smaller than a row, which a tensor of a single row may have.
int64_t StrideOf(const Tensor& t) { return std::max(t.stride, t.cols); }

template <typename T>
absl::Span<const std::byte> BytesOf(absl::Span<const T> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

// Returns true if the step has exactly one row per sequence, in order, and the logits of every row
// are wanted.
bool IsDecode(const StepArgs& step) {
  const size_t rows = step.tokens.size();
  if (step.sequences.size() != rows || step.logit_rows.size() != rows) return false;
  for (size_t i = 0; i < rows; ++i) {
    const int row = static_cast<int>(i);
    if (step.sequences[i].first_row != row || step.sequences[i].rows != 1 ||
        step.logit_rows[i] != row) {
      return false;
    }
  }
  return true;
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
        attention_(runtime_, stream_.get(), &kernels_, options.max_partial_bytes),
        gathered_(runtime_),
        logits_(runtime_),
        events_(runtime_),
        has_graphs_(options.graphs),
        samples_(runtime_, stream_.get(), &kernels_),
        graphs_(runtime_, stream_.get(), options.graph_counts) {}
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
    ASSIGN_OR_RETURN(auto memory, runtime_->Allocate(kElement * host.rows * host.cols));
    allocated_.push_back(memory);
    RETURN_IF_ERROR(weight_upload_.Upload(host, memory));
    return Matrix{memory, WeightFormat::kBF16, host.rows, host.cols};
  }

  bool copies_weights() const override { return true; }

  absl::StatusOr<Tensor> Allocate(int rows, int cols) override {
    if (rows < 0 || cols <= 0 || cols > (1 << 30)) {
      return absl::InvalidArgumentError(absl::StrCat("allocate: [", rows, ", ", cols, "]"));
    }
    const size_t bytes = ActivationBytes(rows, cols);
    ASSIGN_OR_RETURN(auto memory, runtime_->Allocate(bytes));
    allocated_.push_back(memory);
    // Zeros, because padding rows of a step are computed from whatever is in this memory.
    RETURN_IF_ERROR(runtime_->Fill(memory, 0, bytes, *stream_));
    RETURN_IF_ERROR(runtime_->Synchronize(*stream_));
    const int stride = static_cast<int>(bytes / (kElement * std::max(rows, 1)));
    return Tensor{memory, rows, cols, stride};
  }

  absl::Status Reserve(const StepLimits& limits) override {
    if (started_ > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("reserve: ", started_, " steps are started and not finished"));
    }
    const StepMemory memory = StepMemory::For(limits, runtime_->info().shared_bytes);
    RETURN_IF_ERROR(logit_rows_.Reserve(memory.logit_rows));
    RETURN_IF_ERROR(step_.Reserve(memory));
    RETURN_IF_ERROR(attention_.Reserve(memory));
    RETURN_IF_ERROR(gathered_.AtLeast(memory.gathered).status());
    RETURN_IF_ERROR(logits_.AtLeast(memory.logits).status());
    return samples_.Reserve(memory.sample_rows, memory.vocab);
  }

  absl::Status Embed(const EmbedArgs& args) override {
    RETURN_IF_ERROR(CheckArgs(args));
    RETURN_IF_ERROR(CheckLoaded("embed", args.table));
    if (args.out.rows == 0) return absl::OkStatus();
    const int32_t *tokens = nullptr, *follows = nullptr;
    RETURN_IF_ERROR(CheckStep("embed", args.step));
    if (args.step != nullptr) {
      if (args.tokens.size() != args.step->tokens.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "embed: ", args.tokens.size(), " tokens, in a step of ", args.step->tokens.size()));
      }
      tokens = step_.tables().tokens;
      if (samples_.tokens() != nullptr) follows = step_.tables().follows;
    } else {
      ASSIGN_OR_RETURN(const auto uploaded, tokens_.Upload(BytesOf(args.tokens)));
      tokens = reinterpret_cast<const int32_t*>(uploaded);
    }
    return Launch(kernels_.embedding, EmbeddingParams{.table = args.table.data,
                                                      .tokens = tokens,
                                                      .follows = follows,
                                                      .sampled = samples_.tokens(),
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
      // Puts the bias into `out`; the GEMM then adds its product to `out`.
      RETURN_IF_ERROR(Launch(kernels_.bias_rows, BiasRowsParams{.bias = args.bias.data,
                                                                .out = args.out.data,
                                                                .out_stride = args.out.stride,
                                                                .rows = args.out.rows,
                                                                .cols = args.out.cols,
                                                                .accumulate = accumulate}));
      accumulate = true;
    }
    return runtime_->Gemm({.in = args.in.data,
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
    RETURN_IF_ERROR(CheckStep("rope", args.step));
    RETURN_IF_ERROR(args.step != nullptr ? CheckArgsInStep(args) : CheckArgs(args));
    if (args.q.rows == 0 || args.sequences.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto step, RowsOf(args));
    if (args.step == nullptr) RETURN_IF_ERROR(step_.UploadRopes(args.ropes));
    ASSIGN_OR_RETURN(const auto ropes, step_.RopeTable());
    return Launch(kernels_.rope_write_kv,
                  RopeWriteKvParams{.step = step,
                                    .ropes = ropes.ropes,
                                    .table = ropes.table,
                                    .max_pairs = ropes.max_pairs,
                                    .shared = ropes.shared,
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
    const bool of_step = args.step != nullptr;
    RETURN_IF_ERROR(CheckStep("attention", args.step));
    RETURN_IF_ERROR(of_step ? CheckArgsInStep(args) : CheckArgs(args));
    const KvLayout& layout = args.kv.layout;
    if (layout.head_dim > kMaxHeadDim || layout.kv_heads > kMaxGridY) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention: ", layout.kv_heads, " KV heads of ", layout.head_dim,
                       " elements; at most ", kMaxGridY, " of ", kMaxHeadDim, " can be done"));
    }
    if (args.q.rows == 0 || args.sequences.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto step, RowsOf(args));
    RETURN_IF_ERROR(attention_.Attend({.step = step,
                                       .q = args.q.data,
                                       .out = args.out.data,
                                       .q_stride = args.q.stride,
                                       .out_stride = args.out.stride,
                                       .heads = args.heads,
                                       .window = args.window,
                                       .scale = args.scale,
                                       .soft_cap = args.soft_cap,
                                       .pages = PagesOf(args.kv, args.layer)},
                                      args.sequences, step_.rows_version(),
                                      of_step && fixed_.rows > 0 ? &fixed_ : nullptr));
    return of_step ? MarkLayer(args.layer) : absl::OkStatus();
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
    RETURN_IF_ERROR(CheckStep("logits", args.step));
    if (args.step != nullptr) return LogitsInStep(args);
    RETURN_IF_ERROR(CheckArgs(args));
    RETURN_IF_ERROR(CheckLoaded("logits", args.head));
    if (args.rows.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto rows, logit_rows_.Upload(BytesOf(args.rows)));
    RETURN_IF_ERROR(GatheredLogits(args, reinterpret_cast<const int32_t*>(rows)));
    RETURN_IF_ERROR(
        runtime_->Copy(args.out.data(), logits_.data(), args.out.size() * sizeof(float), *stream_));
    return Synchronize();
  }

  absl::Status Synchronize() override { return runtime_->Synchronize(*stream_); }

  absl::StatusOr<std::shared_ptr<DeviceEvent>> Record() override {
    auto event = events_.Take();
    RETURN_IF_ERROR(event.status());
    RETURN_IF_ERROR(runtime_->Record(**event, *stream_));
    if (marks_) steps_[next_].layers.push_back(*event);
    return event;
  }

  bool samples() const override { return true; }
  int max_sample_vocab() const override { return kMaxSampleVocab; }
  uint64_t NewProgram() override { return ++programs_; }

  absl::Status StartStep(const StepArgs& step, StepOps ops) override {
    if (started_ == kMaxSteps) {
      return absl::FailedPreconditionError(
          absl::StrCat("step: ", started_, " are started and not finished"));
    }
    RETURN_IF_ERROR(CheckArgs(step));
    const int rows = static_cast<int>(step.tokens.size());
    fixed_ = {};
    const bool is_decode = IsDecode(step);
    if (step.program != 0 && is_decode) {
      fixed_ = {.rows = StepGraphs::RowsFor(rows, step.max_rows), .context = step.context};
      for (const SequenceRows& sequence : step.sequences) {
        fixed_.ranges += sequence.first_position / kAttentionRange + 1;
      }
      if (!attention_.HasRoom(fixed_)) fixed_ = {};
    }
    padded_tokens_.assign(step.tokens.begin(), step.tokens.end());
    for (size_t row = 0; row < step.follows.size(); ++row) {
      if (step.follows[row] >= 0) padded_tokens_[row] = 0;
    }
    padded_tokens_.resize(std::max(rows, fixed_.rows));
    StepArgs padded = step;
    padded.tokens = padded_tokens_;
    for (Started& started : steps_) {
      if (started.ended != nullptr) continue;
      ASSIGN_OR_RETURN(auto event, runtime_->CreateEvent());
      started.ended = std::move(event);
    }
    absl::Status status = samples_.Prepare(step, /*recorded_rows=*/fixed_.rows);
    if (status.ok()) status = step_.Begin(step, padded.tokens, /*fixed=*/fixed_.rows > 0);
    if (!status.ok()) {
      samples_.Drop(/*is_put=*/false);
      return status;
    }
    in_step_ = &padded;
    marks_ = step.pulse != nullptr && !is_decode;
    steps_[next_].pulse = step.pulse;
    steps_[next_].layers.clear();
    status = RunStep(padded, ops);
    marks_ = false;
    in_step_ = nullptr;
    if (status.ok()) status = End(step);
    if (!status.ok()) {
      // When a failed step returns, none of its work may still be running.
      runtime_->Synchronize(*stream_).IgnoreError();
      samples_.Drop(/*is_put=*/true);
    }
    return status;
  }

  absl::Status FinishStep() override {
    if (started_ == 0) return absl::FailedPreconditionError("step: none is started");
    Started& oldest = steps_[(next_ + kMaxSteps - started_) % kMaxSteps];
    --started_;
    absl::Status status;
    for (const auto& layer : oldest.layers) {
      if (status.ok()) status = runtime_->Synchronize(*layer);
      if (status.ok()) oldest.pulse->Beat();
    }
    oldest.layers.clear();
    if (status.ok()) status = runtime_->Synchronize(*oldest.ended);
    // Tokens are taken even after an error. Otherwise the next step would get the tokens of this
    // one.
    const absl::Status taken =
        oldest.sampled.empty() ? absl::OkStatus() : samples_.Take(oldest.sampled);
    return status.ok() ? taken : status;
  }

  absl::StatusOr<std::shared_ptr<float[]>> AllocateResults(size_t floats) override {
    ASSIGN_OR_RETURN(auto memory,
                     runtime_->AllocatePinned(std::max<size_t>(floats, 1) * sizeof(float)));
    return std::shared_ptr<float[]>(reinterpret_cast<float*>(memory),
                                    [runtime = runtime_](float* freed) {
                                      runtime->FreePinned(reinterpret_cast<std::byte*>(freed));
                                    });
  }

 private:
  // Returns InvalidArgument unless `step` is the step whose operations are now being called, or
  // null if there is no such step. Any other operation would overwrite the inputs of the kernels of
  // that step.
  absl::Status CheckStep(absl::string_view operation, const StepArgs* step) const {
    if (step == in_step_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        operation, step == nullptr ? ": it names no step, and a step's operations are being called"
                                   : ": its step is not the one whose operations are called"));
  }

  // Returns the rows of the step that the operation belongs to. For an operation outside of a step,
  // uploads and returns the rows of its own sequences.
  template <typename Args>
  absl::StatusOr<StepRows> RowsOf(const Args& args) {
    if (args.step == nullptr) return step_.Rows(args.sequences, args.q.rows, args.kv.layout);
    if (args.q.rows == step_.rows().rows) return step_.rows();
    return absl::InvalidArgumentError(
        absl::StrCat("an operation on ", args.q.rows, " rows, in a step of ", step_.rows().rows));
  }

  // Records an event after the layer if the step needs one event per layer and this layer has none
  // yet.
  absl::Status MarkLayer(int layer) {
    if (!marks_ || static_cast<int>(steps_[next_].layers.size()) > layer) return absl::OkStatus();
    return Record().status();
  }

  absl::Status RunStep(const StepArgs& padded, StepOps ops) {
    const auto run = [&]() -> absl::Status {
      step_.BeginAgain();
      RETURN_IF_ERROR(ops(padded));
      const int wanted = static_cast<int>(padded.logit_rows.size());
      return samples_.Enqueue(reinterpret_cast<float*>(logits_.data()),
                              fixed_.rows > 0 ? fixed_.rows : wanted);
    };
    if (fixed_.rows == 0 || !has_graphs_) return run();
    const auto now_given = [&] {
      const KvLayout& kv = padded.kv.layout;
      StepGraphs::Given given = {padded.program, reinterpret_cast<uintptr_t>(padded.kv.data)};
      for (const int size : {kv.layers, kv.kv_heads, kv.head_dim, kv.block_tokens,
                             static_cast<int>(kv.type), padded.context}) {
        given.push_back(static_cast<uint64_t>(size));
      }
      given.push_back(attention_.HasRoom(fixed_));
      given.push_back(reinterpret_cast<uintptr_t>(logits_.data()));
      step_.AppendMemory(&given);
      attention_.AppendMemory(&given);
      samples_.AppendMemory(&given);
      return given;
    };
    return graphs_.Run(fixed_.rows, samples_.variant(), now_given, run);
  }

  // Computes the step's logits in logits_. End() copies them to the host.
  absl::Status LogitsInStep(LogitsArgs args) {
    args.out = absl::MakeSpan(args.out.data(), args.rows.size() * args.head.rows);
    RETURN_IF_ERROR(CheckArgs(args));
    RETURN_IF_ERROR(CheckLoaded("logits", args.head));
    if (args.head.rows != in_step_->vocab) {
      return absl::InvalidArgumentError(absl::StrCat("logits: ", args.head.rows,
                                                     " of a row, in a step whose vocabulary has ",
                                                     in_step_->vocab));
    }
    if (args.rows.size() != in_step_->logit_rows.size()) {
      return absl::InvalidArgumentError(absl::StrCat("logits: ", args.rows.size(),
                                                     " rows, in a step that wants ",
                                                     in_step_->logit_rows.size()));
    }
    if (args.rows.empty()) return absl::OkStatus();
    if (fixed_.rows == 0) return GatheredLogits(args, step_.tables().logit_rows);
    return LogitsOf(args.in.data, StrideOf(args.in), args.in.rows, args.head);
  }

  // Computes the logits of the rows in args.rows only, after gathering these rows. `rows` holds
  // args.rows in device memory.
  absl::Status GatheredLogits(const LogitsArgs& args, const int32_t* rows) {
    const int count = static_cast<int>(args.rows.size());
    ASSIGN_OR_RETURN(const auto gathered, gathered_.AtLeast(kElement * count * args.in.cols));
    RETURN_IF_ERROR(Launch(kernels_.gather_rows, GatherRowsParams{.in = args.in.data,
                                                                  .in_stride = args.in.stride,
                                                                  .rows = rows,
                                                                  .out = gathered,
                                                                  .count = count,
                                                                  .cols = args.in.cols}));
    return LogitsOf(gathered, args.in.cols, count, args.head);
  }

  absl::Status LogitsOf(const void* in, int64_t in_stride, int rows, const Matrix& head) {
    ASSIGN_OR_RETURN(const auto logits, logits_.AtLeast(sizeof(float) * rows * head.rows));
    return runtime_->Gemm({.in = in,
                           .in_stride = in_stride,
                           .weight = head.data,
                           .out = logits,
                           .out_stride = head.rows,
                           .out_type = DType::kF32,
                           .rows = rows,
                           .n = head.rows,
                           .k = head.cols},
                          *stream_);
  }

  // Copies to the host the logits of the rows for which no token is sampled. Neighbouring rows take
  // one copy.
  absl::Status CopyLogits(const StepArgs& step) {
    const size_t rows = step.logit_rows.size();
    const auto is_sampled = [&](size_t row) {
      return !step.samples.empty() && step.samples[row] != nullptr;
    };
    float* to = step.logits.data();
    for (size_t row = 0; row < rows; ++row) {
      const size_t first = row;
      while (row < rows && !is_sampled(row)) ++row;
      if (row == first) continue;
      const size_t floats = (row - first) * step.vocab;
      const std::byte* const from = logits_.data() + first * step.vocab * sizeof(float);
      RETURN_IF_ERROR(runtime_->Copy(to, from, floats * sizeof(float), *stream_));
      to += floats;
    }
    return absl::OkStatus();
  }

  // Enqueues the copies of the results and the event that ends the step.
  absl::Status End(const StepArgs& step) {
    RETURN_IF_ERROR(CopyLogits(step));
    Started& started = steps_[next_];
    started.sampled = step.sampled;
    RETURN_IF_ERROR(runtime_->Record(*started.ended, *stream_));
    // This must be the last call that can fail: once tokens are fetched, FinishStep must take them.
    RETURN_IF_ERROR(samples_.Fetch());
    next_ = (next_ + 1) % kMaxSteps;
    ++started_;
    return absl::OkStatus();
  }

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
  EventPool events_;
  std::vector<std::byte*> allocated_;  // weights and activations

  // True if decode steps are recorded and run as graphs (StepGraphs).
  const bool has_graphs_;
  uint64_t programs_ = 0;
  const StepArgs* in_step_ = nullptr;  // the step whose operations are being called
  // Padded rows, context and key ranges of in_step_, if that step may be recorded as a graph.
  // Otherwise fixed_.rows is 0.
  AttentionLaunches::FixedStep fixed_;
  std::vector<TokenId> padded_tokens_;
  struct Started {
    std::unique_ptr<DeviceEvent> ended;
    absl::Span<BackendSample> sampled;
    // One event after each layer of the step. Empty if the caller did not ask for these events, and
    // in decode steps.
    std::vector<std::shared_ptr<DeviceEvent>> layers;
    Pulse* pulse = nullptr;
  };
  Started steps_[kMaxSteps];
  int next_ = 0, started_ = 0;  // the next entry of steps_ to use, and the number of entries in use
  bool marks_ = false;          // true: an event is recorded after each layer of in_step_
  StepSamples samples_;
  StepGraphs graphs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options) {
  if (options.gemms) {
    RETURN_IF_ERROR(options.runtime->GemmStatus());
  }
  ASSIGN_OR_RETURN(auto stream, options.runtime->CreateStream(StreamKind::kCompute));
  return std::make_unique<CudaBackend>(options, std::move(stream));
}

}  // namespace baton
