#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/code/device_code.h"

namespace baton {

namespace BATON_DEVICE_NAMESPACE {
extern const Kernel embedding, gather_rows, rms_norm, bias_rows, silu_mul, rope_table,
    rope_write_kv, paged_attention, attention_plan, merge_attention, argmax, kv_checksum,
    sample_scan, sample_weigh, sample_alternatives, sample_edit, sample_token, split_attention_64,
    split_attention_80, split_attention_96, split_attention_128, split_attention_256,
    prefill_attention_64, prefill_attention_80, prefill_attention_96, prefill_attention_128,
    prefill_attention_256, split_attention_f16_64, split_attention_f16_80, split_attention_f16_96,
    split_attention_f16_128, split_attention_f16_256, prefill_attention_f16_64,
    prefill_attention_f16_80, prefill_attention_f16_96, prefill_attention_f16_128,
    prefill_attention_f16_256;
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
      .attention_plan = made::attention_plan,
      .merge_attention = made::merge_attention,
      .argmax = made::argmax,
      .kv_checksum = made::kv_checksum,
      .sample_scan = made::sample_scan,
      .sample_weigh = made::sample_weigh,
      .sample_alternatives = made::sample_alternatives,
      .sample_edit = made::sample_edit,
      .sample_token = made::sample_token,
      .split_attention = {made::split_attention_64, made::split_attention_80,
                          made::split_attention_96, made::split_attention_128,
                          made::split_attention_256, made::split_attention_f16_64,
                          made::split_attention_f16_80, made::split_attention_f16_96,
                          made::split_attention_f16_128, made::split_attention_f16_256},
      .prefill_attention = {made::prefill_attention_64, made::prefill_attention_80,
                            made::prefill_attention_96, made::prefill_attention_128,
                            made::prefill_attention_256, made::prefill_attention_f16_64,
                            made::prefill_attention_f16_80, made::prefill_attention_f16_96,
                            made::prefill_attention_f16_128, made::prefill_attention_f16_256},
  };
}

}  // namespace baton
