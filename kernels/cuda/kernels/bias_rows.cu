#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each thread block takes a row, each thread an octet (eight elements) at a time. The memory
// traffic is 2 bytes per column, or 4 with `accumulate`.
BATON_KERNEL(bias_rows, BiasRowsParams, 1024) {
  const Bf16* const bias = static_cast<const Bf16*>(params.bias);
  Bf16* const out = static_cast<Bf16*>(params.out) + BlockX() * params.out_stride;
  for (int octet = ThreadIndex(); octet < Octets(params.cols); octet += BlockThreads()) {
    const int begin = octet * kOctet, count = params.cols - begin;
    float sum[kOctet];
    LoadOctet(bias + begin, count, sum);
    if (params.accumulate) {
      float old[kOctet];
      LoadOctet(out + begin, count, old);
      BATON_UNROLL
      for (int i = 0; i < kOctet; ++i) sum[i] += old[i];
    }
    StoreOctet(out + begin, count, sum);
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
