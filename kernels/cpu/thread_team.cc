#include "kernels/cpu/thread_team.h"

#include <cstdio>

#include <immintrin.h>
#include <pthread.h>

namespace baton::cpu {
namespace {

// Number of times that a thread checks for a change before it sleeps. The checks take about 20
// microseconds, longer than the time between two parallel operations of a step.
constexpr int kSpins = 1000;

// Waits until `value` differs from `old`. Spins first, then sleeps.
void AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) {
  for (int thread = 1; thread < threads; ++thread) {
    helpers_.emplace_back([this, thread] {
      char name[16];
      std::snprintf(name, sizeof(name), "baton-cpu-%d", thread);
      pthread_setname_np(pthread_self(), name);
      Help(thread);
    });
  }
}

ThreadTeam::~ThreadTeam() {
  stop_.store(true);
  jobs_.fetch_add(1);
  jobs_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadTeam::Run(int items, absl::FunctionRef<void(int, int)> body) {
  if (items <= 1 || helpers_.empty()) {
    for (int item = 0; item < items; ++item) body(item, 0);
    return;
  }
  items_ = items;
  body_ = &body;
  next_item_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen, std::memory_order_release);
  jobs_.fetch_add(1, std::memory_order_release);
  jobs_.notify_all();
  Work(0);
  uint32_t inside = gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  while (inside != 0) {
    AwaitChange(gate_, inside);
    inside = gate_.load(std::memory_order_acquire);
  }
}

void ThreadTeam::Work(int thread) {
  for (;;) {
    const int item = next_item_.fetch_add(1, std::memory_order_relaxed);
    if (item >= items_) return;
    (*body_)(item, thread);
  }
}

void ThreadTeam::Help(int thread) {
  uint32_t seen = 0;
  for (;;) {
    AwaitChange(jobs_, seen);
    seen = jobs_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    uint32_t gate = gate_.load(std::memory_order_relaxed);
    while ((gate & kOpen) != 0) {
      if (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) continue;
      Work(thread);
      if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_one();
      break;
    }
  }
}

}  // namespace baton::cpu
