#include "kernels/cuda/kernels/kv_checksum.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/simt/memory_map.h"
#include "kernels/device/simt/run_grid.h"
#ifdef BATON_CHECKED
#include "kernels/mutations/mutations.h"
#endif

namespace baton {
namespace {

// Compares the kernel's sums with the reference implementation, for slices `gap` bytes apart. Sums
// that were not asked for must stay unchanged.
absl::Status Compare(int64_t slice_bytes, int slices, size_t gap, std::mt19937_64& random,
                     simt::SimtOptions options) {
  const size_t words = (slice_bytes + gap) / sizeof(uint64_t);
  std::vector<uint64_t> pool(words * slices);
  for (uint64_t& word : pool) word = random();
  KvChecksumParams params{};
  params.slice_bytes = slice_bytes;
  params.parts = static_cast<int32_t>(KvChecksumParts(slice_bytes));
  simt::MemoryMap memory;
  for (int i = 0; i < slices; ++i) {
    params.slices[i] = {pool.data() + i * words, random()};
    memory.Add(params.slices[i].data, slice_bytes, /*written=*/true);
  }
  constexpr uint64_t kUntouched = 0xA5A5A5A5A5A5A5A5ull;
  std::vector<uint64_t> sums(slices * params.parts + 1, kUntouched);
  params.sums = sums.data();
  memory.Add(sums.data(), (sums.size() - 1) * sizeof(uint64_t), /*written=*/false);
  options.memory = &memory;
  LaunchShape shape;
  shape.grid_x = slices;
  shape.grid_y = params.parts;
  shape.threads = kKvChecksumThreads;
  RETURN_IF_ERROR(simt::RunGrid(EmulatedKernels().kv_checksum, shape, &params, options));
  for (int i = 0; i < slices; ++i) {
    uint64_t sum = 0;
    for (int part = 0; part < params.parts; ++part) sum += sums[i * params.parts + part];
    if (sum != PlainKvChecksum(pool.data() + i * words, slice_bytes / 8, params.slices[i].seed)) {
      return absl::DataLossError(
          absl::StrCat("slice ", i, " of ", slices, " of ", slice_bytes, " bytes"));
    }
  }
  if (sums.back() != kUntouched) return absl::DataLossError("a sum that nobody asked for");
  return absl::OkStatus();
}

absl::Status CompareAll(const simt::SimtOptions& options) {
  constexpr int64_t kPart = kKvChecksumPartBytes;
  struct Shape {
    int64_t bytes;
    int slices;
  };
  std::mt19937_64 random(options.seed);
  for (const Shape& shape : {Shape{16, kKvChecksumSlices}, Shape{48, 3}, Shape{4096 + 16, 2},
                             Shape{kPart - 16, 1}, Shape{kPart, 2}, Shape{2 * kPart + 4112, 2}}) {
    const size_t gap = 16 * (random() % 3);
    RETURN_IF_ERROR(Compare(shape.bytes, shape.slices, gap, random, options));
  }
  return absl::OkStatus();
}

TEST(KvChecksumTest, EqualsItsReferenceForAllLengthsAndNumbersOfSlices) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    EXPECT_EQ(CompareAll({.seed = seed}), absl::OkStatus()) << seed;
  }
}

#ifdef BATON_CHECKED
TEST(KvChecksumTest, MutationsAreCaught) {
  const mutations::MutationReport report = mutations::TryMutations(
      mutations::AllMutations(), [](uint64_t seed) { return CompareAll({.seed = seed}); },
      /*seeds=*/2);
  EXPECT_EQ(report.unmutated, absl::OkStatus());
  EXPECT_THAT(report.missed, testing::IsEmpty());
  EXPECT_THAT(
      mutations::Without(mutations::OfList(mutations::AllMutations(), "kv_checksum_mutations"),
                         report.caught),
      testing::IsEmpty());
}
#endif

TEST(PlainKvChecksumTest, SeesEveryBitEveryPlaceAndTheSeed) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> words(64);
  for (uint64_t& word : words) word = random();
  std::set<uint64_t> seen;
  const auto add = [&](uint64_t seed) {
    return seen.insert(PlainKvChecksum(words.data(), words.size(), seed)).second;
  };
  EXPECT_TRUE(add(7));
  EXPECT_TRUE(add(8));
  for (size_t bit = 0; bit < words.size() * 64; ++bit) {
    words[bit / 64] ^= uint64_t{1} << (bit % 64);
    EXPECT_TRUE(add(7)) << bit;
    words[bit / 64] ^= uint64_t{1} << (bit % 64);
  }
  for (size_t i = 1; i < words.size(); ++i) {
    std::swap(words[0], words[i]);
    EXPECT_TRUE(add(7)) << i;
    std::swap(words[0], words[i]);
  }
  std::fill(words.begin(), words.end(), 0);
  for (size_t n = 0; n < words.size(); ++n) {
    EXPECT_TRUE(seen.insert(PlainKvChecksum(words.data(), n, 7)).second) << n << " zeros";
  }
}

}  // namespace
}  // namespace baton
