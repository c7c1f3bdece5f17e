#include "common/worker/flag_groups.h"

#include <iterator>

namespace baton {

std::vector<FlagGroup> WorkerFlagGroups(FlagGroup own, const std::vector<FlagGroup>& equipment) {
  std::vector<FlagGroup> groups = {
      {"Addresses", "listen advertise routers attach-token report-interval metrics-listen"},
      {"Model", "model model-name context random-weights weights-seed"}};
  groups.push_back(own);
  static constexpr FlagGroup kRest[] = {
      {"Computation", "backend threads numerics gpu gpu-memory-utilization cuda-graphs"},
      {"KV cache and its transfer",
       "kv-bytes memory-share usable-memory kv-type block-tokens kv-transports kv-net-device "
       "kv-ports kv-device-path"},
      {"Stopping and hanging", "drain-grace hang-limit"},
      {"Log", "log-level log-format"}};
  groups.insert(groups.end(), std::begin(kRest), std::end(kRest));
  groups.insert(groups.end(), equipment.begin(), equipment.end());
  return groups;
}

}  // namespace baton
