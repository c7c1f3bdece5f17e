#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each thread block copies one row, and each of its threads copies eight elements at a time. The
// kernel reads and writes 4 * cols bytes per row in all.
BATON_KERNEL(gather_rows, GatherRowsParams, 1024) {
  const int i = BlockX();
  const Bf16* const from = static_cast<const Bf16*>(params.in) + params.rows[i] * params.in_stride;
  Bf16* const to = static_cast<Bf16*>(params.out) + static_cast<int64_t>(i) * params.cols;
  for (int octet = ThreadIndex(); octet < Octets(params.cols); octet += BlockThreads()) {
    const int begin = octet * kOctet, count = params.cols - begin;
    float values[kOctet];
    LoadOctet(from + begin, count, values);
    StoreOctet(to + begin, count, values);
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
