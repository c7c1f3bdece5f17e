#include <functional>
#include <numeric>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/conformance/device_runtime_conformance.h"

namespace baton {
namespace {

std::vector<uint32_t> Numbers(uint32_t first) {
  std::vector<uint32_t> numbers(64);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

void ExpectRefused(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

TEST_P(DeviceRuntimeConformanceTest, WhatIsCapturedRunsWithEachReplay) {
  uint32_t* const memory = Upload(Numbers(0));
  Ok(runtime_->BeginCapture(*stream_));
  Add(memory, memory, 1, 64, *stream_);
  Add(memory, memory, 10, 64, *stream_);
  auto graph = runtime_->EndCapture(*stream_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Download(memory, 64), Numbers(0)) << "capturing runs nothing";
  const auto other = Stream();
  for (int i = 0; i < 3; ++i) Ok(runtime_->Replay(**graph, *stream_));
  // Replays of one graph run one after another. So this replay runs after the earlier ones,
  // although its stream waits for no event.
  Ok(runtime_->Replay(**graph, *other));
  Ok(runtime_->Synchronize(*other));
  EXPECT_EQ(Download(memory, 64), Numbers(44));
}

TEST_P(DeviceRuntimeConformanceTest, AReplayReadsWhatIsThereThen) {
  uint32_t *const pinned = Pinned<uint32_t>(64), *const out = Pinned<uint32_t>(64);
  uint32_t* const memory = Device<uint32_t>(64);
  Ok(runtime_->BeginCapture(*stream_));
  Ok(runtime_->Copy(memory, pinned, 256, *stream_));
  Add(memory, memory, 1, 64, *stream_);
  Ok(runtime_->CopyRows(out, 128, memory, 128, 128, 2, *stream_));
  auto graph = runtime_->EndCapture(*stream_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (uint32_t first : {5, 1000}) {
    const auto numbers = Numbers(first);
    std::copy(numbers.begin(), numbers.end(), pinned);
    Ok(runtime_->Replay(**graph, *stream_));
    Ok(runtime_->Synchronize(*stream_));
    EXPECT_EQ(std::vector<uint32_t>(out, out + 64), Numbers(first + 1));
  }
}

TEST_P(DeviceRuntimeConformanceTest, StreamsThatForkAndJoinAreCapturedTogether) {
  uint32_t *const a = Upload(Numbers(0)), *const b = Device<uint32_t>(64),
                  *const c = Device<uint32_t>(64);
  const auto side = Stream(StreamKind::kCopy);
  const auto forked = Event(), joined = Event();
  Ok(runtime_->BeginCapture(*stream_));
  Add(a, a, 1, 64, *stream_);
  Ok(runtime_->Record(*forked, *stream_));
  Ok(runtime_->WaitFor(*forked, *side));
  Add(b, a, 10, 64, *side);
  Ok(runtime_->Fill(b, 0, 4, *side));
  Ok(runtime_->Record(*joined, *side));
  Add(c, a, 100, 64, *stream_);  // in parallel to the work of `side`
  Ok(runtime_->WaitFor(*joined, *stream_));
  Add(c, b, 1000, 64, *stream_);
  auto graph = runtime_->EndCapture(*stream_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  // After the capture, work on the side stream runs instead of being captured.
  Ok(runtime_->Fill(b, 9, 256, *side));
  Ok(runtime_->Synchronize(*side));
  for (uint32_t i = 1; i <= 5; ++i) {
    Ok(runtime_->Replay(**graph, *stream_));
    auto expected = Numbers(1010 + i);
    expected[0] = 1000;
    EXPECT_EQ(Download(c, 64), expected);
  }
  EXPECT_EQ(Download(a, 64), Numbers(5));
}

TEST_P(DeviceRuntimeConformanceTest, AnEmptyGraphCanBeReplayed) {
  Ok(runtime_->BeginCapture(*stream_));
  auto graph = runtime_->EndCapture(*stream_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  Ok(runtime_->Replay(**graph, *stream_));
  Ok(runtime_->Synchronize(*stream_));
}

TEST_P(DeviceRuntimeConformanceTest, WhatACaptureDoesNotAllowIsRefusedAndSpoilsIt) {
  uint32_t* const memory = Upload(Numbers(0));
  std::vector<uint32_t> plain(64);
  uint32_t* const pinned = Pinned<uint32_t>(64);
  std::vector<std::byte> host(8192);
  const auto other = Stream();
  const auto event = Event(), outside = Event(), interprocess = Event(true);
  Ok(runtime_->Record(*outside, *other));
  Ok(runtime_->BeginCapture(*stream_));
  auto empty = runtime_->EndCapture(*stream_);
  ASSERT_TRUE(empty.ok()) << empty.status();

  const std::vector<std::pair<std::string, std::function<absl::Status()>>> calls = {
      {"Allocate", [&] { return runtime_->Allocate(256).status(); }},
      {"AllocatePinned", [&] { return runtime_->AllocatePinned(256).status(); }},
      {"PinHost", [&] { return runtime_->PinHost(host.data(), host.size()); }},
      {"CreateStream", [&] { return runtime_->CreateStream().status(); }},
      {"Synchronize of its stream", [&] { return runtime_->Synchronize(*stream_); }},
      {"Synchronize of another", [&] { return runtime_->Synchronize(*other); }},
      {"Synchronize of an event", [&] { return runtime_->Synchronize(*outside); }},
      {"Query", [&] { return runtime_->Query(*outside).status(); }},
      {"Query of a captured event",
       [&] {
         Ok(runtime_->Record(*event, *stream_));
         return runtime_->Query(*event).status();
       }},
      {"WaitFor an event from outside", [&] { return runtime_->WaitFor(*outside, *stream_); }},
      {"Record of an interprocess event",
       [&] { return runtime_->Record(*interprocess, *stream_); }},
      {"Copy from plain memory",
       [&] { return runtime_->Copy(memory, plain.data(), 256, *stream_); }},
      {"Copy to plain memory", [&] { return runtime_->Copy(plain.data(), memory, 256, *stream_); }},
      {"CopyRows to plain memory",
       [&] { return runtime_->CopyRows(plain.data(), 64, memory, 64, 64, 2, *stream_); }},
      {"BeginCapture again", [&] { return runtime_->BeginCapture(*stream_); }},
      {"BeginCapture of another", [&] { return runtime_->BeginCapture(*other); }},
      {"Replay", [&] { return runtime_->Replay(**empty, *stream_); }},
      {"Replay on another", [&] { return runtime_->Replay(**empty, *other); }},
      {"Copy to plain memory on another",
       [&] { return runtime_->Copy(plain.data(), memory, 256, *other); }},
      {"CopyRows to plain memory on another",
       [&] { return runtime_->CopyRows(plain.data(), 64, memory, 64, 64, 2, *other); }},
      {"Copy between two places of the host on another",
       [&] { return runtime_->Copy(pinned, plain.data(), 256, *other); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    Ok(runtime_->BeginCapture(*stream_));
    Add(memory, memory, 1, 64, *stream_);
    ExpectRefused(call());
    ExpectRefused(runtime_->EndCapture(*stream_).status());
    // The first EndCapture has ended the capture, although it returned an error.
    ExpectRefused(runtime_->EndCapture(*stream_).status());
    EXPECT_EQ(Download(memory, 64), Numbers(0));
  }
}

TEST_P(DeviceRuntimeConformanceTest, FreeSpoilsACaptureAndFreesNothing) {
  const auto memory = runtime_->Allocate(256);
  ASSERT_TRUE(memory.ok()) << memory.status();
  Ok(runtime_->BeginCapture(*stream_));
  runtime_->Free(*memory);
  ExpectRefused(runtime_->EndCapture(*stream_).status());
  Ok(runtime_->Fill(*memory, 1, 256, *stream_));
  Ok(runtime_->Synchronize(*stream_));
  runtime_->Free(*memory);
}

TEST_P(DeviceRuntimeConformanceTest, AStreamThatJoinedMustBeWaitedFor) {
  uint32_t* const memory = Upload(Numbers(0));
  const auto side = Stream();
  const auto forked = Event();
  Ok(runtime_->BeginCapture(*stream_));
  Ok(runtime_->Record(*forked, *stream_));
  Ok(runtime_->WaitFor(*forked, *side));
  Add(memory, memory, 1, 64, *side);
  ExpectRefused(runtime_->EndCapture(*stream_).status());
  // The capture above has failed, so both streams run their work instead of capturing it. The event
  // `forked` was recorded in that capture, and cannot be used until it is recorded again.
  ExpectRefused(runtime_->WaitFor(*forked, *stream_));
  ExpectRefused(runtime_->Query(*forked).status());
  ExpectRefused(runtime_->Synchronize(*forked));
  Add(memory, memory, 2, 64, *side);
  Ok(runtime_->Record(*forked, *side));
  Ok(runtime_->WaitFor(*forked, *stream_));
  EXPECT_EQ(Download(memory, 64), Numbers(2));
}

TEST_P(DeviceRuntimeConformanceTest, TheCaptureEndsOnItsStreamAndThread) {
  const auto side = Stream();
  const auto forked = Event();
  Ok(runtime_->BeginCapture(*stream_));
  Ok(runtime_->Record(*forked, *stream_));
  Ok(runtime_->WaitFor(*forked, *side));
  ExpectRefused(runtime_->EndCapture(*side).status());
  ExpectRefused(runtime_->EndCapture(*stream_).status());
  Ok(runtime_->BeginCapture(*stream_));
  std::thread([&] { ExpectRefused(runtime_->EndCapture(*stream_).status()); }).join();
  ExpectRefused(runtime_->EndCapture(*stream_).status());
  Ok(runtime_->BeginCapture(*stream_));
  EXPECT_TRUE(runtime_->EndCapture(*stream_).ok());
}

TEST_P(DeviceRuntimeConformanceTest, OtherThreadsGoOnMeanwhile) {
  uint32_t *const memory = Upload(Numbers(0)), *const others = Upload(Numbers(0));
  Ok(runtime_->BeginCapture(*stream_));
  Add(memory, memory, 1, 64, *stream_);
  std::thread([&] {
    const auto own = Stream();
    const auto event = Event();
    const auto room = runtime_->Allocate(256), pinned = runtime_->AllocatePinned(256);
    EXPECT_TRUE(room.ok() && pinned.ok()) << room.status() << pinned.status();
    std::vector<std::byte> host(8192);
    Ok(runtime_->PinHost(host.data(), host.size()));
    Add(others, others, 5, 64, *own);
    Ok(runtime_->Record(*event, *own));
    Ok(runtime_->Synchronize(*event));
    EXPECT_TRUE(*runtime_->Query(*event));
    std::vector<uint32_t> got(64);
    Ok(runtime_->Copy(got.data(), others, 256, *own));
    EXPECT_EQ(got, Numbers(5));
    runtime_->Free(*room);
    runtime_->FreePinned(*pinned);
    runtime_->UnpinHost(host.data());
  }).join();
  auto graph = runtime_->EndCapture(*stream_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  Ok(runtime_->Replay(**graph, *stream_));
  EXPECT_EQ(Download(memory, 64), Numbers(1));
}

}  // namespace
}  // namespace baton
