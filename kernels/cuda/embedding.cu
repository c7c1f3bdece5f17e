#include "kernels/cuda/kernels.h"
#include "kernels/cuda/octet.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// A block takes a row, a thread an octet of it at a time. Moves 4 * hidden bytes a row.
BATON_KERNEL(embedding, EmbeddingParams, 1024) {
  const int row = BlockX();
  const int follows = params.follows == nullptr ? -1 : params.follows[row];
  const int64_t token = BATON_MUTATE("embedding: row that follows", follows >= 0, false)
                            ? params.drawn[BATON_MUTATE("embedding: what it follows", follows, 0)]
                            : params.tokens[BATON_MUTATE("embedding: token", row, 0)];
  const Bf16* const from = static_cast<const Bf16*>(params.table) + token * params.hidden;
  Bf16* const to = static_cast<Bf16*>(params.out) + row * params.out_stride;
  for (int octet = ThreadIndex(); octet < Octets(params.hidden);
       octet += BATON_MUTATE("embedding: threads", BlockThreads(), 2 * BlockThreads())) {
    const int begin = octet * kOctet,
              count = BATON_MUTATE("embedding: tail", params.hidden - begin, kOctet);
    float values[kOctet];
    LoadOctet(from + begin, count, values);
    StoreOctet(to + begin, count, values);
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
