#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// One warp computes a norm of up to 1,024 columns; a thread block has one to eight such warps.
// Longer norms are computed by a thread block of eight warps each. A thread takes an octet (eight
// elements) at a time. The memory traffic is 4 bytes per column: each row is read twice, the second
// time from the cache.
BATON_KERNEL(rms_norm, RmsNormParams, kRmsNormWarps * 32) {
  BATON_SHARED(float, squares, kRmsNormWarps);
  const int warps = params.n <= kMaxColumnsOfOneWarp ? 1 : kRmsNormWarps;  // warps for one norm
  const int64_t norms = static_cast<int64_t>(params.rows) * params.groups;
  const int64_t norm =
      static_cast<int64_t>(BlockX()) * (BlockThreads() / 32 / warps) + Warp() / warps;
  const bool active = norm < norms;
  const int64_t row = active ? norm / params.groups : 0;
  const int64_t column = active ? norm % params.groups * params.n : 0;
  const Bf16* const in = static_cast<const Bf16*>(params.in) + row * params.in_stride + column;
  Bf16* const out = static_cast<Bf16*>(params.out) + row * params.out_stride + column;
  const Bf16* const weight = static_cast<const Bf16*>(params.weight);
  const int octets = active ? Octets(params.n) : 0;
  const int first = Warp() % warps * 32 + Lane();

  float sum = 0;
  for (int octet = first; octet < octets; octet += warps * 32) {
    float x[kOctet];
    LoadOctet(in + octet * kOctet, params.n - octet * kOctet, x);
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) sum += x[i] * x[i];
  }
  sum = WarpSum(sum);
  if (Lane() == 0) squares[Warp()] = sum;
  SyncThreads();
  float all = 0;
  for (int warp = 0; warp < warps; ++warp) {
    all += squares[Warp() / warps * warps + warp];
  }
  const float inverse = ReciprocalSqrt(all / static_cast<float>(params.n) + params.epsilon);
  for (int octet = first; octet < octets; octet += warps * 32) {
    const int begin = octet * kOctet, count = params.n - begin;
    float x[kOctet], w[kOctet];
    LoadOctet(in + begin, count, x);
    LoadOctet(weight + begin, count, w);
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) x[i] = x[i] * inverse * w[i];
    StoreOctet(out + begin, count, x);
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
