#include "kernels/cuda/simt/mutations.h"

namespace baton::simt {

MutationReport TryMutations(const std::function<absl::Status(const SimtOptions&)>& judge,
                            int seeds) {
  MutationReport report;
  std::set<std::string> all;
  for (int seed = 0; seed < seeds; ++seed) {
    SimtOptions options;
    options.seed = static_cast<uint64_t>(seed);
    options.mutations_seen = &all;
    report.unmutated = judge(options);
    if (!report.unmutated.ok()) return report;
  }
  for (const std::string& mutation : all) {
    bool caught = false;
    for (int seed = 0; seed < seeds && !caught; ++seed) {
      SimtOptions options;
      options.seed = static_cast<uint64_t>(seed);
      options.mutation = mutation;
      caught = !judge(options).ok();
    }
    (caught ? report.caught : report.missed).insert(mutation);
  }
  return report;
}

}  // namespace baton::simt
