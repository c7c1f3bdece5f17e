#include "kernels/device/code/device_code.h"
#include "kernels/device/simt/testing/probe_kernels.h"

namespace baton::BATON_DEVICE_NAMESPACE {

BATON_KERNEL(kIndices, ProbeParams, 1024) {
  const int block = (BlockZ() * GridY() + BlockY()) * GridX() + BlockX();
  uint32_t* out = params.out + 8 * (block * BlockThreads() + ThreadIndex());
  out[0] = ThreadIndex();
  out[1] = Warp() * 32 + Lane();
  out[2] = BlockX();
  out[3] = BlockY();
  out[4] = BlockZ();
  out[5] = GridX();
  out[6] = GridY();
  out[7] = GridZ();
}

BATON_KERNEL(kOrder, ProbeParams, 1024) {
  uint32_t* count = params.out + 2 * BlockThreads();
  params.out[ThreadIndex()] = (*count)++;
  SyncThreads();
  params.out[BlockThreads() + ThreadIndex()] = (*count)++;
}

BATON_KERNEL(kShuffles, ProbeParams, 32) {
  const uint32_t value = params.in[Lane()];
  float as_float;
  std::memcpy(&as_float, &value, 4);
  uint32_t result = 0;
  if (params.which == 0) result = ShuffleXor(value, 5);
  if (params.which == 1) result = ShuffleDown(value, 3);
  if (params.which == 2) result = Shuffle(Lane() + 100u, value);
  if (params.which == 5) result = Ballot(value > 0);
  if (params.which == 3) as_float = WarpSum(as_float);
  if (params.which == 4) as_float = WarpMax(as_float);
  if (params.which == 6) {
    for (int mask = 16; mask > 0; mask /= 2) as_float += ShuffleXor(as_float, mask);
  }
  if (params.which == 3 || params.which == 4 || params.which == 6) {
    std::memcpy(&result, &as_float, 4);
  }
  params.out[Lane()] = result;
}

BATON_KERNEL(kMma, ProbeParams, 32) {
  const uint32_t* a = params.in + 4 * Lane();
  const uint32_t* b = params.in + 128 + 2 * Lane();
  float d[4];
  std::memcpy(d, params.in + 192 + 4 * Lane(), sizeof(d));
  if (params.which == 0) Mma<Bf16>(d, a, b);
  if (params.which == 1) Mma<Half>(d, a, b);
  std::memcpy(params.out + 4 * Lane(), d, sizeof(d));
}

BATON_KERNEL(kLoadMatrix, ProbeParams, 32) {
  BATON_SHARED(Vector16, rows, 32);
  rows[Lane()] = reinterpret_cast<const Vector16*>(params.in)[Lane()];
  SyncWarp();
  uint32_t r[4] = {};
  if (params.which == 0) LoadMatrix4(r, &rows[Lane()]);
  if (params.which == 1) LoadMatrix4Transposed(r, &rows[Lane()]);
  // Lanes 16 to 31 pass an address that is not used.
  if (params.which == 2) LoadMatrix2(r, Lane() < 16 ? &rows[Lane()] : nullptr);
  if (params.which == 3) LoadMatrix2Transposed(r, Lane() < 16 ? &rows[Lane()] : nullptr);
  for (int i = 0; i < 4; ++i) params.out[4 * Lane() + i] = r[i];
}

BATON_KERNEL(kBarriers, ProbeParams, 64) {
  const int thread = ThreadIndex();
  if (params.which == 1 && thread >= 32) return;
  if (params.which == 2 && thread >= 32) {
    SyncThreads();
  } else if (params.which == 3 && thread == 7) {
    WarpSum(1.0f);
  } else if (params.which == 4) {
    if (thread % 32 < 5) {
      WarpSum(1.0f);
    } else {
      WarpSum(2.0f);
    }
  } else if (params.which == 5) {
    if (thread == 40) return;
    ShuffleXor(thread, 1);
  }
  SyncThreads();
  params.out[thread] = thread;
}

BATON_KERNEL(kExchange, ProbeParams, 64) {
  BATON_SHARED(uint32_t, values, 64);
  const int thread = ThreadIndex();
  for (int round = 0; round < 3; ++round) {
    values[thread] = params.in[thread] + round;
    if ((params.which & 1) == 0) SyncThreads();
    params.out[64 * round + thread] = values[thread ^ 32];
    if ((params.which & 2) == 0) SyncThreads();
  }
}

BATON_KERNEL(kCopies, ProbeParams, 64) {
  BATON_SHARED(Vector16, stages, 2 * 64);
  const int thread = ThreadIndex();
  const auto* in = reinterpret_cast<const Vector16*>(params.in);
  auto* out = reinterpret_cast<Vector16*>(params.out);
  const bool valid = params.which != 6 || thread != 63;
  if (params.which == 4 && thread == 3) {
    CopyAsync16(reinterpret_cast<char*>(stages) + 8, in, true);
  }
  if (params.which == 5 && thread == 3) CopyAsync16(out, in, true);
  CopyAsync16(&stages[thread], valid ? in + thread : nullptr, valid);
  CopyAsyncCommit();
  CopyAsync16(&stages[64 + thread], &in[64 + thread], true);
  CopyAsyncCommit();
  if (params.which == 8) {
    SyncThreads();
    const_cast<uint32_t*>(params.in)[4 * (thread ^ 32)] += 1;
  }
  if (params.which == 7) out[128 + thread] = stages[64 + thread];
  if (params.which != 1) CopyAsyncWait<1>();
  if (params.which != 2) SyncThreads();
  out[thread] = stages[thread ^ 32];
  if (params.which == 3) {
    CopyAsyncWait<1>();
  } else {
    CopyAsyncWait<0>();
  }
  SyncThreads();
  out[64 + thread] = stages[64 + (thread ^ 32)];
}

BATON_DEVICE int AlignmentOf(const void* at) {
  int align = 1;
  while (reinterpret_cast<uintptr_t>(at) % (2 * align) == 0) align *= 2;
  return align;
}

BATON_KERNEL(kShared, ProbeParams, 64) {
  BATON_SHARED(uint16_t, small, 3);
  BATON_SHARED(float, large, 70);
  BATON_DYNAMIC_SHARED(uint32_t, dynamic);
  uint32_t* out = params.out + 8 * (BlockX() * 64 + ThreadIndex());
  SyncThreads();
  out[0] = small[2];
  std::memcpy(&out[1], &large[ThreadIndex()], 4);
  out[2] = dynamic[ThreadIndex()];
  out[3] = AlignmentOf(small);
  out[4] = AlignmentOf(large);
  out[5] = AlignmentOf(dynamic);
  out[6] = sizeof(small) + sizeof(large);
  out[7] = 0;
  SyncThreads();
  small[ThreadIndex() % 3] = 1;
  large[ThreadIndex()] = 1;
  dynamic[ThreadIndex()] = 1;
}

BATON_KERNEL(kTooMuchShared, ProbeParams, 32) {
  BATON_SHARED(float, a, 12 * 1024);
  BATON_SHARED(float, one_more, 1);
  params.out[Lane()] = &a[0] == &one_more[0];
}

BATON_KERNEL(kMisaligned, ProbeParams, 32) {
  const char* in = reinterpret_cast<const char*>(params.in) + (params.which == 1 ? 8 : 0);
  char* out = reinterpret_cast<char*>(params.out) + (params.which == 2 ? 4 : 0);
  const Vector16 value = reinterpret_cast<const Vector16*>(in)[Lane()];
  reinterpret_cast<Vector16*>(out)[Lane()] = value;
}

__attribute__((noinline)) void Count(uint32_t* to, int count) {
  for (int i = 0; i < count; ++i) to[i] = i;
}

BATON_KERNEL(kLocals, ProbeParams, 1024) {
  uint32_t all[200];  // large enough to cover what earlier fibers left on this stack
  Count(all, 200);
  uint32_t sum = all[199] - 199;
  for (int round = 0; round < 2; ++round) {
    uint32_t few[3];
    Count(few, 3);
    SyncThreads();
    uint32_t many[10];
    Count(many, 10);
    if (round == 0) {
      for (const uint32_t x : many) sum += x;
    } else {
      sum += many[few[0]];
    }
    SyncWarp();
  }
  params.out[ThreadIndex()] = sum + ThreadIndex();
}

__attribute__((noinline)) uint32_t Recurse(int frames) {
  volatile uint32_t local[256];
  local[frames % 256] = frames;
  return frames == 0 ? 0 : Recurse(frames - 1) + local[frames % 256];
}

BATON_KERNEL(kDeep, ProbeParams, 32) { params.out[Lane()] = Recurse(params.which); }

// Touches only the lowest bytes of its stack frame.
__attribute__((noinline)) uint32_t TouchWideFrame(int thread) {
  volatile uint32_t local[kWideFrameBytes / sizeof(uint32_t)];
  local[thread % 2] = thread;
  return local[thread % 2];
}

BATON_KERNEL(kWide, ProbeParams, 32) {
  params.out[Lane()] = Lane();
  SyncWarp();  // after this, all lanes have their stacks
  if (Lane() == params.which) params.out[Lane()] = TouchWideFrame(Lane());
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
