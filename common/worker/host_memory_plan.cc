#include "common/worker/host_memory_plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/byte_size.h"
#include "common/model/forward_pass.h"
#include "common/model/model.h"
#include "kv_transfer/kv_meta.h"

namespace baton {
namespace {

constexpr int64_t kMaxHostBlocks = 1 << 30;
constexpr uint64_t kMib = 1 << 20;
// Memory of gRPC, of UCX with its shared memory segments, of code and of page tables. An idle
// worker was measured at 15 to 25 MiB.
constexpr uint64_t kProcessBytes = 64 * kMib;
// Memory of one compute thread: its stack, allocator arena and scratch memory.
constexpr uint64_t kThreadBytes = 8 * kMib;
// Attention over few rows is cut into tasks, four per thread. A task covers 64 queries and writes a
// partial result for every 1024 keys (kernels/cpu).
constexpr uint64_t kQueriesOfTask = 64, kKeysOfPartial = 1024, kTasksOfThread = 4;

// Each thread widens quantised weights to floats, a panel of columns at a time (kernels/cpu).
constexpr uint64_t kWidenedCols = 24;

// Rounds `bytes` up to whole pages.
uint64_t WholePages(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

uint64_t KvBytes(const KvLayout& layout, int64_t blocks) {
  const KvMeta meta{static_cast<uint64_t>(blocks), layout.layers};
  return WholePages(KvMeta::PoolBytes(layout, blocks)) + WholePages(meta.Bytes());
}

// Returns the bytes of everything except the weights and the KV pool, for sequences of up to
// `context` tokens.
uint64_t RestBytes(const HostMemoryPlan::Options& options, int context) {
  const ModelConfig& config = options.config;
  const StepLimits limits = options.max.LimitsFor(config, options.layout);
  const uint64_t rows = limits.rows;
  uint64_t floats = 0, widest = 0;
  for (const int cols : ForwardPass::ActivationCols(config)) {
    const uint64_t stride = (cols + 15) / 16 * 16;
    floats += rows * stride;
    widest = std::max(widest, stride);
  }
  floats += rows * widest;            // the packed operand of a GEMM
  floats += rows * widest * 11 / 32;  // the same with 8-bit activations, beside quantised weights
  floats += options.threads * kWidenedCols * widest;
  floats += uint64_t{1} * limits.sequences * config.hidden;
  // Logits of two steps, and logits of the rows of a prompt that is scored.
  floats += (2 * uint64_t{1} * limits.sequences + StepSize::kScoredAtOnce) * config.vocab;
  const uint64_t queries = std::max<uint64_t>(kQueriesOfTask, config.heads / config.kv_heads);
  floats += kTasksOfThread * options.threads * (context / kKeysOfPartial + 1) * queries *
            (config.head_dim + 32);
  return kProcessBytes + options.threads * kThreadBytes + floats * sizeof(float);
}

// Holds the options of one worker and computes its plan.
class Planner {
 public:
  explicit Planner(const HostMemoryPlan::Options& options)
      : options_(options),
        layout_(options.layout),
        wanted_context_(options.context > 0 ? options.context : options.config.context),
        min_tokens_(options.context > 0
                        ? options.context
                        : std::min(HostMemoryPlan::kMinTokens, options.config.context)) {}

  absl::StatusOr<HostMemoryPlan> Make() const {
    if (!(options_.share > 0 && options_.share <= 1)) {
      return absl::InvalidArgumentError(absl::StrCat("--memory-share is ", options_.share,
                                                     "; it takes a number above 0, up to 1"));
    }
    const int64_t blocks = options_.kv_bytes ? Asked() : Automatic();
    if (blocks > kMaxHostBlocks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--kv-bytes=", *options_.kv_bytes, " are ", blocks, " blocks of ", layout_.BlockBytes(),
          " bytes; a pool has at most ", kMaxHostBlocks, ": take a smaller size, or auto"));
    }
    if (!Fits(std::max(blocks, Min()))) return DoesNotFit(std::max(blocks, Min()));
    if (blocks < Min()) return TooSmall(blocks);
    HostMemoryPlan plan;
    plan.usable = options_.usable;
    plan.weight_bytes = options_.weight_bytes;
    plan.kv_bytes = KvBytes(layout_, blocks);
    plan.rest_bytes = Rest(blocks);
    plan.blocks = static_cast<int>(blocks);
    plan.context = Context(blocks);
    return plan;
  }

 private:
  int64_t Tokens(int64_t blocks) const { return blocks * layout_.block_tokens; }
  // Returns the max tokens of a sequence if the pool has `blocks` blocks.
  int Context(int64_t blocks) const {
    return static_cast<int>(std::min<int64_t>(wanted_context_, Tokens(blocks)));
  }
  uint64_t Rest(int64_t blocks) const {
    // Page tables take 8 bytes per page of 4096 bytes.
    return RestBytes(options_, Context(blocks)) +
           (options_.weight_bytes + KvBytes(layout_, blocks)) / 512;
  }
  uint64_t PoolAndRest(int64_t blocks) const { return KvBytes(layout_, blocks) + Rest(blocks); }
  // Returns the largest number of blocks for which the KV pool and all memory except pool and
  // weights fit into `room` bytes, and the pool alone fits into `pool_room` bytes.
  int64_t MaxBlocks(uint64_t room, uint64_t pool_room = UINT64_MAX) const {
    int64_t low = 0;
    int64_t high =
        std::min<uint64_t>(std::min(room, pool_room) / layout_.BlockBytes(), kMaxHostBlocks);
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (PoolAndRest(middle) <= room && KvBytes(layout_, middle) <= pool_room) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
  int64_t Min() const { return layout_.BlocksFor(min_tokens_); }
  int64_t Asked() const { return *options_.kv_bytes / layout_.BlockBytes(); }
  uint64_t Together(int64_t blocks) const { return options_.weight_bytes + PoolAndRest(blocks); }
  bool Fits(int64_t blocks) const { return Together(blocks) <= options_.usable.bytes; }
  uint64_t LeftByWeights() const {
    const uint64_t usable = options_.usable.bytes;
    return usable > options_.weight_bytes ? usable - options_.weight_bytes : 0;
  }

  // Returns the bytes that this process may use for its KV pool, its other memory, and its weights
  // if no other process shares them.
  uint64_t Budget() const {
    const uint64_t of = options_.weights_shared ? LeftByWeights() : options_.usable.bytes;
    return static_cast<uint64_t>(options_.share * static_cast<double>(of));
  }

  // Returns the largest size of a pool whose size is automatic.
  uint64_t MaxAutoBytes() const {
    return std::min(HostMemoryPlan::kMaxAutoBytes,
                    std::max({HostMemoryPlan::kAnyModelBytes,
                              HostMemoryPlan::kMaxPerWeight * options_.weight_bytes,
                              KvBytes(layout_, layout_.BlocksFor(wanted_context_))}));
  }

  int64_t Automatic() const {
    const uint64_t own_weights = options_.weights_shared ? 0 : options_.weight_bytes;
    const uint64_t budget = Budget();
    const int64_t blocks =
        MaxBlocks(budget > own_weights ? budget - own_weights : 0, MaxAutoBytes());
    if (options_.max_sequences <= 0) return blocks;
    return std::min(blocks, int64_t{options_.max_sequences} * layout_.BlocksFor(Context(blocks)));
  }

  std::string Limit() const {
    const UsableMemory& usable = options_.usable;
    return absl::StrFormat(
        "this process may still use %d bytes (%s has %d, of which %d are in use)", usable.bytes,
        usable.limit, usable.limit_bytes, usable.used_bytes);
  }
  std::string Sum(int64_t blocks) const {
    return absl::StrFormat(
        "weights %s (%d bytes) + KV pool of %d tokens %s (%d bytes) + the rest (activations, "
        "logits, gRPC, UCX) %s (%d bytes) = %d bytes",
        RoundedBytes(options_.weight_bytes), options_.weight_bytes, Tokens(blocks),
        RoundedBytes(KvBytes(layout_, blocks)), KvBytes(layout_, blocks),
        RoundedBytes(Rest(blocks)), Rest(blocks), Together(blocks));
  }
  // Returns --kv-bytes=SIZE for a pool of `blocks` blocks, rounded up to whole MiB.
  std::string KvFlag(int64_t blocks) const {
    const uint64_t bytes = blocks * layout_.BlockBytes();
    return absl::StrCat("--kv-bytes=", ByteSizeText((bytes + kMib - 1) / kMib * kMib));
  }
  bool KvFlagFits(int64_t blocks) const { return Fits(blocks + kMib / layout_.BlockBytes() + 1); }

  // Returns the error for a worker that does not fit at all: weights, a pool of `blocks` blocks
  // (the requested or the smallest pool) and all other memory take more than there is.
  absl::Status DoesNotFit(int64_t blocks) const {
    std::vector<std::string> advice;
    const int64_t max = MaxBlocks(LeftByWeights());
    const int64_t min =
        layout_.BlocksFor(std::min(HostMemoryPlan::kMinTokens, options_.config.context));
    if (options_.kv_bytes && max >= Min()) {
      const uint64_t bytes = max * layout_.BlockBytes();
      advice.push_back(absl::StrCat("--kv-bytes=",
                                    bytes >= kMib && bytes / kMib * kMib / layout_.BlockBytes() >=
                                                         static_cast<uint64_t>(Min())
                                        ? ByteSizeText(bytes / kMib * kMib)
                                        : absl::StrCat(bytes),
                                    " fits"));
    } else if (options_.context > 0 && max >= min) {
      advice.push_back(absl::StrCat("--context=", std::min<int64_t>(Tokens(max), options_.context),
                                    " with --kv-bytes=", max * layout_.BlockBytes(), " fits"));
    }
    const uint64_t missing = Together(blocks) - options_.usable.bytes;
    const uint64_t needed = options_.usable.limit_bytes + missing;
    advice.push_back(absl::StrCat(
        "give this process a limit of ",
        ByteSizeText((needed + 1024 * kMib - 1) / (1024 * kMib) * (1024 * kMib)),
        options_.usable.limit == "/proc/meminfo" ? " (a machine with more memory)" : " or more"));
    if (Rest(blocks) > Together(blocks) / 2) {
      advice.push_back(absl::StrCat("lower --chunk-tokens", options_.batch_flag.empty() ? "" : ", ",
                                    options_.batch_flag, " or --threads"));
    } else if (advice.size() == 1) {
      advice.push_back("take a smaller model");
    }
    return absl::ResourceExhaustedError(
        absl::StrFormat("the model does not fit: %s; %s: %d bytes are missing; %s", Sum(blocks),
                        Limit(), missing, absl::StrJoin(advice, ", or ")));
  }

  // Returns the error for a pool that fits but holds too few tokens, because of --kv-bytes or
  // because of this worker's share of the memory.
  absl::Status TooSmall(int64_t blocks) const {
    std::vector<std::string> advice;
    if (KvFlagFits(Min())) advice.push_back(KvFlag(Min()));
    const int64_t min =
        layout_.BlocksFor(std::min(HostMemoryPlan::kMinTokens, options_.config.context));
    if (options_.context > 0 && blocks >= min) {
      advice.push_back(absl::StrCat("--context=", Tokens(blocks)));
    }
    std::string why;
    if (options_.kv_bytes) {
      why = absl::StrFormat("--kv-bytes=%d hold %d blocks of %d bytes, %d tokens",
                            *options_.kv_bytes, blocks, layout_.BlockBytes(), Tokens(blocks));
    } else {
      const uint64_t own_weights = options_.weights_shared ? 0 : options_.weight_bytes;
      const double share =
          static_cast<double>(own_weights + PoolAndRest(Min()) + kMib) /
          static_cast<double>(std::max<uint64_t>(
              options_.weights_shared ? LeftByWeights() : options_.usable.bytes, 1));
      const double rounded = std::ceil(share * 100) / 100;
      if (rounded > options_.share && rounded <= 1 && KvBytes(layout_, Min()) <= MaxAutoBytes()) {
        advice.push_back(absl::StrFormat("--memory-share=%.2f", rounded));
      }
      why = absl::StrFormat(
          "the KV pool would hold %d tokens: %s, and %s; with --kv-bytes=auto this worker takes at "
          "most %g (--memory-share) of %s, which is %d bytes, for the pool and the rest, and at "
          "most %s for the pool",
          Tokens(blocks), Sum(Min()), Limit(), options_.share,
          options_.weights_shared ? "what the weights leave" : "this memory, for the weights too",
          Budget(), RoundedBytes(MaxAutoBytes()));
    }
    absl::StrAppend(&why, "; ");
    if (options_.context > 0) {
      absl::StrAppend(&why, "one sequence of --context=", options_.context, " tokens needs ", Min(),
                      " blocks, ", Min() * layout_.BlockBytes(), " bytes");
    } else {
      absl::StrAppend(&why, "a pool holds at least ", min_tokens_, " tokens, which need ",
                      Min() * layout_.BlockBytes(), " bytes");
    }
    if (!advice.empty()) absl::StrAppend(&why, ": ", absl::StrJoin(advice, " or "), " would work");
    return absl::ResourceExhaustedError(why);
  }

  const HostMemoryPlan::Options& options_;
  const KvLayout& layout_;
  const int wanted_context_;  // max tokens of a sequence, if the pool can hold so many
  const int min_tokens_;      // tokens that a pool has to hold
};

}  // namespace

absl::StatusOr<HostMemoryPlan> HostMemoryPlan::Make(const Options& options) {
  return Planner(options).Make();
}

std::vector<LogField> HostMemoryPlan::LogFields() const {
  return {{"weights_bytes", weight_bytes},
          {"kv_pool_bytes", kv_bytes},
          {"rest_bytes", rest_bytes},
          {"together_bytes", together()},
          {"usable_bytes", usable.bytes},
          {"limit", usable.limit},
          {"limit_bytes", usable.limit_bytes},
          {"used_bytes", usable.used_bytes},
          {"kv_blocks", blocks},
          {"context_tokens", context}};
}

}  // namespace baton
