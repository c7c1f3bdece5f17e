#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/log.h"
#include "common/base/usable_memory.h"
#include "common/engine/step_size.h"
#include "common/model/source/model_config.h"
#include "kernels/backend/kv_layout.h"

namespace baton {

// Plan of the host's memory, for a worker whose KV pool lies in host memory. It is made before the
// memory is allocated. So a worker that does not fit ends during its start, and a worker that fits
// is never killed because memory runs out. DeviceMemoryPlan does the same for pools on a device.
//
// A plan guarantees (the rest is all memory except weights and KV pool):
//   - Weights + KV pool + rest never exceed the memory that the process may still use.
//   - If `kv_bytes` is not set, pool and rest take at most `share` of the memory that the weights
//     leave, and the pool takes at most kMaxAutoBytes. So two workers that are started at the same
//     time both fit.
//   - If `kv_bytes` is not set, the pool takes at most the largest of kAnyModelBytes, kMaxPerWeight
//     times the weights, and one sequence of the whole context. Taking memory takes time, and a
//     small model is not expected to fill a machine.
//   - If `kv_bytes` is not set, the pool is never larger than `max_sequences` sequences can fill.
//   - The pool holds at least min(kMinTokens, the model's context) tokens, and at least one
//     sequence of `context` tokens.
struct HostMemoryPlan {
  static constexpr int kMinTokens = 2048;
  static constexpr uint64_t kMaxAutoBytes = uint64_t{8} << 30;
  static constexpr uint64_t kAnyModelBytes = uint64_t{1} << 30;
  static constexpr uint64_t kMaxPerWeight = 4;
  static constexpr double kDefaultShare = 0.4;

  struct Options {
    ModelConfig config;
    KvLayout layout;
    UsableMemory usable;  // memory that the process may use, weights included
    uint64_t weight_bytes = 0;
    // True if the weights lie in the page cache, which all workers of a machine share. Otherwise
    // they belong to this process and count against its share.
    bool weights_shared = true;
    StepSize max = {512};   // the largest step; max.context is ignored
    int threads = 1;        // compute threads
    int max_sequences = 0;  // sequences that may hold KV at the same time; 0: any number
    // Max tokens of a sequence. 0 means the model's context, or the number of tokens that the pool
    // can hold if that number is smaller.
    int context = 0;
    std::optional<uint64_t> kv_bytes;  // size of the pool; if empty, the plan chooses it
    double share = kDefaultShare;
    std::string batch_flag;  // flag that sets how many sequences a step has; empty if none does
  };
  // Returns ResourceExhausted if the worker does not fit. The error shows the limit, the bytes of
  // the weights, of the KV pool and of all other memory, and flags with values that would work.
  // Returns InvalidArgument with the name of a flag whose value can never work.
  static absl::StatusOr<HostMemoryPlan> Make(const Options& options);

  uint64_t together() const { return weight_bytes + kv_bytes + rest_bytes; }
  std::vector<LogField> LogFields() const;

  UsableMemory usable;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;    // size of the blocks, and of the KvMeta with which readers check them
  uint64_t rest_bytes = 0;  // activations, logits, and the memory of gRPC, UCX and threads
  int blocks = 0;           // number of blocks in the KV pool
  int context = 0;          // max tokens of a sequence
};

}  // namespace baton
