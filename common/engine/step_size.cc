#include "common/engine/step_size.h"

#include <algorithm>

namespace baton {

StepLimits StepSize::LimitsFor(const ModelConfig& config, const KvLayout& layout) const {
  StepLimits limits = {.rows = rows,
                       .sequences = sequences > 0 ? std::min(sequences, rows) : rows,
                       .context = context > 0 ? context : config.context,
                       .hidden = config.hidden,
                       .heads = config.heads,
                       .vocab = config.vocab,
                       .layout = layout};
  if (!config.windows.empty()) limits.windows = config.windows;
  limits.logit_rows = std::max(limits.sequences, std::min(rows, kScoredAtOnce));
  return limits;
}

}  // namespace baton
