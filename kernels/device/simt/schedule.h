#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace baton::simt {

// Makes the choices that a GPU leaves open, such as the order of warps, as a seed decides
// (SimtOptions::seed).
class Schedule {
 public:
  explicit Schedule(uint64_t seed)
      : order_(static_cast<Order>(seed % 3)), copies_land_late_(seed / 3 % 2 == 0), state_(seed) {}

  bool copies_land_late() const { return copies_land_late_; }

  // Sets `order` to a permutation of 0 to count - 1.
  void Shuffle(int count, std::vector<int>& order) {
    order.resize(count);
    std::iota(order.begin(), order.end(), 0);
    if (order_ == kDescending) std::reverse(order.begin(), order.end());
    if (order_ != kSampled) return;
    for (int i = count - 1; i > 0; --i) std::swap(order[i], order[Next() % (i + 1)]);
  }
  bool ShuffleDescending() { return order_ == kSampled ? Next() % 2 == 1 : order_ == kDescending; }

 private:
  enum Order { kAscending, kDescending, kSampled };

  uint64_t Next() {  // SplitMix64: Steele, Lea, Flood, OOPSLA 2014
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  Order order_;
  bool copies_land_late_;
  uint64_t state_;
};

}  // namespace baton::simt
