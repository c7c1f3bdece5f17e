#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each thread block computes BlockThreads() octets (groups of 8 columns) of one row, one octet per
// thread. Reads and writes 6 bytes per column.
BATON_KERNEL(silu_mul, SiluMulParams, 1024) {
  const int row = BlockX();
  const int octet = BlockY() * BlockThreads() + ThreadIndex();
  const int begin = octet * kOctet, count = params.cols - begin;
  if (count > 0) {
    float gate[kOctet], up[kOctet];
    LoadOctet(static_cast<const Bf16*>(params.gate) + row * params.gate_stride + begin, count,
              gate);
    LoadOctet(static_cast<const Bf16*>(params.up) + row * params.up_stride + begin, count, up);
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) gate[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
    StoreOctet(static_cast<Bf16*>(params.out) + row * params.out_stride + begin, count, gate);
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
