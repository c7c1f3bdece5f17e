#include "kernels/device/emulated/emulated_runtime.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "kernels/device/conformance/device_runtime_conformance.h"

namespace baton {
namespace {

using testing::HasSubstr;

DeviceRuntimeParam Emulated() {
  DeviceRuntimeParam param;
  param.name = "emulated";
  param.create = [](uint64_t seed) {
    EmulatedOptions options;
    options.seed = seed;
    options.memory_bytes = size_t{64} << 20;
    return CreateEmulatedRuntime(options);
  };
  param.add = &emulated_kernels::kAdd;
  param.events_outlive_makers = true;
  return param;
}

INSTANTIATE_TEST_SUITE_P(Emulated, DeviceRuntimeConformanceTest, testing::Values(Emulated()),
                         testing::PrintToStringParamName());

// Tests what only the emulated device guarantees.
class EmulatedRuntimeTest : public testing::Test {
 protected:
  explicit EmulatedRuntimeTest(uint64_t seed = 1) {
    runtime_ = *Emulated().create(seed);
    stream_ = *runtime_->CreateStream();
  }
  static void Ok(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

  std::unique_ptr<DeviceRuntime> runtime_;
  std::unique_ptr<DeviceStream> stream_;
};

using EmulatedRuntimeDeathTest = EmulatedRuntimeTest;

TEST_F(EmulatedRuntimeDeathTest, TheHostCannotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::byte* const memory = *runtime_->Allocate(8192);
  Ok(runtime_->Fill(memory, 1, 8192, *stream_));
  Ok(runtime_->Synchronize(*stream_));
  EXPECT_DEATH(memset(memory + 100, 0, 1), "host touched memory of the emulated device");
  runtime_->Free(memory);
}

// Sanitizers install their own signal handlers, so this test is left out with them.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(EmulatedRuntimeDeathTest, ASegmentationFaultThatWasSentEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        raise(SIGSEGV);
        _exit(0);
      },
      testing::KilledBySignal(SIGSEGV), "");
}
#endif

TEST_F(EmulatedRuntimeTest, WithoutDenseGemmsItSaysSoAndDoesAllElse) {
  const auto runtime = *CreateEmulatedRuntime({.memory_bytes = size_t{1} << 20, .gemms = false});
  const absl::Status missing = runtime->GemmStatus();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition) << missing;
  const auto stream = *runtime->CreateStream();
  auto* const memory = reinterpret_cast<uint32_t*>(*runtime->Allocate(4096));
  const DenseGemm gemm = {.in = memory,
                          .in_stride = 16,
                          .weight = memory + 256,
                          .out = memory + 512,
                          .out_stride = 16,
                          .rows = 1,
                          .n = 16,
                          .k = 16};
  EXPECT_EQ(runtime->Gemm(gemm, *stream), missing);
  Ok(runtime->Fill(memory, 0, 4096, *stream));
  LaunchShape shape;
  shape.threads = kAddThreads;
  Ok(runtime->BeginCapture(*stream));
  Ok(runtime->Launch(emulated_kernels::kAdd, shape, AddParams{memory, memory, 7, 32}, *stream));
  const auto graph = *runtime->EndCapture(*stream);
  Ok(runtime->Replay(*graph, *stream));
  uint32_t got = 0;
  Ok(runtime->Copy(&got, memory, sizeof(got), *stream));
  EXPECT_EQ(got, 7u);
  EXPECT_TRUE(runtime->FreeBytes().ok());
}

// The handler is called once with the failure, even if the first call that meets the failure is
// Free, which returns no error. A handler that is set after the failure is called immediately.
TEST_F(EmulatedRuntimeTest, FailsForGoodAfterSoManyKernelsAndTellsOnce) {
  EmulatedOptions options;
  options.memory_bytes = size_t{1} << 20;
  options.fails_after_kernels = 2;
  const auto runtime = *CreateEmulatedRuntime(options);
  const auto stream = *runtime->CreateStream();
  std::vector<std::string> heard;
  const auto hear = [&heard](const absl::Status& failure) {
    heard.emplace_back(failure.message());
  };
  runtime->OnFailure(hear);
  auto* const memory = reinterpret_cast<uint32_t*>(*runtime->Allocate(4096));
  LaunchShape shape;
  shape.threads = kAddThreads;
  const auto add = [&] {
    return runtime->Launch(emulated_kernels::kAdd, shape, AddParams{memory, memory, 1, 32},
                           *stream);
  };
  Ok(runtime->Fill(memory, 0, 4096, *stream));
  Ok(add());
  Ok(add());
  Ok(runtime->Synchronize(*stream));
  Ok(add());
  EXPECT_TRUE(heard.empty());
  runtime->Free(*runtime->Allocate(16));  // waits for the device, but returns no error
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_THAT(heard[0], HasSubstr("emulated device 0 was to fail after 2 kernels"));
  EXPECT_EQ(runtime->Synchronize(*stream).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(add().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(heard.size(), 1u);
  runtime->OnFailure(hear);  // the device has already failed, so this calls the handler
  EXPECT_EQ(heard.size(), 2u);
  runtime->Free(reinterpret_cast<std::byte*>(memory));
}

// The emulated device is stricter here than a GPU, which accepts a joined stream that ran no work.
TEST_F(EmulatedRuntimeTest, AStreamThatJoinedMustBeWaitedForThoughItDidNothing) {
  const auto side = *runtime_->CreateStream();
  const auto forked = *runtime_->CreateEvent(), joined = *runtime_->CreateEvent();
  const auto capture = [&](bool wait) {
    Ok(runtime_->BeginCapture(*stream_));
    Ok(runtime_->Record(*forked, *stream_));
    Ok(runtime_->WaitFor(*forked, *side));
    if (wait) {
      Ok(runtime_->Record(*joined, *side));
      Ok(runtime_->WaitFor(*joined, *stream_));
    }
    return runtime_->EndCapture(*stream_);
  };
  const auto refused = capture(false);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << refused.status();
  const auto graph = capture(true);
  ASSERT_TRUE(graph.ok()) << graph.status();
  Ok(runtime_->Replay(**graph, *stream_));
  Ok(runtime_->Synchronize(*stream_));
}

TEST_F(EmulatedRuntimeTest, NewMemoryHoldsNothingUsable) {
  std::byte* const memory = *runtime_->Allocate(100);
  std::vector<uint8_t> got(100);
  Ok(runtime_->Copy(got.data(), memory, 100, *stream_));
  EXPECT_EQ(got, std::vector<uint8_t>(100, 0xff));
  runtime_->Free(memory);
}

TEST_F(EmulatedRuntimeTest, CopiesStayInTheirAllocation) {
  std::byte* const memory = *runtime_->Allocate(100);
  std::vector<std::byte> plain(1000);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const absl::Status past = runtime_->Copy(memory + 50, plain.data(), 51, *stream_);
  EXPECT_EQ(past.code(), invalid);
  EXPECT_THAT(std::string(past.message()), HasSubstr("51 bytes at 50 of a piece of 100 bytes"));
  EXPECT_EQ(runtime_->Copy(plain.data(), memory, 101, *stream_).code(), invalid);
  EXPECT_EQ(runtime_->CopyRows(memory, 40, plain.data(), 40, 21, 3, *stream_).code(), invalid);
  Ok(runtime_->CopyRows(memory, 40, plain.data(), 40, 20, 3, *stream_));
  EXPECT_EQ(runtime_->Fill(memory, 0, 101, *stream_).code(), invalid);
  EXPECT_EQ(runtime_->Fill(plain.data(), 0, 1, *stream_).code(), invalid) << "plain memory";
  DenseGemm gemm;
  gemm.in = gemm.weight = gemm.out = memory;
  gemm.in_stride = gemm.out_stride = 4;
  gemm.n = gemm.k = 4;
  gemm.rows = 12;
  Ok(runtime_->Gemm(gemm, *stream_));
  gemm.rows = 13;
  EXPECT_EQ(runtime_->Gemm(gemm, *stream_).code(), invalid);
  runtime_->Free(memory);
  EXPECT_EQ(runtime_->Copy(memory, plain.data(), 1, *stream_).code(), invalid) << "freed";
}

// A copy of unwritten bytes is unwritten, and so is the output of a GEMM that reads them. A GEMM
// reports an error if its weight has unwritten bytes.
TEST_F(EmulatedRuntimeTest, WhatNobodyHasWrittenStaysUnwrittenThroughCopiesAndGemms) {
  constexpr int kSide = 8;
  constexpr size_t kBytes = kSide * kSide * sizeof(uint16_t);
  const auto weight_status = [&](const std::function<void(DeviceRuntime&, DeviceStream&, std::byte*,
                                                          std::byte*)>& make) {
    const auto runtime = *CreateEmulatedRuntime({.memory_bytes = size_t{1} << 20, .check = true});
    std::byte *const some = *runtime->Allocate(kBytes), *const weight = *runtime->Allocate(kBytes),
                     *const out = *runtime->Allocate(kBytes);
    absl::Status status;
    {
      const auto stream = *runtime->CreateStream();
      make(*runtime, *stream, some, weight);
      Ok(runtime->Gemm({.in = weight,
                        .in_stride = kSide,
                        .weight = weight,
                        .out = out,
                        .out_stride = kSide,
                        .rows = 1,
                        .n = kSide,
                        .k = kSide},
                       *stream));
      status = runtime->Synchronize(*stream);
    }
    for (std::byte* const memory : {some, weight, out}) runtime->Free(memory);
    return status.code();
  };
  const auto gemm = [](const std::byte* in, std::byte* out, bool accumulate) {
    return DenseGemm{.in = in,
                     .in_stride = kSide,
                     .weight = in,
                     .out = out,
                     .out_stride = kSide,
                     .rows = kSide,
                     .n = kSide,
                     .k = kSide,
                     .accumulate = accumulate};
  };
  EXPECT_EQ(weight_status([](auto& runtime, auto& stream, std::byte* some, std::byte* weight) {
              Ok(runtime.Fill(some, 0, kBytes, stream));
              Ok(runtime.Copy(weight, some, kBytes, stream));
            }),
            absl::StatusCode::kOk);
  EXPECT_EQ(weight_status([](auto& runtime, auto& stream, std::byte* some, std::byte* weight) {
              Ok(runtime.Fill(weight, 0, kBytes, stream));
              Ok(runtime.Fill(some, 0, kBytes - 1, stream));
              Ok(runtime.CopyRows(weight, 16, some, 16, 16, kSide, stream));
            }),
            absl::StatusCode::kInternal);
  EXPECT_EQ(weight_status([&](auto& runtime, auto& stream, std::byte* some, std::byte* weight) {
              Ok(runtime.Fill(some, 0, kBytes, stream));
              Ok(runtime.Gemm(gemm(some, weight, false), stream));
            }),
            absl::StatusCode::kOk);
  EXPECT_EQ(weight_status([&](auto& runtime, auto& stream, std::byte* some, std::byte* weight) {
              Ok(runtime.Fill(some, 0, kBytes, stream));
              Ok(runtime.Gemm(gemm(some, weight, true), stream));
            }),
            absl::StatusCode::kInternal)
      << "added to what nobody has written";
}

TEST_F(EmulatedRuntimeTest, AKernelThatWritesAfterAnAllocationIsReported) {
  constexpr int kCount = 60;  // the second launch writes one element too many
  auto* const memory = reinterpret_cast<uint32_t*>(*runtime_->Allocate(kCount * 4));
  LaunchShape shape;
  shape.threads = kAddThreads;
  Ok(runtime_->Launch(emulated_kernels::kAdd, shape, AddParams{memory, memory, 1, kCount},
                      *stream_));
  Ok(runtime_->Synchronize(*stream_));
  Ok(runtime_->Launch(emulated_kernels::kAdd, shape, AddParams{memory, memory, 1, kCount + 1},
                      *stream_));
  const absl::Status status = runtime_->Synchronize(*stream_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("kAdd: wrote after the end"));
  // The device has failed for good, like a lost GPU.
  EXPECT_EQ(runtime_->Fill(memory, 0, 4, *stream_), status);
  EXPECT_EQ(runtime_->Synchronize(*stream_), status);
  runtime_->Free(reinterpret_cast<std::byte*>(memory));
}

TEST_F(EmulatedRuntimeTest, WhatIsBehindAnAllocationIsNoNumber) {
  for (const size_t bytes : {240, 241}) {
    auto* const in = reinterpret_cast<uint32_t*>(*runtime_->Allocate(bytes));
    auto* const out = reinterpret_cast<uint32_t*>(*runtime_->Allocate(4096));
    LaunchShape shape;
    shape.threads = kAddThreads;
    shape.grid_x = 16;
    Ok(runtime_->Launch(emulated_kernels::kAdd, shape, AddParams{out, in, 0, 1024}, *stream_));
    std::vector<uint32_t> got(1024);
    Ok(runtime_->Copy(got.data(), out, 4096, *stream_));
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i] >> 16 & 0x7f80, 0x7f80u) << "element " << i << ": " << got[i];
      EXPECT_EQ(got[i] & 0x7f80, 0x7f80u) << "element " << i << ": " << got[i];
      if (HasFailure()) break;
    }
    runtime_->Free(reinterpret_cast<std::byte*>(in));
    runtime_->Free(reinterpret_cast<std::byte*>(out));
  }
}

TEST_F(EmulatedRuntimeTest, AGraphWhoseMemoryIsFreedIsNotReplayed) {
  for (int which = 0; which < 4; ++which) {
    const auto runtime = *Emulated().create(1);
    const auto stream = *runtime->CreateStream();
    std::byte* const freed = *runtime->Allocate(4096);
    std::byte* const kept = *runtime->Allocate(4096);
    Ok(runtime->Fill(kept, 0, 4096, *stream));
    Ok(runtime->BeginCapture(*stream));
    DenseGemm gemm;
    gemm.in = gemm.weight = kept;
    gemm.out = freed;
    gemm.in_stride = gemm.out_stride = gemm.n = gemm.k = gemm.rows = 4;
    if (which == 0) Ok(runtime->Fill(freed, 1, 4096, *stream));
    if (which == 1) Ok(runtime->Copy(kept, freed, 4096, *stream));
    if (which == 2) Ok(runtime->CopyRows(freed, 64, kept, 64, 32, 4, *stream));
    if (which == 3) Ok(runtime->Gemm(gemm, *stream));
    const auto graph = runtime->EndCapture(*stream);
    ASSERT_TRUE(graph.ok()) << graph.status();
    Ok(runtime->Replay(**graph, *stream));
    Ok(runtime->Synchronize(*stream));
    runtime->Free(freed);
    Ok(runtime->Replay(**graph, *stream));
    const absl::Status status = runtime->Synchronize(*stream);
    EXPECT_THAT(std::string(status.message()), HasSubstr("device memory that is not allocated"))
        << which;
    runtime->Free(kept);
  }
}

TEST_F(EmulatedRuntimeTest, StreamsAndEventsOfAnotherRuntimeAreRefused) {
  const auto other = *Emulated().create(2);
  const auto event = *runtime_->CreateEvent();
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(other->Synchronize(*stream_).code(), invalid);
  EXPECT_EQ(other->Synchronize(*event).code(), invalid);
  EXPECT_EQ(other->Record(*event, *stream_).code(), invalid);
}

TEST_F(EmulatedRuntimeTest, ALaunchOfMoreThreadsThanTheKernelWasMadeForIsRefused) {
  LaunchShape shape;
  shape.threads = 2 * kAddThreads;
  const absl::Status status =
      runtime_->Launch(emulated_kernels::kAdd, shape, AddParams{}, *stream_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("made for 64"));
}

// Runs a program with one mistake and returns how many of 100 seeds show the mistake as a wrong
// value.
int SeedsThatShow(const std::function<bool(DeviceRuntime&, uint32_t*, uint32_t*)>& is_right) {
  int seeds = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const auto runtime = *Emulated().create(seed);
    std::byte* const memory = *runtime->Allocate(512);
    std::byte* const pinned = *runtime->AllocatePinned(256);
    seeds += !is_right(*runtime, reinterpret_cast<uint32_t*>(memory),
                       reinterpret_cast<uint32_t*>(pinned));
    runtime->Free(memory);
    runtime->FreePinned(pinned);
  }
  return seeds;
}

// One stream writes values and another copies them, for two rounds, the way a pool is filled and
// read. Returns true if the values are right.
bool Hand(DeviceRuntime& runtime, uint32_t* memory, uint32_t* pinned, bool wait_for_values,
          bool wait_for_reader) {
  const auto maker = *runtime.CreateStream(), taker = *runtime.CreateStream(StreamKind::kCopy);
  const auto made = *runtime.CreateEvent(), taken = *runtime.CreateEvent();
  bool right = true;
  uint32_t* const second = memory + 64;
  for (uint32_t round = 1; round <= 2; ++round) {
    if (wait_for_reader) right &= runtime.WaitFor(*taken, *maker).ok();
    EXPECT_TRUE(runtime.Fill(memory, round, 256, *maker).ok());
    EXPECT_TRUE(runtime.Record(*made, *maker).ok());
    if (wait_for_values) right &= runtime.WaitFor(*made, *taker).ok();
    EXPECT_TRUE(runtime.Copy(second, memory, 256, *taker).ok());
    EXPECT_TRUE(runtime.Copy(pinned + 32 * (round - 1), second, 128, *taker).ok());
    EXPECT_TRUE(runtime.Record(*taken, *taker).ok());
  }
  EXPECT_TRUE(runtime.Synchronize(*maker).ok());
  EXPECT_TRUE(runtime.Synchronize(*taker).ok());
  for (uint32_t i = 0; i < 64; ++i) right &= pinned[i] == (i / 32 + 1) * 0x01010101u;
  return right;
}

TEST(EmulatedOrderTest, AForgottenWaitShowsInMostSeeds) {
  auto with = [](bool values, bool reader) {
    return SeedsThatShow([=](DeviceRuntime& runtime, uint32_t* memory, uint32_t* pinned) {
      return Hand(runtime, memory, pinned, values, reader);
    });
  };
  EXPECT_EQ(with(true, true), 0);
  const int values = with(false, true), reader = with(true, false);
  RecordProperty("seeds_without_wait_for_values", values);
  RecordProperty("seeds_without_wait_for_reader", reader);
  EXPECT_GE(values, 50);
  EXPECT_GE(reader, 50);
}

TEST(EmulatedOrderTest, APinnedBufferThatIsReusedTooEarlyShows) {
  EXPECT_EQ(SeedsThatShow([](DeviceRuntime& runtime, uint32_t* memory, uint32_t* pinned) {
              const auto stream = *runtime.CreateStream();
              pinned[0] = 1;
              EXPECT_TRUE(runtime.Copy(memory, pinned, 4, *stream).ok());
              pinned[0] = 2;  // too early: the copy has not been waited for
              uint32_t got = 0;
              EXPECT_TRUE(runtime.Copy(&got, memory, 4, *stream).ok());
              return got == 1;
            }),
            100);
}

TEST(EmulatedOrderTest, AResultThatIsReadWithoutAskingForItIsNotThere) {
  EXPECT_EQ(SeedsThatShow([](DeviceRuntime& runtime, uint32_t* memory, uint32_t* pinned) {
              const auto stream = *runtime.CreateStream();
              pinned[0] = 0;
              EXPECT_TRUE(runtime.Fill(memory, 1, 4, *stream).ok());
              EXPECT_TRUE(runtime.Copy(pinned, memory, 4, *stream).ok());
              return pinned[0] == 0x01010101;
            }),
            100);
}

// Two streams of a graph, which do not wait for each other, write to the same place.
TEST(EmulatedOrderTest, NodesOfAGraphRunInAnyOrderThatTheirDependenciesAllow) {
  const int seeds = SeedsThatShow([](DeviceRuntime& runtime, uint32_t* memory, uint32_t* pinned) {
    const auto stream = *runtime.CreateStream(), side = *runtime.CreateStream();
    const auto forked = *runtime.CreateEvent(), joined = *runtime.CreateEvent();
    EXPECT_TRUE(runtime.BeginCapture(*stream).ok());
    EXPECT_TRUE(runtime.Record(*forked, *stream).ok());
    EXPECT_TRUE(runtime.WaitFor(*forked, *side).ok());
    EXPECT_TRUE(runtime.Fill(memory, 1, 4, *stream).ok());
    EXPECT_TRUE(runtime.Fill(memory, 2, 4, *side).ok());
    EXPECT_TRUE(runtime.Record(*joined, *side).ok());
    EXPECT_TRUE(runtime.WaitFor(*joined, *stream).ok());
    EXPECT_TRUE(runtime.Copy(pinned, memory, 4, *stream).ok());
    auto graph = runtime.EndCapture(*stream);
    EXPECT_TRUE(graph.ok()) << graph.status();
    EXPECT_TRUE(runtime.Replay(**graph, *stream).ok());
    EXPECT_TRUE(runtime.Synchronize(*stream).ok());
    return pinned[0] == 0x01010101;
  });
  EXPECT_GE(seeds, 30);
  EXPECT_LE(seeds, 70);
}

TEST(EmulatedOrderTest, QueryAnswersFalseNowAndThenAndTheSameForASeed) {
  auto answers = [](uint64_t seed) {
    const auto runtime = *Emulated().create(seed);
    std::byte* const memory = *runtime->Allocate(256);
    const auto stream = *runtime->CreateStream();
    const auto event = *runtime->CreateEvent();
    std::string line;
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(runtime->Fill(memory, 1, 256, *stream).ok());
      EXPECT_TRUE(runtime->Record(*event, *stream).ok());
      for (int tries = 0; tries < 1000; ++tries) {
        const bool reached = *runtime->Query(*event);
        line.push_back(reached ? 'y' : 'n');
        if (reached) break;
      }
      EXPECT_EQ(line.back(), 'y');
    }
    runtime->Free(memory);
    return line;
  };
  const std::string first = answers(1);
  EXPECT_GE(std::count(first.begin(), first.end(), 'n'), 10);
  EXPECT_EQ(first, answers(1));
  EXPECT_NE(first, answers(2));
}

// Another process, whose runtime has `options`. It exports a piece of memory and then waits to be
// killed.
class Exporter {
 public:
  explicit Exporter(const EmulatedOptions& options) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // kills this child if the test dies
      if (getppid() != parent) _exit(1);
      const auto runtime = *CreateEmulatedRuntime(options);
      handle_ = *runtime->ExportMemory(*runtime->Allocate(100, true));
      _exit(write(ends[1], handle_.data(), handle_.size()) > 0 && pause());
    }
    close(ends[1]);  // so that `read` returns if the child dies
    char bytes[256];
    const ssize_t got = read(ends[0], bytes, sizeof(bytes));
    EXPECT_GT(got, 0) << "the other process is gone";
    handle_.assign(bytes, std::max<ssize_t>(got, 0));
    close(ends[0]);
  }
  ~Exporter() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  const std::string& handle() const { return handle_; }

 private:
  pid_t pid_;
  std::string handle_;
};

TEST(EmulatedPeersTest, MemoryOfAnotherDeviceNeedsPeerAccess) {
  EmulatedOptions options;
  options.device = 3;
  options.memory_bytes = 1 << 20;
  const Exporter exporter(options);
  options.device = 0;
  const auto near = *CreateEmulatedRuntime(options);
  const auto memory = near->ImportMemory(exporter.handle());
  ASSERT_TRUE(memory.ok()) << memory.status();
  near->CloseMemory(*memory);
  options.peer_access = false;
  const auto far = *CreateEmulatedRuntime(options);
  const absl::Status status = far->ImportMemory(exporter.handle()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("can't reach memory of device 3"));
}

TEST(EmulatedPeersTest, NothingIsLeftOfAProcessThatWasKilled) {
  EmulatedOptions options;
  options.memory_bytes = 1 << 20;
  const auto runtime = *CreateEmulatedRuntime(options);
  auto exporter = std::make_unique<Exporter>(options);
  const std::string handle = exporter->handle();
  const auto memory = runtime->ImportMemory(handle);
  ASSERT_TRUE(memory.ok()) << memory.status();
  exporter.reset();
  const auto stream = *runtime->CreateStream();
  std::byte got[100];  // imported memory can still be read
  EXPECT_TRUE(runtime->Copy(got, *memory, 100, *stream).ok());
  EXPECT_EQ(got[99], std::byte{0xff});
  runtime->CloseMemory(*memory);
  EXPECT_EQ(runtime->ImportMemory(handle).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(EmulatedPeersTest, ADeviceWithoutMemoryIsRefused) {
  EXPECT_EQ(CreateEmulatedRuntime({.memory_bytes = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (baton::IsIpcPeer(argc, argv)) return baton::RunIpcPeer(baton::Emulated());
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
