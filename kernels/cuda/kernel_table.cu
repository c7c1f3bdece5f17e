#include "kernels/cuda/device_code.h"
#include "kernels/cuda/kernels.h"

namespace baton {

namespace BATON_DEVICE_NAMESPACE {
extern const Kernel embedding, gather_rows, rms_norm, bias_rows, silu_mul, rope_table,
    rope_write_kv, paged_attention, argmax, kv_checksum;
}  // namespace BATON_DEVICE_NAMESPACE

#ifdef BATON_EMULATED
KernelTable EmulatedKernels() {
#else
KernelTable CudaKernels() {
#endif
  namespace made = BATON_DEVICE_NAMESPACE;
  return {
      .embedding = made::embedding,
      .gather_rows = made::gather_rows,
      .rms_norm = made::rms_norm,
      .bias_rows = made::bias_rows,
      .silu_mul = made::silu_mul,
      .rope_table = made::rope_table,
      .rope_write_kv = made::rope_write_kv,
      .paged_attention = made::paged_attention,
      .argmax = made::argmax,
      .kv_checksum = made::kv_checksum,
  };
}

}  // namespace baton
