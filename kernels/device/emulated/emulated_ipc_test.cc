#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "kernels/device/conformance/conformance_kernels.h"
#include "kernels/device/emulated/emulated_event.h"
#include "kernels/device/emulated/emulated_memory.h"
#include "kernels/device/emulated/emulated_runtime.h"

namespace baton {
namespace {

using testing::HasSubstr;

// Sends words between two processes.
struct Line {
  int from = -1, to = -1;
  void Say(const std::string& word) const {
    const auto bytes = static_cast<uint32_t>(word.size());
    if (write(to, &bytes, sizeof(bytes)) < 0 || write(to, word.data(), word.size()) < 0) return;
  }
  // Waits for a word from the other process and returns it. Returns an empty string if the other
  // process is gone.
  std::string Hear() const {
    uint32_t bytes = 0;
    if (read(from, &bytes, sizeof(bytes)) != sizeof(bytes)) return "";
    std::string word(bytes, 0);
    return read(from, word.data(), bytes) == static_cast<ssize_t>(bytes) ? word : "";
  }
};

// A child process. It ends when its function returns, or when this object is destroyed.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void(const Line&)>& does) {
    int here[2], there[2];
    EXPECT_EQ(pipe(here), 0);
    EXPECT_EQ(pipe(there), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(here[0]);
      close(there[1]);
      does({there[0], here[1]});
      _exit(0);
    }
    close(here[1]);
    close(there[0]);
    line_ = {here[0], there[1]};
  }
  ~OtherProcess() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
    close(line_.from);
    close(line_.to);
  }
  const Line& line() const { return line_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  Line line_;
};

std::unique_ptr<DeviceRuntime> Device(uint64_t seed) {
  return *CreateEmulatedRuntime({.seed = seed, .memory_bytes = 1 << 20});
}

// In each round, one process enqueues a fill of its memory, records an event, and waits for the
// other process. That process reads the memory; if `wait` is true, its stream waits for the event
// first. Returns the number of rounds in which the reader did not get the new bytes.
int WrongRounds(uint64_t seed, bool wait) {
  constexpr int kRounds = 20;
  constexpr size_t kBytes = 4096;
  OtherProcess writer([&](const Line& line) {
    const auto runtime = Device(seed);
    const auto stream = *runtime->CreateStream();
    const auto event = *runtime->CreateEvent(true);
    std::byte* const memory = *runtime->Allocate(kBytes, true);
    line.Say(*runtime->ExportMemory(memory));
    line.Say(*runtime->ExportEvent(*event));
    for (int round = 1; round <= kRounds; ++round) {
      const bool put = runtime->Fill(memory, round, kBytes, *stream).ok() &&
                       runtime->Record(*event, *stream).ok();
      line.Say(put ? "recorded" : "failed");
      line.Hear();
    }
  });
  const auto runtime = Device(seed + 1000);
  const auto stream = *runtime->CreateStream();
  std::byte* const memory = *runtime->ImportMemory(writer.line().Hear());
  const auto event = *runtime->ImportEvent(writer.line().Hear());
  int wrong = 0;
  for (int round = 1; round <= kRounds; ++round) {
    EXPECT_EQ(writer.line().Hear(), "recorded");
    if (wait) {
      EXPECT_TRUE(runtime->WaitFor(*event, *stream).ok());
    }
    std::vector<std::byte> got(kBytes);
    EXPECT_TRUE(runtime->Copy(got.data(), memory, kBytes, *stream).ok());
    wrong += got != std::vector<std::byte>(kBytes, std::byte(round));
    writer.line().Say("read");
  }
  runtime->CloseMemory(memory);
  return wrong;
}

TEST(EmulatedIpcTest, AForgottenWaitForAnotherProcessShows) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    EXPECT_EQ(WrongRounds(seed, true), 0) << "seed " << seed;
    wrong += WrongRounds(seed, false);
  }
  RecordProperty("rounds_that_show_it", wrong);
  EXPECT_GE(wrong, 4 * 20 / 2);
}

TEST(EmulatedIpcTest, MoreRecordingsThanMayBeOpenRunTheOldest) {
  const auto runtime = Device(1);
  const auto stream = *runtime->CreateStream();
  const auto event = *runtime->CreateEvent(true);
  std::byte* const memory = *runtime->Allocate(64);
  for (uint32_t i = 0; i < 3 * SharedEvent::kMaxOpen; ++i) {
    ASSERT_TRUE(runtime->Fill(memory, i, 64, *stream).ok());
    ASSERT_TRUE(runtime->Record(*event, *stream).ok());
  }
  ASSERT_TRUE(runtime->Synchronize(*event).ok());
  EXPECT_TRUE(*runtime->Query(*event));
  std::byte got;
  ASSERT_TRUE(runtime->Copy(&got, memory, 1, *stream).ok());
  EXPECT_EQ(got, std::byte(3 * SharedEvent::kMaxOpen - 1));
  runtime->Free(memory);
}

TEST(EmulatedIpcTest, WorkThatFailsLeavesNoOtherProcessWaiting) {
  OtherProcess writer([](const Line& line) {
    const auto runtime = Device(1);
    const auto stream = *runtime->CreateStream();
    const auto event = *runtime->CreateEvent(true);
    auto* const memory = reinterpret_cast<uint32_t*>(*runtime->Allocate(240));
    LaunchShape shape;
    shape.threads = kAddThreads;
    const AddParams past_its_end = {memory, memory, 1, 61};
    const bool put = runtime->Launch(emulated_kernels::kAdd, shape, past_its_end, *stream).ok() &&
                     runtime->Record(*event, *stream).ok();
    line.Say(put ? *runtime->ExportEvent(*event) : "");
    line.Hear();
    line.Say(absl::StrCat(runtime->Synchronize(*stream).message()));
    line.Hear();
  });
  const auto runtime = Device(2);
  const auto event = *runtime->ImportEvent(writer.line().Hear());
  EXPECT_TRUE(runtime->Synchronize(*event).ok());
  writer.line().Say("reached");
  EXPECT_THAT(writer.line().Hear(), HasSubstr("kAdd: wrote after the end"));
}

TEST(EmulatedIpcTest, TheHandleOfAPieceThatWasFreedIsRefused) {
  OtherProcess owner([](const Line& line) {
    const auto runtime = Device(1);
    // Each allocation is freed before the next one is made, so all of them begin at the same
    // address.
    for (const size_t bytes : {4000, 4000, 40000}) {
      std::byte* const memory = *runtime->Allocate(bytes, true);
      const auto stream = *runtime->CreateStream();
      (void)runtime->Fill(memory, 7, bytes, *stream);
      (void)runtime->Synchronize(*stream);
      line.Say(*runtime->ExportMemory(memory));
      line.Hear();
      runtime->Free(memory);
      line.Say("freed");
      line.Hear();
    }
  });
  const auto runtime = Device(2);
  const auto stream = *runtime->CreateStream();
  const auto gone = absl::StatusCode::kFailedPrecondition;
  const auto next = [&] {
    owner.line().Say("go on");
    return owner.line().Hear();
  };
  const std::string first = owner.line().Hear();
  std::byte* const mapped = *runtime->ImportMemory(first);  // this mapping stays open
  EXPECT_EQ(next(), "freed");
  EXPECT_EQ(runtime->ImportMemory(first).status().code(), gone);
  const std::string second = next();
  EXPECT_EQ(runtime->ImportMemory(first).status().code(), gone) << "another piece of that size";
  const auto same_size = runtime->ImportMemory(second);
  ASSERT_TRUE(same_size.ok()) << same_size.status();
  runtime->CloseMemory(*same_size);
  EXPECT_EQ(next(), "freed");
  const std::string third = next();
  const auto larger = runtime->ImportMemory(third);
  ASSERT_TRUE(larger.ok()) << larger.status();
  std::vector<std::byte> got(40000);
  const absl::Status copied = runtime->Copy(got.data(), *larger, got.size(), *stream);
  EXPECT_TRUE(copied.ok()) << copied;
  EXPECT_EQ(got, std::vector<std::byte>(40000, std::byte{7}));
  runtime->CloseMemory(*larger);
  runtime->CloseMemory(mapped);
}

TEST(EmulatedIpcTest, WhoWritesAfterTheEndOfImportedMemoryIsTold) {
  OtherProcess owner([](const Line& line) {
    const auto runtime = Device(1);
    std::byte* const memory = *runtime->Allocate(240, true);
    line.Say(*runtime->ExportMemory(memory));
    line.Hear();
  });
  const auto runtime = Device(2);
  const auto stream = *runtime->CreateStream();
  auto* const memory = reinterpret_cast<uint32_t*>(*runtime->ImportMemory(owner.line().Hear()));
  LaunchShape shape;
  shape.threads = kAddThreads;
  for (const int count : {60, 61}) {
    const AddParams add = {memory, memory, 1, count};
    ASSERT_TRUE(runtime->Launch(emulated_kernels::kAdd, shape, add, *stream).ok());
    const absl::Status status = runtime->Synchronize(*stream);
    if (count == 60) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("kAdd: wrote after the end of a piece of 240 bytes of ",
                                         "process ", owner.pid())));
    }
  }
  runtime->CloseMemory(reinterpret_cast<std::byte*>(memory));
}

TEST(EmulatedIpcTest, MemoryThatIsClosedBeforeTheWorkThatUsesItIsTold) {
  OtherProcess owner([](const Line& line) {
    const auto runtime = Device(1);
    line.Say(*runtime->ExportMemory(*runtime->Allocate(4096, true)));
    line.Hear();
  });
  const std::string handle = owner.line().Hear();
  const auto runtime = Device(2);
  const auto stream = *runtime->CreateStream();
  std::byte* const pinned = *runtime->AllocatePinned(4096);
  for (const bool waits : {true, false}) {
    std::byte* const memory = *runtime->ImportMemory(handle);
    ASSERT_TRUE(runtime->Copy(pinned, memory, 4096, *stream).ok());
    if (waits) {
      ASSERT_EQ(runtime->Synchronize(*stream), absl::OkStatus());
    }
    runtime->CloseMemory(memory);
    const absl::Status status = runtime->Synchronize(*stream);
    EXPECT_EQ(status.ok(), waits) << status;
    if (!waits) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("not allocated"));
    }
  }
  runtime->FreePinned(pinned);
}

// A process that stops frees its pools without waiting for processes that have them mapped.
TEST(EmulatedIpcTest, APieceThatIsFreedWhileOthersLookAtItIsNobodysFault) {
  const auto owner = *EmulatedMemory::Create(1 << 20), importer = *EmulatedMemory::Create(4096);
  int wrong = 0;
  for (int i = 0; i < 200; ++i) {
    std::byte* const memory = *owner->Allocate(1000, true);
    const EmulatedHandle handle = owner->Export(memory);
    std::byte* const mapped = *importer->Map(static_cast<int>(handle.file), handle);
    std::atomic<bool> looking = false, freed = false;
    std::thread looks([&] {
      OpenMemory open(importer.get());
      bool fine = true;
      do {
        fine &= importer->CheckMargins().ok();
        looking = true;
      } while (!freed);
      wrong += !fine;
    });
    while (!looking) sched_yield();
    owner->Free(memory);
    freed = true;
    looks.join();
    importer->Unmap(mapped);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(SharedEventTest, ARecordingIsNotEndedByALaterOne) {
  const auto event = *SharedEvent::Create();
  const uint32_t first = *event->BeginRecording(), second = *event->BeginRecording();
  EXPECT_EQ(event->recorded(), second);
  event->EndRecording(second);
  EXPECT_TRUE(event->Reached(second));
  EXPECT_FALSE(event->Reached(first));
  event->EndRecording(first);
  EXPECT_TRUE(event->Reached(first));
}

TEST(SharedEventTest, ARecordingEndsWithItsOwnProcess) {
  const auto event = *SharedEvent::Create();
  OtherProcess recorder([&](const Line& line) {
    line.Say(absl::StrCat(event->BeginRecording().value_or(0)));
    line.Hear();
  });
  ASSERT_EQ(recorder.line().Hear(), "1");
  const uint32_t ours = *event->BeginRecording();
  event->WaitBriefly(1);
  EXPECT_FALSE(event->Reached(1));
  recorder.Kill();
  for (int i = 0; i < 100 && !event->Reached(1); ++i) event->WaitBriefly(1);
  EXPECT_TRUE(event->Reached(1));
  EXPECT_FALSE(event->Reached(ours));
}

TEST(SharedEventTest, ADeadRecorderIsKnownWithoutAFileToSpare) {
  const auto event = *SharedEvent::Create();
  OtherProcess recorder([&](const Line& line) {
    line.Say(absl::StrCat(event->BeginRecording().value_or(0)));
    line.Hear();
  });
  ASSERT_EQ(recorder.line().Hear(), "1");
  recorder.Kill();
  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none = {0, files.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 100 && !event->Reached(1); ++i) event->WaitBriefly(1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_TRUE(event->Reached(1));
}

TEST(SharedEventTest, SixtyFourRecordingsMayBeOpen) {
  const auto event = *SharedEvent::Create();
  std::vector<uint32_t> open;
  for (uint32_t i = 0; i < SharedEvent::kMaxOpen; ++i) open.push_back(*event->BeginRecording());
  EXPECT_FALSE(event->BeginRecording().has_value());
  event->EndRecording(open[1]);
  EXPECT_FALSE(event->BeginRecording().has_value()) << "the oldest is open";
  event->EndRecording(open[0]);
  EXPECT_TRUE(event->BeginRecording().has_value());
  EXPECT_TRUE(event->Reached(open[0]));
  EXPECT_FALSE(event->Reached(open[2]));
}

}  // namespace
}  // namespace baton
