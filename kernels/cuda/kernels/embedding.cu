#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each thread block copies one row. Each thread copies groups of 8 columns. Reads and writes 4 *
// hidden bytes per row.
BATON_KERNEL(embedding, EmbeddingParams, 1024) {
  const int row = BlockX();
  const int follows = params.follows == nullptr ? -1 : params.follows[row];
  const int64_t token = follows >= 0 ? params.sampled[follows] : params.tokens[row];
  const Bf16* const from = static_cast<const Bf16*>(params.table) + token * params.hidden;
  Bf16* const to = static_cast<Bf16*>(params.out) + row * params.out_stride;
  for (int octet = ThreadIndex(); octet < Octets(params.hidden); octet += BlockThreads()) {
    const int begin = octet * kOctet, count = params.hidden - begin;
    float values[kOctet];
    LoadOctet(from + begin, count, values);
    StoreOctet(to + begin, count, values);
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
