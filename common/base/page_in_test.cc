#include "common/base/page_in.h"

#include <fstream>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/scratch_folder.h"

namespace baton {
namespace {

using testing::HasSubstr;

constexpr size_t kPage = 4096;

// Returns how many pages of a mapping are in memory.
size_t Resident(const std::byte* data, size_t bytes) {
  std::vector<unsigned char> pages((bytes + kPage - 1) / kPage);
  if (mincore(const_cast<std::byte*>(data), bytes, pages.data()) != 0) return 0;
  size_t resident = 0;
  for (const unsigned char page : pages) resident += page & 1;
  return resident;
}

TEST(PageInTest, AllOfFreshMemoryIsTakenAndKeepsItsContents) {
  const size_t bytes = 40 << 20;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const data = static_cast<std::byte*>(mapped);
  data[123] = std::byte{7};
  EXPECT_LT(Resident(data, bytes), bytes / kPage);
  std::vector<uint64_t> steps;
  const absl::Status status = PageInForWriting(data, bytes, [&](uint64_t done) {
    steps.push_back(done);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Resident(data, bytes), bytes / kPage);
  EXPECT_EQ(data[123], std::byte{7});
  EXPECT_EQ(data[124], std::byte{0});
  ASSERT_GE(steps.size(), 3u);
  EXPECT_EQ(steps.front(), 0u);
  EXPECT_EQ(steps.back(), bytes);
  munmap(mapped, bytes);
}

TEST(PageInTest, AStepEndsTheWorkWithItsError) {
  const size_t bytes = 64 << 20;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const data = static_cast<std::byte*>(mapped);
  const absl::Status status = PageInForWriting(data, bytes, [](uint64_t done) {
    return done == 0 ? absl::OkStatus() : absl::CancelledError("enough");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_LT(Resident(data, bytes), bytes / kPage);
  munmap(mapped, bytes);
}

TEST(PageInTest, AFileIsReadOnceAtAnyAlignmentAndOneCutShortIsAnError) {
  const ScratchFolder folder;
  const size_t bytes = (9 << 20) + 100;
  folder.Write("weights", std::string(bytes, 'x'));
  const int fd = open(absl::StrCat(folder.path(), "/weights").c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto* const data = static_cast<const std::byte*>(mapped);
  uint64_t last = 0;
  const absl::Status status = PageInForReading(data + 77, bytes - 77, [&](uint64_t done) {
    last = done;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(last, bytes - 77);
  EXPECT_EQ(Resident(data, bytes), (bytes + kPage - 1) / kPage);
  // If a file becomes shorter while it is read, kernels from 5.14 on return an error, and older
  // ones kill the process. So this part of the test runs only on the newer kernels.
  if (madvise(mapped, kPage, 22 /* MADV_POPULATE_READ */) == 0) {
    ASSERT_EQ(ftruncate(fd, 5 << 20), 0);
    const absl::Status cut = PageInForReading(data, bytes, nullptr);
    EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss) << cut;
    EXPECT_THAT(std::string(cut.message()), HasSubstr("shorter"));
  }
  munmap(mapped, bytes);
  close(fd);
}

}  // namespace
}  // namespace baton
