#pragma once

// Sums over a thread block, and a search for the place where a sum exceeds a number. Included by
// kernels only.

#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

constexpr int kMaxWarps =
    32;  // max warps of a thread block; the arrays `sums` below, in shared memory, have this size

BATON_DEVICE uint64_t Joined(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}
// Returns the sum over a warp, in every lane.
BATON_DEVICE uint64_t WarpTotal(uint64_t value) {
  BATON_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t low = ShuffleXor(static_cast<uint32_t>(value), mask);
    const uint32_t high = ShuffleXor(static_cast<uint32_t>(value >> 32), mask);
    value += Joined(low, high);
  }
  return value;
}

// The functions below sum value(i, fetch(i)) over i in [begin, end). Only `fetch` accesses memory.
// A thread calls `fetch` four times before it calls `value`, so that four loads are under way at a
// time.
constexpr int kFetches = 4;

// Divides [begin, end) into one part for each warp. For each part, writes the sum of value(i,
// fetch(i)) to `sums`: `fetch` loads element i, and `value` turns the element into a number.
// Returns the number of elements of a part. All threads of the thread block call this together.
template <typename Fetch, typename Value>
BATON_DEVICE int SumParts(int begin, int end, const Fetch& fetch, const Value& value,
                          uint64_t* sums) {
  const int warps = BlockThreads() / 32;
  const int part = ((end - begin + warps - 1) / warps + 31) / 32 * 32;
  const int first = begin + Warp() * part;
  const int last = first + part < end ? first + part : end;
  uint64_t sum = 0;
  for (int base = first + Lane(); base < last; base += kFetches * 32) {
    decltype(fetch(0)) fetched[kFetches];
    BATON_UNROLL
    for (int j = 0; j < kFetches; ++j) {
      const int i = base + j * 32;
      fetched[j] = fetch(i < last ? i : base);
    }
    BATON_UNROLL
    for (int j = 0; j < kFetches; ++j) {
      const int i = base + j * 32;
      if (i < last) sum += value(i, fetched[j]);
    }
  }
  sum = WarpTotal(sum);
  // Waits until all threads have finished reading the previous contents of `sums`.
  SyncThreads();
  if (Lane() == 0) sums[Warp()] = sum;
  SyncThreads();
  return part;
}

// Returns the sum of value(i, fetch(i)) over i in [begin, end): `fetch` loads element i, and
// `value` turns the element into a number. All threads of the thread block call this together and
// get the sum.
template <typename Fetch, typename Value>
BATON_DEVICE uint64_t BlockTotal(int begin, int end, const Fetch& fetch, const Value& value,
                                 uint64_t* sums) {
  SumParts(begin, end, fetch, value, sums);
  uint64_t total = 0;
  for (int warp = 0; warp < BlockThreads() / 32; ++warp) total += sums[warp];
  return total;
}

// A function to pass as `value` to BlockTotal and Locate. It returns the number that their function
// `fetch` returned.
struct AsFetched {
  BATON_DEVICE uint64_t operator()(int, uint64_t fetched) const { return fetched; }
};

struct Located {
  int index;
  uint64_t rest;  // number(total) minus the sum of the values before `index`
};

// Adds up value(j, fetch(j)) from `begin` on, and returns the first index at which the sum exceeds
// a limit. `fetch` loads element j, and `value` turns the element into a number. The limit is
// number(total), where `total` is the sum over [begin, end); it must be less than the total. Reads
// everything once, and then parts of it again. All threads of the thread block call this together.
template <typename Fetch, typename Value, typename Number>
BATON_DEVICE Located Locate(int begin, int end, const Fetch& fetch, const Value& value,
                            const Number& number, uint64_t* sums) {
  const int warps = BlockThreads() / 32;
  int part = SumParts(begin, end, fetch, value, sums);
  uint64_t total = 0;
  for (int warp = 0; warp < warps; ++warp) total += sums[warp];
  uint64_t rest = number(total);
  while (true) {
    int warp = 0;
    while (warp < warps - 1 && rest >= sums[warp]) {
      rest -= sums[warp++];
    }
    begin += warp * part;
    end = begin + part < end ? begin + part : end;
    if (end - begin <= 32) break;
    part = SumParts(begin, end, fetch, value, sums);
  }
  const int i = begin + Lane();
  const uint64_t own = i < end ? value(i, fetch(i)) : 0;
  uint64_t upto = own;
  BATON_UNROLL
  for (int by = 1; by < 32; by *= 2) {
    const int from = Lane() < by ? Lane() : Lane() - by;
    const uint32_t low = Shuffle(static_cast<uint32_t>(upto), from);
    const uint32_t high = Shuffle(static_cast<uint32_t>(upto >> 32), from);
    upto += Lane() >= by ? Joined(low, high) : 0;
  }
  const uint32_t past = Ballot(upto > rest);
  int lane = 0;
  while (lane < 31 && (past >> lane & 1) == 0) ++lane;
  const uint64_t before = upto - own;
  rest -= Joined(Shuffle(static_cast<uint32_t>(before), lane),
                 Shuffle(static_cast<uint32_t>(before >> 32), lane));
  return {begin + lane, rest};
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
