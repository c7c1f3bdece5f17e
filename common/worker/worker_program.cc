#include "common/worker/worker_program.h"

#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/connection_acceptor.h"

namespace baton {

void StartWorkerProgram(int argc, char** argv, const char* usage, const FlagGroup& own,
                        const WorkerEquipment& equipment) {
  BlockStopSignals();
  RaiseDescriptorLimit();
  std::vector<FlagGroup> groups = {
      {"Addresses", "listen advertise routers attach-token report-interval metrics-listen"},
      {"Model", "model model-name context random-weights weights-seed"},
      own,
      {"Computation", "backend threads numerics gpu gpu-memory-utilization cuda-graphs"},
      {"KV cache and its transfer",
       "kv-bytes memory-share usable-memory prefix-cache kv-type block-tokens kv-transports "
       "kv-net-device "
       "kv-ports kv-device-path"},
      {"Stopping and hanging", "drain-grace hang-limit"},
      {"Log", "log-level log-format"}};
  groups.insert(groups.end(), equipment.flag_groups.begin(), equipment.flag_groups.end());
  const auto extra = StartProgram(argc, argv, {usage, std::move(groups)});
  if (!extra.empty()) {
    RefuseToStart(absl::StrCat("'", extra.front(), "' is not expected here; flags begin with --"));
  }
}

}  // namespace baton
