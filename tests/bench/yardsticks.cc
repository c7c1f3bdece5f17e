#include "tests/bench/yardsticks.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <immintrin.h>

namespace baton {
namespace {

// Makes the compiler believe that `value` is used.
template <class T>
void Keep(const T& value) {
  asm volatile("" ::"m"(value) : "memory");
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Body>
void OnThreads(int threads, const Body& body) {
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread) all.emplace_back([&, thread] { body(thread); });
  for (std::thread& thread : all) thread.join();
}

// Reads several parts of the memory at the same time. A processor fetches ahead in each of them, so
// that one part alone does not reach what the memory gives.
template <int kParts>
__attribute__((target("avx2"))) uint64_t ReadAll(const char* p, size_t bytes) {
  const size_t part = bytes / kParts / 64 * 64;
  __m256i sum[kParts][2] = {};
  for (size_t i = 0; i + 64 <= part; i += 64) {
    for (int j = 0; j < kParts; ++j) {
      for (int half = 0; half < 2; ++half) {
        const auto* const from = reinterpret_cast<const __m256i*>(p + j * part + i + 32 * half);
        sum[j][half] = _mm256_xor_si256(sum[j][half], _mm256_load_si256(from));
      }
    }
  }
  __m256i all = _mm256_setzero_si256();
  for (const auto& of_part : sum) {
    for (const __m256i& half : of_part) all = _mm256_xor_si256(all, half);
  }
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0));
}

__attribute__((target("avx2,fma"))) double FmaAvx2(int64_t rounds) {
  __m256 acc[12];
  for (__m256& a : acc) a = _mm256_set1_ps(1);
  __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) acc[j] = _mm256_fmadd_ps(acc[j], x, y);
  }
  for (int j = 1; j < 12; ++j) acc[0] = _mm256_add_ps(acc[0], acc[j]);
  Keep(acc[0]);
  return rounds * 12.0 * 8 * 2;
}

__attribute__((target("avx512f"))) double FmaAvx512(int64_t rounds) {
  __m512 acc[12];
  for (__m512& a : acc) a = _mm512_set1_ps(1);
  __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) acc[j] = _mm512_fmadd_ps(acc[j], x, y);
  }
  for (int j = 1; j < 12; ++j) acc[0] = _mm512_add_ps(acc[0], acc[j]);
  Keep(acc[0]);
  return rounds * 12.0 * 16 * 2;
}

}  // namespace

double ReadRate(int threads) {
  constexpr size_t kBytes = 512u << 20;
  std::unique_ptr<char, void (*)(void*)> memory(static_cast<char*>(std::aligned_alloc(64, kBytes)),
                                                std::free);
  std::memset(memory.get(), 1, kBytes);
  double best = 0;
  for (int round = 0; round < 10; ++round) {
    const double start = Seconds();
    OnThreads(threads, [&](int thread) {
      const size_t part = kBytes / threads / 4096 * 4096;
      const char* const from = memory.get() + thread * part;
      Keep(round % 2 == 0 ? ReadAll<1>(from, part) : ReadAll<4>(from, part));
    });
    best = std::max(best, kBytes / (Seconds() - start));
  }
  return best;
}

double FmaRate(int threads) {
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<double> operations(threads);
    const double start = Seconds();
    OnThreads(threads, [&](int thread) {
      operations[thread] =
          __builtin_cpu_supports("avx512f") ? FmaAvx512(10'000'000) : FmaAvx2(10'000'000);
    });
    best = std::max(
        best, std::accumulate(operations.begin(), operations.end(), 0.0) / (Seconds() - start));
  }
  return best;
}

}  // namespace baton
