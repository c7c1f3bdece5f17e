#include "kernels/device/code/device_code.h"
#include "kernels/device/simt/testing/faulty_kernels.h"

namespace baton::BATON_DEVICE_NAMESPACE {
namespace {

constexpr uint32_t kTable[4] = {2, 3, 5, 7};
uint32_t variable = 0;

}  // namespace

BATON_KERNEL(kSharedFaults, ProbeParams, 64) {
  BATON_SHARED(uint32_t, words, 64);
  BATON_SHARED(uint32_t, fresh, 64);
  const int thread = ThreadIndex(), which = params.which;
  words[thread] = thread;
  SyncThreads();
  uint32_t value = 0;
  if (which == 0) {
    value = words[thread ^ 32];
    SyncThreads();
    words[thread] = value;
    SyncThreads();
    value += words[thread ^ 32];
  } else if (which == 1) {
    words[thread] = 1;
    value = words[thread ^ 32];
  } else if (which == 2) {
    value = words[thread ^ 32];
    words[thread] = value;
  } else if (which == 3) {
    words[thread % 32] = thread;
  } else if (which == 4) {
    value = words[0];
    SyncWarp();
    if (thread == 32) words[0] = 1;
  } else if (which == 10) {
    value = words[thread ^ 1];
    SyncWarp();
    words[thread] = value;
    SyncWarp();
    value += words[thread ^ 3];
  } else if (which == 11) {
    words[thread] = 1;
    value = words[thread ^ 1];
  } else if (which == 12) {
    value = words[thread ^ 1];
    words[thread] = value;
  } else if (which == 13) {
    words[thread / 2 * 2] = thread;
  } else if (which == 14) {
    value = words[thread / 32];
    if (thread % 32 == 31) words[thread / 32] = value + 1;
  } else if (which == 15) {
    words[thread] = 1;
    value = static_cast<uint32_t>(WarpSum(1.0f));
    value += words[thread ^ 1];
  } else if (which >= 16 && which <= 19) {
    float d[4] = {};
    const uint32_t a[4] = {};
    if (which == 16) {
      words[thread] = 1;
      Mma<Bf16>(d, a, words + (thread ^ 32) / 2 * 2);
    }
    if (which == 17) Mma<Bf16>(reinterpret_cast<float*>(words) + thread / 4 * 4, a, a);
    if (which == 18) LoadMatrix2(words + thread / 2 * 2, words + thread % 8 * 4);
    if (which == 19) Mma<Bf16>(d, words, words + thread / 2 * 2);
    value = static_cast<uint32_t>(d[0]);
  } else if (which == 20) {
    reinterpret_cast<uint8_t*>(words)[thread] = thread;
  } else if (which == 21) {
    reinterpret_cast<uint16_t*>(words)[thread] = thread;
  } else if (which == 22) {
    std::memcpy(reinterpret_cast<char*>(words) + thread, &thread, 2);
  } else if (which == 30) {
    value = fresh[thread];
  } else if (which == 31) {
    reinterpret_cast<uint16_t*>(fresh)[2 * thread] = 1;
    value = fresh[thread];
  } else if (which == 50) {
    AtomicAdd(&words[5], 2u);
    SyncThreads();
    value = words[5];
  } else if (which == 51 || which == 52) {
    AtomicAdd(&words[thread], 1u);
    const int by = which == 51 ? 32 : 1;
    if ((thread & by) != 0) value = words[thread - by];
  } else if (which == 53 || which == 54) {
    uint32_t& word = words[thread % 32];
    if (thread >= 32) {
      AtomicAdd(&word, 1u);
    } else if (which == 53) {
      value = word;
    } else {
      word = 1;
    }
  } else if (which == 55) {
    AtomicAdd(&fresh[thread], 1u);
  } else if (which == 56) {
    AtomicAdd(reinterpret_cast<uint64_t*>(&words[thread / 8 * 4 + 1]), uint64_t{1});
  } else if (which == 40) {
    auto* stage = reinterpret_cast<Vector16*>(fresh);
    const auto* in = reinterpret_cast<const Vector16*>(params.in);
    for (int i = 0; i < 2; ++i) {
      if (thread < 16) CopyAsync16(&stage[thread], &in[thread + i], true);
      CopyAsyncCommit();
      CopyAsyncWait<0>();
      SyncThreads();
      value += fresh[thread];
    }
  }
  params.out[thread] = value;
}

BATON_KERNEL(kGlobalFaults, ProbeParams, 32) {
  const int which = params.which;
  const int own = BlockX() * 32 + Lane(), next = (BlockX() + 1) % GridX() * 32 + Lane();
  uint32_t value = params.in[Lane()] + params.in[0];
  if (which == 2) value += params.out[next];
  if (which == 4) value += params.out[own];
  params.out[own] = value;
  if (which == 0) params.out[own] += 1;
  if (which == 1 && Lane() == 0) params.out[500] = value;
  if (which == 3 && BlockX() == 2) const_cast<uint32_t*>(params.in)[0] = value;
  if (which == 5 || which == 6) AtomicAdd(const_cast<uint32_t*>(&params.in[300]), 1u);
  if (which == 6) params.out[own] += params.in[300];
}

BATON_KERNEL(kBoundsFaults, ProbeParams, 64) {
  BATON_SHARED(float, large, 70);
  BATON_SHARED(uint16_t, small, 3);
  BATON_SHARED(const int*, pointers, 1);
  BATON_DYNAMIC_SHARED(uint32_t, dynamic);
  const int thread = ThreadIndex(), which = params.which;
  large[thread] = thread;
  dynamic[thread] = thread;
  if (thread < 3) small[thread] = thread;
  SyncThreads();
  uint32_t value = 0;
  int local[2] = {thread, which};
  if (thread == 5) {
    if (which == 0) value = dynamic[63] + small[2] + static_cast<uint32_t>(large[0]);
    if (which == 1) value = static_cast<uint32_t>(large[params.in[70]]);
    if (which == 2) small[params.in[3]] = 1;
    if (which == 3) value = dynamic[64];
    if (which == 4) value = params.in[3 - which];
    if (which == 5) {
      uint64_t two;
      std::memcpy(&two, params.in + 511, 8);
      value = static_cast<uint32_t>(two);
    }
    if (which == 6) const_cast<ProbeParams&>(params).which = 1;
    if (which == 8) value = variable++;
    if (which == 9) value = *reinterpret_cast<const uint32_t*>(static_cast<uintptr_t>(which - 9));
    if (which == 10) value = kTable[which % 4];
    if (which == 11)
      value = *reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(params.in) + which);
    if (which == 12) std::memcpy(params.out, params.in + 500, which * 8);
    if (which == 13) std::memset(small, 0, which);
  }
  if (which == 7) {
    if (thread == 5) pointers[0] = local;
    SyncThreads();
    if (thread == 6) value = pointers[0][0];
    SyncThreads();
    value += local[1];
  }
  params.out[thread] = value;
}

BATON_KERNEL(kProgram, ProbeParams, 64) {
  BATON_SHARED(uint32_t, words, 4);
  if (ThreadIndex() < 4) words[ThreadIndex()] = 0;
  SyncThreads();
  char* memory = reinterpret_cast<char*>(params.which == 1 ? params.out : words);
  const uint32_t* next = params.in;
  const int phases = static_cast<int>(*next++);
  for (int phase = 0; phase < phases; ++phase) {
    const uint32_t end = *next++;
    const uint32_t step = next[BlockX() * 64 + ThreadIndex()];
    next += GridX() * 64;
    if (step != 0) {
      char* at = memory + step % 16;
      const bool write = step / 16 % 2 == 1;
      const uint32_t bytes = step / 256 % 8;
      // Uses volatile because the values read are not used.
      if (bytes == 1 && write) *reinterpret_cast<volatile uint8_t*>(at) = 1;
      if (bytes == 1 && !write) (void)*reinterpret_cast<volatile uint8_t*>(at);
      if (bytes == 2 && write) *reinterpret_cast<volatile uint16_t*>(at) = 1;
      if (bytes == 2 && !write) (void)*reinterpret_cast<volatile uint16_t*>(at);
      if (bytes == 4 && write) *reinterpret_cast<volatile uint32_t*>(at) = 1;
      if (bytes == 4 && !write) (void)*reinterpret_cast<volatile uint32_t*>(at);
    }
    if (end == ProgramStep::kSyncWarp) SyncWarp();
    if (end == ProgramStep::kSyncThreads) SyncThreads();
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
