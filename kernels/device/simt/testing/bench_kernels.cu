#include "kernels/device/code/device_code.h"
#include "kernels/device/simt/testing/bench_kernels.h"

namespace baton::BATON_DEVICE_NAMESPACE {

BATON_KERNEL(kRepeat, RepeatParams, 1024) {
  BATON_SHARED(Vector16, copied, 1024);
  float value = 1;
  const uint32_t a[4] = {}, b[2] = {};
  float d[4] = {};
  for (int i = 0; i < params.times; ++i) {
    switch (params.operation) {
      case RepeatParams::kNothing:
        break;
      case RepeatParams::kSyncThreads:
        SyncThreads();
        break;
      case RepeatParams::kSyncWarp:
        SyncWarp();
        break;
      case RepeatParams::kShuffleXor:
        value += ShuffleXor(value, 1);
        break;
      case RepeatParams::kWarpSum:
        value = WarpSum(value) / 32;
        break;
      case RepeatParams::kMma:
        Mma<Bf16>(d, a, b);
        break;
      case RepeatParams::kCopy:
        CopyAsync16(&copied[ThreadIndex()], params.in, true);
        CopyAsyncCommit();
        CopyAsyncWait<0>();
        break;
    }
  }
  params.out[ThreadIndex()] = value + d[0];
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
