#include "kernels/cuda/kernels/sample_weight.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each thread block edits the logits of one row. It reads three lists of the row's slot (biases,
// token history and bans), and changes the 4-byte logit of each token in a list. A list contains a
// token at most once, but several lists may contain it, so there is a barrier between lists.
BATON_KERNEL(sample_edit, SampleParams, kSampleThreads) {
  const SampleMemory& memory = params.memory;
  const int row = BlockX();
  const SampleRow& ask = memory.rows[row];
  if (ask.slot < 0 || !ask.edits) return;
  float* const logits = params.logits + static_cast<int64_t>(row) * params.vocab;
  SampleBias* const biases = memory.biases + static_cast<int64_t>(ask.slot) * memory.max_biases;
  for (int i = ThreadIndex(); i < ask.biases; i += BlockThreads()) {
    float& logit = logits[biases[i].token];
    biases[i].given = logit;
    logit += biases[i].bias;
  }
  SyncThreads();
  if (ask.penalties) {
    SampleHistory* const history =
        memory.history + static_cast<int64_t>(ask.slot) * memory.max_history;
    const int tokens = memory.history_tokens[ask.slot];
    for (int i = ThreadIndex(); i < tokens; i += BlockThreads()) {
      float& logit = logits[history[i].token];
      history[i].given = logit;
      const float repeated = logit > 0 ? logit / ask.repetition : Mul(logit, ask.repetition);
      const int times = history[i].times;
      logit = times == 0 ? repeated
                         : repeated - Mul(ask.frequency, static_cast<float>(times)) - ask.presence;
    }
  }
  SyncThreads();
  const int32_t* const bans = memory.bans + static_cast<int64_t>(ask.slot) * memory.max_bans;
  for (int i = ThreadIndex(); i < ask.bans; i += BlockThreads()) {
    logits[bans[i]] = -kInfiniteLogit;
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
