#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/log.h"
#include "common/base/usable_memory.h"
#include "common/engine/step_size.h"
#include "common/model/model_config.h"
#include "kernels/backend/kv_layout.h"

namespace baton {

// The plan of the host's memory for a worker whose KV pool lies there. It is made before the memory
// is taken, so a worker that does not fit says so at once, and one that does is never killed
// because memory runs out. DeviceMemoryPlan is the same for pools on a device.
//
// A plan holds these rules:
//   - weights + KV pool + rest never exceed what the process may still use.
//   - Without a size of the pool, pool and rest take at most `share` of what weights leave, and the
//     pool at most kMostAutoBytes. So two workers that are started at the same time fit.
//   - The pool holds at least min(kLeastTokens, the model's context), and one sequence of the
//     context that is served.
//   - Without a size, the pool is never larger than `max_sequences` sequences can fill.
struct HostMemoryPlan {
  static constexpr int kLeastTokens = 2048;
  static constexpr uint64_t kMostAutoBytes = uint64_t{8} << 30;
  static constexpr double kDefaultShare = 0.4;

  struct Options {
    ModelConfig config;
    KvLayout layout;
    UsableMemory usable;  // before the weights are counted
    uint64_t weight_bytes = 0;
    // Weights in the page cache, which workers of one machine share. Others are this process's own,
    // and count against its share.
    bool weights_shared = true;
    StepSize most = {512};  // of a step; its context does not count
    int threads = 1;        // that compute
    int max_sequences = 0;  // that may hold KV at one time; 0: any number
    int context = 0;  // tokens to serve; 0: the model's, or what the pool holds if that is less
    std::optional<uint64_t> kv_bytes;  // of the pool; nothing: by the rules above
    double share = kDefaultShare;
    std::string batch_flag;  // that says how many sequences a step has, if one does
  };
  // ResourceExhausted shows the bytes of weights, KV pool and rest, what may be used and why, and
  // names flags with values that would work. InvalidArgument names a flag with a value that never
  // works.
  static absl::StatusOr<HostMemoryPlan> Make(const Options& options);

  uint64_t together() const { return weight_bytes + kv_bytes + rest_bytes; }
  std::vector<LogField> LogFields() const;

  UsableMemory usable;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;    // blocks, and what readers check them by (KvMeta)
  uint64_t rest_bytes = 0;  // activations, logits, and what gRPC, UCX and threads take
  int blocks = 0;           // of the KV pool
  int context = 0;          // tokens that are served
};

}  // namespace baton
