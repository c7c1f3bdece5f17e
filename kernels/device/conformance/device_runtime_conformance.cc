#include "kernels/device/conformance/device_runtime_conformance.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

std::vector<uint32_t> Numbers(int count, uint32_t first) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

void ExpectInvalid(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_P(DeviceRuntimeConformanceTest, TellsWhatTheDeviceIs) {
  const DeviceInfo& info = runtime_->info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.multiprocessors, 1);
  EXPECT_GE(info.major, 8);
  EXPECT_GE(info.shared_bytes, size_t{48} << 10);
  const auto free = runtime_->FreeBytes();
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_LE(*free, info.total_bytes);
  EXPECT_EQ((*GetParam().create(2))->info().id, info.id);
}

TEST_P(DeviceRuntimeConformanceTest, AllocationsAreAlignedAndApart) {
  std::vector<std::pair<uintptr_t, size_t>> runs;
  for (const size_t bytes : {1, 255, 256, 4096, 100'000}) {
    runs.emplace_back(reinterpret_cast<uintptr_t>(Device<std::byte>(bytes)), bytes);
    EXPECT_EQ(runs.back().first % 256, 0u);
  }
  std::sort(runs.begin(), runs.end());
  for (size_t i = 1; i < runs.size(); ++i) {
    EXPECT_LE(runs[i - 1].first + runs[i - 1].second, runs[i].first);
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(Pinned<char>(10)) % 4096, 0u);
}

TEST_P(DeviceRuntimeConformanceTest, AllocationsTakeNoMoreThanIsSaidOfThem) {
  constexpr size_t kMiB = 1 << 20, kPage = 2 * kMiB;
  for (const bool interprocess : {false, true}) {
    const size_t before = *runtime_->FreeBytes();
    std::vector<std::byte*> pieces;
    size_t said = 0;
    for (const size_t bytes :
         {size_t{1}, size_t{512}, size_t{513}, kMiB - 1, kMiB, kMiB + 1, kPage, 3 * kMiB}) {
      const auto piece = runtime_->Allocate(bytes, interprocess);
      ASSERT_TRUE(piece.ok()) << piece.status();
      pieces.push_back(*piece);
      EXPECT_GE(runtime_->AllocationBytes(bytes, interprocess), bytes);
      said += runtime_->AllocationBytes(bytes, interprocess);
    }
    // The memory taken may differ from the sum of AllocationBytes: small allocations share pages,
    // and a shared page may have been taken before.
    EXPECT_LE(before - *runtime_->FreeBytes(), said + kPage);
    EXPECT_GE(before - *runtime_->FreeBytes() + kPage, said / 2);
    for (std::byte* piece : pieces) runtime_->Free(piece);
  }
}

TEST_P(DeviceRuntimeConformanceTest, FreedMemoryCanBeAllocatedAgain) {
  // Only one allocation of this size fits.
  const size_t half = *runtime_->FreeBytes() / 2 + (size_t{1} << 20);
  for (int i = 0; i < 3; ++i) {
    const auto memory = runtime_->Allocate(half);
    ASSERT_TRUE(memory.ok()) << memory.status();
    runtime_->Free(*memory);
  }
  runtime_->Free(nullptr);
  runtime_->FreePinned(nullptr);
}

TEST_P(DeviceRuntimeConformanceTest, TooLargeAnAllocationTellsWhatIsFree) {
  const size_t bytes = runtime_->info().total_bytes + 1;
  const auto memory = runtime_->Allocate(bytes);
  ASSERT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted) << memory.status();
  EXPECT_TRUE(absl::StrContains(memory.status().message(), absl::StrCat(bytes)));
  EXPECT_TRUE(absl::StrContains(memory.status().message(), "free")) << memory.status();
  ExpectInvalid(runtime_->Allocate(0).status());
  ExpectInvalid(runtime_->AllocatePinned(0).status());
  EXPECT_TRUE(runtime_->Allocate(256).ok());  // the runtime still works
}

TEST_P(DeviceRuntimeConformanceTest, CopiesBetweenEveryTwoKindsOfMemory) {
  constexpr int kCount = 1000, kFirst = 3, kLast = 997;  // copies elements [kFirst, kLast)
  for (int from_kind = 0; from_kind < 3; ++from_kind) {
    for (int to_kind = 0; to_kind < 3; ++to_kind) {
      SCOPED_TRACE(absl::StrCat("from ", from_kind, " to ", to_kind));
      std::vector<uint32_t> plain_from(kCount), plain_to(kCount);
      uint32_t* const froms[] = {Device<uint32_t>(kCount), Pinned<uint32_t>(kCount),
                                 plain_from.data()};
      uint32_t* const tos[] = {Device<uint32_t>(kCount), Pinned<uint32_t>(kCount), plain_to.data()};
      uint32_t *const from = froms[from_kind], *const to = tos[to_kind];
      const auto numbers = Numbers(kCount, 10);
      Ok(runtime_->Copy(from, numbers.data(), kCount * 4, *stream_));
      Ok(runtime_->Copy(to, std::vector<uint32_t>(kCount, 7).data(), kCount * 4, *stream_));
      Ok(runtime_->Copy(to + kFirst, from + kFirst, (kLast - kFirst) * 4, *stream_));
      const auto got = Download(to, kCount);
      for (int i = 0; i < kCount; ++i) {
        ASSERT_EQ(got[i], i >= kFirst && i < kLast ? numbers[i] : 7u) << i;
      }
    }
  }
}

TEST_P(DeviceRuntimeConformanceTest, CopiesRowsBetweenEveryTwoKindsOfMemory) {
  constexpr size_t kRows = 7, kBytes = 13, kFromPitch = 20, kToPitch = 17;
  for (int from_kind = 0; from_kind < 3; ++from_kind) {
    for (int to_kind = 0; to_kind < 3; ++to_kind) {
      SCOPED_TRACE(absl::StrCat("from ", from_kind, " to ", to_kind));
      std::vector<uint8_t> plain_from(kRows * kFromPitch), plain_to(kRows * kToPitch);
      std::vector<uint8_t> bytes(kRows * kFromPitch);
      std::iota(bytes.begin(), bytes.end(), 0);
      uint8_t* const froms[] = {Device<uint8_t>(bytes.size()), Pinned<uint8_t>(bytes.size()),
                                plain_from.data()};
      uint8_t* const tos[] = {Device<uint8_t>(plain_to.size()), Pinned<uint8_t>(plain_to.size()),
                              plain_to.data()};
      uint8_t *const from = froms[from_kind], *const to = tos[to_kind];
      Ok(runtime_->Copy(from, bytes.data(), bytes.size(), *stream_));
      Ok(runtime_->Copy(to, std::vector<uint8_t>(plain_to.size(), 255).data(), plain_to.size(),
                        *stream_));
      Ok(runtime_->CopyRows(to, kToPitch, from, kFromPitch, kBytes, kRows, *stream_));
      const auto got = Download(to, plain_to.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const size_t row = i / kToPitch, column = i % kToPitch;
        ASSERT_EQ(got[i], column < kBytes ? bytes[row * kFromPitch + column] : 255) << i;
      }
    }
  }
}

TEST_P(DeviceRuntimeConformanceTest, PlainMemoryMayBeReusedOnceACopyFromItReturned) {
  uint32_t* const memory = Device<uint32_t>(64);
  std::vector<uint32_t> plain = Numbers(64, 0);
  Ok(runtime_->Copy(memory, plain.data(), 256, *stream_));
  std::fill(plain.begin(), plain.end(), 99);
  Ok(runtime_->CopyRows(memory + 32, 128, plain.data(), 128, 64, 1, *stream_));
  std::fill(plain.begin(), plain.end(), 98);
  const auto got = Download(memory, 64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(got[i], i >= 32 && i < 48 ? 99 : i);
}

TEST_P(DeviceRuntimeConformanceTest, HostMemoryThatIsPinnedWorksAsPinnedMemory) {
  std::vector<std::byte> host(3 << 12);
  Ok(runtime_->PinHost(host.data(), host.size()));
  EXPECT_EQ(runtime_->PinHost(host.data(), host.size()).code(),
            absl::StatusCode::kFailedPrecondition);
  auto* const words = reinterpret_cast<uint32_t*>(host.data());
  uint32_t* const memory = Upload(Numbers(100, 5));
  Ok(runtime_->Copy(words, memory, 400, *stream_));
  Ok(runtime_->Synchronize(*stream_));
  EXPECT_EQ(words[99], 104u);
  runtime_->UnpinHost(host.data());
  Ok(runtime_->PinHost(host.data(), host.size()));
  runtime_->UnpinHost(host.data());
  runtime_->UnpinHost(nullptr);
  ExpectInvalid(runtime_->PinHost(nullptr, 4096));
  ExpectInvalid(runtime_->PinHost(host.data(), 0));
}

TEST_P(DeviceRuntimeConformanceTest, FillsEveryByteOfARun) {
  uint8_t* const memory = Upload(std::vector<uint8_t>(300, 1));
  Ok(runtime_->Fill(memory + 7, 0xab, 201, *stream_));
  Ok(runtime_->Fill(memory, 3, 0, *stream_));
  const auto got = Download(memory, 300);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(got[i], i >= 7 && i < 208 ? 0xab : 1) << i;
}

TEST_P(DeviceRuntimeConformanceTest, CopiesAndFillsOfNothingOrNowhereAreToldApart) {
  uint8_t* const memory = Device<uint8_t>(64);
  Ok(runtime_->Copy(nullptr, nullptr, 0, *stream_));
  Ok(runtime_->CopyRows(memory, 8, nullptr, 8, 8, 0, *stream_));
  Ok(runtime_->CopyRows(memory, 8, nullptr, 8, 0, 3, *stream_));
  ExpectInvalid(runtime_->Copy(memory, nullptr, 1, *stream_));
  ExpectInvalid(runtime_->Copy(nullptr, memory, 1, *stream_));
  ExpectInvalid(runtime_->Copy(memory + 8, memory, 9, *stream_));
  Ok(runtime_->Copy(memory + 8, memory, 8, *stream_));
  ExpectInvalid(runtime_->CopyRows(nullptr, 8, memory, 8, 8, 2, *stream_));
  ExpectInvalid(runtime_->CopyRows(memory, 7, memory + 32, 8, 8, 2, *stream_));
  ExpectInvalid(runtime_->CopyRows(memory, 8, memory + 32, 7, 8, 2, *stream_));
  ExpectInvalid(runtime_->Fill(nullptr, 0, 1, *stream_));
}

TEST_P(DeviceRuntimeConformanceTest, RowsOfACopyDoNotOverlap) {
  std::vector<uint8_t> numbers(64);
  std::iota(numbers.begin(), numbers.end(), 0);
  uint8_t* const memory = Upload(numbers);
  // Each of the next six copies has rows that overlap, or too many rows.
  ExpectInvalid(runtime_->CopyRows(memory + 4, 16, memory, 16, 8, 4, *stream_));
  ExpectInvalid(runtime_->CopyRows(memory, 16, memory + 4, 16, 8, 4, *stream_));
  ExpectInvalid(runtime_->CopyRows(memory + 12, 16, memory, 16, 8, 3, *stream_));
  ExpectInvalid(runtime_->CopyRows(memory + 16, 16, memory, 16, 8, 3, *stream_));
  ExpectInvalid(runtime_->CopyRows(memory + 8, 8, memory, 16, 8, 3, *stream_));
  ExpectInvalid(runtime_->CopyRows(memory, 16, memory + 8, 16, 8, SIZE_MAX / 8, *stream_));
  EXPECT_EQ(Download(memory, 64), numbers);
  // The next two copies do not overlap: one is between two columns of a matrix, the other between
  // the two halves of the memory.
  Ok(runtime_->CopyRows(memory + 8, 16, memory, 16, 8, 2, *stream_));
  Ok(runtime_->CopyRows(memory + 32, 16, memory, 16, 16, 2, *stream_));
  for (int i = 0; i < 16; ++i) numbers[i / 8 * 16 + 8 + i % 8] = numbers[i / 8 * 16 + i % 8];
  std::copy_n(numbers.begin(), 32, numbers.begin() + 32);
  EXPECT_EQ(Download(memory, 64), numbers);
}

TEST_P(DeviceRuntimeConformanceTest, LaunchesRefuseShapesThatNoKernelMayHave) {
  uint32_t* const memory = Upload(Numbers(64, 0));
  const Kernel& add = *GetParam().add;
  const AddParams params = {memory, memory, 1, 64};
  LaunchShape good;
  good.threads = 64;
  auto launch = [&](auto change) {
    LaunchShape shape = good;
    change(shape);
    return runtime_->Launch(add, shape, params, *stream_);
  };
  ExpectInvalid(launch([](LaunchShape& s) { s.threads = 0; }));
  ExpectInvalid(launch([](LaunchShape& s) { s.threads = 33; }));
  ExpectInvalid(launch([](LaunchShape& s) { s.threads = 1056; }));
  ExpectInvalid(launch([](LaunchShape& s) { s.grid_x = 0; }));
  ExpectInvalid(launch([](LaunchShape& s) { s.grid_y = 65536; }));
  ExpectInvalid(launch([](LaunchShape& s) { s.grid_z = -1; }));
  ExpectInvalid(launch([](LaunchShape& s) { s.shared_bytes = size_t{1} << 20; }));
  ExpectInvalid(runtime_->Launch(add, good, 5, *stream_));  // parameters of a wrong size
  ExpectInvalid(runtime_->Launch(add, good, static_cast<const void*>(nullptr), *stream_));
  Kernel other = add;
  other.entry = nullptr;
  ExpectInvalid(runtime_->Launch(other, good, params, *stream_));
  EXPECT_EQ(Download(memory, 64), Numbers(64, 0)) << "nothing has run";
  // Asks for more shared memory than a kernel gets by default.
  Ok(launch([](LaunchShape& s) { s.shared_bytes = 50'000; }));
  EXPECT_EQ(Download(memory, 64), Numbers(64, 1));
}

TEST_P(DeviceRuntimeConformanceTest, ParametersAreTakenByTheCall) {
  uint32_t* const memory = Upload(Numbers(64, 0));
  AddParams params = {memory, memory, 5, 64};
  LaunchShape shape;
  shape.threads = 64;
  Ok(runtime_->Launch(*GetParam().add, shape, params, *stream_));
  params = {};
  EXPECT_EQ(Download(memory, 64), Numbers(64, 5));
}

TEST_P(DeviceRuntimeConformanceTest, WorkOfAStreamRunsInOrder) {
  constexpr int kCount = 100;
  std::mt19937 random(5);
  uint32_t* const memory[3] = {Upload(Numbers(kCount, 0)), Upload(Numbers(kCount, 1)),
                               Upload(Numbers(kCount, 2))};
  std::vector<uint32_t> expected[3] = {Numbers(kCount, 0), Numbers(kCount, 1), Numbers(kCount, 2)};
  for (int i = 0; i < 60; ++i) {
    const int to = random() % 3, from = (to + 1 + random() % 2) % 3;
    switch (random() % 4) {
      case 0:
        Ok(runtime_->Copy(memory[to], memory[from], kCount * 4, *stream_));
        expected[to] = expected[from];
        break;
      case 1:
        Ok(runtime_->Fill(memory[to], static_cast<uint8_t>(i), 40, *stream_));
        std::fill(expected[to].begin(), expected[to].begin() + 10, i * 0x01010101u);
        break;
      default:
        Add(memory[to], memory[from], i, kCount, *stream_);
        for (int j = 0; j < kCount; ++j) expected[to][j] = expected[from][j] + i;
    }
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Download(memory[i], kCount), expected[i]);
}

TEST_P(DeviceRuntimeConformanceTest, StreamsThatWaitForOneAnotherTakeTurns) {
  constexpr int kCount = 64, kTurns = 20;
  const auto other = Stream(StreamKind::kCopy);
  const auto first_done = Event(), second_done = Event();
  uint32_t *const a = Upload(Numbers(kCount, 0)), *const b = Device<uint32_t>(kCount);
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    // In the first round, second_done has not been recorded yet, so this wait has no effect.
    Ok(runtime_->WaitFor(*second_done, *stream_));
    Add(b, a, 1, kCount, *stream_);
    Ok(runtime_->Record(*first_done, *stream_));
    Ok(runtime_->WaitFor(*first_done, *other));
    Add(a, b, 1, kCount, *other);
    Ok(runtime_->Record(*second_done, *other));
  }
  Ok(runtime_->Synchronize(*second_done));
  EXPECT_EQ(Download(a, kCount), Numbers(kCount, 2 * kTurns));
}

TEST_P(DeviceRuntimeConformanceTest, AWaitIsForWhatTheEventHadRecordedWhenItWasCalled) {
  constexpr int kCount = 64;
  const auto other = Stream();
  const auto event = Event();
  uint32_t *const a = Upload(Numbers(kCount, 0)), *const b = Device<uint32_t>(kCount);
  Add(a, a, 1, kCount, *stream_);
  Ok(runtime_->Record(*event, *stream_));
  Ok(runtime_->WaitFor(*event, *other));
  Add(b, a, 0, kCount, *other);
  Ok(runtime_->Record(*event, *other));  // now recorded on another stream
  Ok(runtime_->WaitFor(*event, *stream_));
  Add(a, a, 100, kCount, *stream_);
  Ok(runtime_->Synchronize(*event));
  Ok(runtime_->Synchronize(*stream_));
  EXPECT_EQ(Download(b, kCount), Numbers(kCount, 1));
  EXPECT_EQ(Download(a, kCount), Numbers(kCount, 101));
}

TEST_P(DeviceRuntimeConformanceTest, AnEventIsReachedSoonerOrLaterAndStaysSo) {
  const auto event = Event();
  const auto never = runtime_->Query(*event);
  ASSERT_TRUE(never.ok()) << never.status();
  EXPECT_TRUE(*never) << "never recorded";
  Ok(runtime_->Synchronize(*event));
  uint32_t *const memory = Upload(Numbers(64, 0)), *const pinned = Pinned<uint32_t>(64);
  for (int i = 0; i < 10; ++i) {
    Add(memory, memory, 1, 64, *stream_);
    Ok(runtime_->Copy(pinned, memory, 256, *stream_));
    Ok(runtime_->Record(*event, *stream_));
    while (!*runtime_->Query(*event)) {
    }
    EXPECT_EQ(pinned[63], 64u + i);
    EXPECT_TRUE(*runtime_->Query(*event));
  }
}

TEST_P(DeviceRuntimeConformanceTest, AStreamsDestructorWaitsForItsWork) {
  uint32_t *const memory = Upload(Numbers(64, 0)), *const pinned = Pinned<uint32_t>(64);
  auto stream = Stream();
  Add(memory, memory, 3, 64, *stream);
  Ok(runtime_->Copy(pinned, memory, 256, *stream));
  stream.reset();
  EXPECT_EQ(pinned[0], 3u);
}

TEST_P(DeviceRuntimeConformanceTest, ThreadsHaveStreamsOfTheirOwn) {
  constexpr int kThreads = 3, kCount = 100, kRounds = 20;
  std::vector<uint32_t*> memory;
  for (int t = 0; t < kThreads; ++t) memory.push_back(Upload(Numbers(kCount, t)));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto stream = Stream();
      const auto event = Event();
      for (int round = 0; round < kRounds; ++round) {
        Add(memory[t], memory[t], 1, kCount, *stream);
        Ok(runtime_->Record(*event, *stream));
        if (round % 3 == 0) Ok(runtime_->Synchronize(*event));
      }
      Ok(runtime_->Synchronize(*stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(Download(memory[t], kCount), Numbers(kCount, t + kRounds));
  }
}

}  // namespace
}  // namespace baton
