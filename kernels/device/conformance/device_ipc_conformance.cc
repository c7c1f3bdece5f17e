#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <numeric>
#include <sstream>
#include <thread>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/hex_bytes.h"
#include "common/base/status_macros.h"
#include "kernels/device/conformance/device_runtime_conformance.h"

namespace baton {
namespace {

constexpr char kPeerFlag[] = "--device-ipc-peer";
constexpr int kCount = 64;
constexpr size_t kBytes = kCount * sizeof(uint32_t);

std::vector<uint32_t> IpcNumbers(uint32_t first) {
  std::vector<uint32_t> numbers(kCount);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Runs in the other process of a test and executes the commands that the test sends, one per line.
// The answer to a command is one line: "ok" or "error", the status code, and in hex the result or
// the error's message. A Peer has one stream, one piece of imported memory and one imported event.
// It exports one piece of memory and one event.
class Peer {
 public:
  explicit Peer(const DeviceRuntimeParam& param) : add_(param.add) {
    auto runtime = param.create(77);
    if (!runtime.ok()) {
      broken_ = runtime.status();
      return;
    }
    runtime_ = *std::move(runtime);
    stream_ = *runtime_->CreateStream();
    pinned_ = reinterpret_cast<uint32_t*>(*runtime_->AllocatePinned(kBytes));
  }
  ~Peer() {
    if (runtime_ == nullptr) return;
    runtime_->FreePinned(reinterpret_cast<std::byte*>(pinned_));
    runtime_->CloseMemory(imported_);
    runtime_->Free(own_);
  }

  absl::StatusOr<std::string> Answer(absl::string_view command, const std::string& handle) {
    RETURN_IF_ERROR(broken_);
    if (command == "import-memory") {
      ASSIGN_OR_RETURN(auto memory, runtime_->ImportMemory(handle));
      imported_ = memory;
      return "";
    }
    if (command == "import-event") {
      ASSIGN_OR_RETURN(auto event, runtime_->ImportEvent(handle));
      event_ = std::move(event);
      return "";
    }
    if (command == "export-memory") {
      own_ = *runtime_->Allocate(kBytes, true);
      return runtime_->ExportMemory(own_);
    }
    if (command == "export-event") {
      own_event_ = *runtime_->CreateEvent(true);
      return runtime_->ExportEvent(*own_event_);
    }
    if (command == "wait") return Said(runtime_->WaitFor(*event_, *stream_));
    if (command == "record") return Said(runtime_->Record(*event_, *stream_));
    if (command == "record-own") return Said(runtime_->Record(*own_event_, *stream_));
    if (command == "add") {  // adds 1 to each imported number, then copies the numbers to own_
      auto* const words = reinterpret_cast<uint32_t*>(imported_);
      const AddParams add = {words, words, 1, kCount};
      LaunchShape shape;
      shape.threads = kAddThreads;
      absl::Status status = runtime_->Launch(*add_, shape, add, *stream_);
      if (status.ok() && own_ != nullptr) {
        status = runtime_->Copy(own_, imported_, kBytes, *stream_);
      }
      return Said(status);
    }
    if (command == "read") {
      absl::Status status = runtime_->Copy(pinned_, imported_, kBytes, *stream_);
      if (status.ok()) status = runtime_->Synchronize(*stream_);
      RETURN_IF_ERROR(status);
      return std::string(reinterpret_cast<const char*>(pinned_), kBytes);
    }
    if (command == "close") {
      runtime_->CloseMemory(imported_);
      imported_ = nullptr;
      return "";
    }
    if (command == "die") raise(SIGKILL);
    return absl::UnimplementedError(command);
  }

 private:
  static absl::StatusOr<std::string> Said(const absl::Status& status) {
    RETURN_IF_ERROR(status);
    return "";
  }

  const Kernel* const add_;
  absl::Status broken_;
  std::unique_ptr<DeviceRuntime> runtime_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<DeviceEvent> event_, own_event_;
  std::byte *imported_ = nullptr, *own_ = nullptr;
  uint32_t* pinned_ = nullptr;
};

// A Peer in its own process.
class PeerProcess {
 public:
  PeerProcess() {
    int to[2], from[2];  // a socket, because sending on a socket fails if the other process is gone
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, to), 0);
    EXPECT_EQ(pipe(from), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      for (int fd = 3; fd < 1024; ++fd) close(fd);
      execl("/proc/self/exe", "peer", kPeerFlag, nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = fdopen(from[0], "r");
  }
  ~PeerProcess() {
    close(to_);  // ends the peer
    std::fclose(from_);
    Reap();
  }
  // Waits until the peer has ended. The caller must already have closed the peer's input or killed
  // the peer.
  void Reap() {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  // Sends one command. Like the functions below, returns Unavailable if the other process is gone.
  absl::Status Send(absl::string_view command, absl::string_view bytes = "") {
    const std::string line = absl::StrCat(command, " ", absl::BytesToHexString(bytes), "\n");
    for (size_t sent = 0; sent < line.size();) {
      const ssize_t more = send(to_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (more > 0) {
        sent += more;
      } else if (errno != EINTR) {
        return absl::UnavailableError(
            absl::StrCat("the other process is gone: ", std::strerror(errno)));
      }
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Receive() {
    std::string line;
    for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
      if (c == EOF) return absl::UnavailableError("the other process is gone");
      line.push_back(static_cast<char>(c));
    }
    std::istringstream in(line);
    std::string word, bytes;
    int code = 0;
    in >> word >> code >> bytes;
    bytes = BytesOfHex(bytes);
    if (word == "ok") return bytes;
    return absl::Status(static_cast<absl::StatusCode>(code), bytes);
  }
  absl::StatusOr<std::string> Ask(absl::string_view command, absl::string_view bytes = "") {
    RETURN_IF_ERROR(Send(command, bytes));
    return Receive();
  }
  std::string Get(absl::string_view command, absl::string_view bytes = "") {
    auto answer = Ask(command, bytes);
    EXPECT_TRUE(answer.ok()) << command << ": " << answer.status();
    return answer.value_or("");
  }
  std::vector<uint32_t> Read() {
    const std::string bytes = Get("read");
    EXPECT_EQ(bytes.size(), kBytes);
    const auto* const words = reinterpret_cast<const uint32_t*>(bytes.data());
    return {words, words + bytes.size() / sizeof(uint32_t)};
  }

 private:
  pid_t pid_;
  int to_ = -1;
  FILE* from_ = nullptr;
};

TEST_P(DeviceRuntimeConformanceTest, AnotherProcessReadsWhatIsThereOnceTheEventIsReached) {
  PeerProcess peer;
  uint32_t* const memory = Upload(IpcNumbers(0), true);
  const auto event = Event(true);
  const auto handle = runtime_->ExportMemory(reinterpret_cast<std::byte*>(memory));
  const auto event_handle = runtime_->ExportEvent(*event);
  ASSERT_TRUE(handle.ok() && event_handle.ok()) << handle.status() << event_handle.status();
  EXPECT_LE(handle->size(), 256u);
  peer.Get("import-memory", *handle);
  peer.Get("import-event", *event_handle);
  for (uint32_t i = 1; i <= 10; ++i) {
    Add(memory, memory, 1, kCount, *stream_);
    Ok(runtime_->Record(*event, *stream_));
    // This process makes no call while the other process waits for the event. The recorded work
    // must run even so.
    peer.Get("wait");
    EXPECT_EQ(peer.Read(), IpcNumbers(i));
  }
  peer.Get("close");
}

TEST_P(DeviceRuntimeConformanceTest, WorkGoesBackAndForth) {
  PeerProcess peer;
  uint32_t* const memory = Upload(IpcNumbers(0), true);
  const auto here = Event(true);
  peer.Get("import-memory", *runtime_->ExportMemory(reinterpret_cast<std::byte*>(memory)));
  peer.Get("import-event", *runtime_->ExportEvent(*here));
  auto there = runtime_->ImportEvent(peer.Get("export-event"));
  ASSERT_TRUE(there.ok()) << there.status();
  auto copy = runtime_->ImportMemory(peer.Get("export-memory"));
  ASSERT_TRUE(copy.ok()) << copy.status();
  constexpr uint32_t kTurns = 10;
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    Add(memory, memory, 1, kCount, *stream_);
    Ok(runtime_->Record(*here, *stream_));
    for (const char* command : {"wait", "add", "record-own"}) Ok(peer.Send(command));
    for (int i = 0; i < 3; ++i) Ok(peer.Receive().status());
    Ok(runtime_->WaitFor(**there, *stream_));
  }
  Ok(runtime_->Synchronize(**there));
  EXPECT_TRUE(*runtime_->Query(**there));
  EXPECT_EQ(Download(memory, kCount), IpcNumbers(2 * kTurns));
  EXPECT_EQ(Download(reinterpret_cast<uint32_t*>(*copy), kCount), IpcNumbers(2 * kTurns));
  runtime_->CloseMemory(*copy);
  // The other process can also record an event that it has imported. The process that made the
  // event then waits for it.
  for (const char* command : {"add", "record"}) peer.Get(command);
  Ok(runtime_->WaitFor(*here, *stream_));
  EXPECT_EQ(Download(memory, kCount), IpcNumbers(2 * kTurns + 1));
}

TEST_P(DeviceRuntimeConformanceTest, TheSameHandleAgainGivesTheSameMemory) {
  PeerProcess peer;
  const std::string handle = peer.Get("export-memory");
  const auto first = runtime_->ImportMemory(handle), second = runtime_->ImportMemory(handle);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(*first, *second);
  runtime_->CloseMemory(*first);
  Ok(runtime_->Fill(*second, 5, kBytes, *stream_));
  EXPECT_EQ(Download(*second, 1)[0], std::byte{5});
  runtime_->CloseMemory(*second);
  runtime_->CloseMemory(nullptr);
}

// Memory of other processes may be imported and closed at any time, for example when a peer ends.
TEST_P(DeviceRuntimeConformanceTest, MemoryIsImportedAndClosedWhileAnotherThreadCaptures) {
  PeerProcess peer;
  const std::string handle = peer.Get("export-memory");
  const auto first = runtime_->ImportMemory(handle);
  ASSERT_TRUE(first.ok()) << first.status();
  uint32_t* const memory = Upload(IpcNumbers(0));
  Ok(runtime_->BeginCapture(*stream_));
  Add(memory, memory, 1, kCount, *stream_);
  std::thread([&] {
    const auto second = runtime_->ImportMemory(handle);
    EXPECT_TRUE(second.ok()) << second.status();
    runtime_->CloseMemory(*first);
    if (second.ok()) runtime_->CloseMemory(*second);
  }).join();
  Add(memory, memory, 1, kCount, *stream_);
  auto graph = runtime_->EndCapture(*stream_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  Ok(runtime_->Replay(**graph, *stream_));
  EXPECT_EQ(Download(memory, kCount), IpcNumbers(2));
}

TEST_P(DeviceRuntimeConformanceTest, WhatLiesBetweenItAndOthersIsTold) {
  EXPECT_EQ(runtime_->LinkTo(runtime_->info().id), "same");
  EXPECT_EQ(runtime_->LinkTo("no device"), "");
}

TEST_P(DeviceRuntimeConformanceTest, AProcessCannotImportWhatItExported) {
  std::byte* const memory = Device<std::byte>(kBytes, true);
  const auto event = Event(true);
  const auto own = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(runtime_->ImportMemory(*runtime_->ExportMemory(memory)).status().code(), own);
  EXPECT_EQ(runtime_->ImportEvent(*runtime_->ExportEvent(*event)).status().code(), own);
  const auto other = GetParam().create(2);
  EXPECT_EQ((*other)->ImportMemory(*runtime_->ExportMemory(memory)).status().code(), own);
}

TEST_P(DeviceRuntimeConformanceTest, OnlyWhatCanBeExportedIs) {
  std::byte* const memory = Device<std::byte>(kBytes, true);
  EXPECT_EQ(runtime_->ExportMemory(memory + 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(runtime_->ExportMemory(Device<std::byte>(kBytes)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runtime_->ExportMemory(nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  const auto event = Event();
  EXPECT_EQ(runtime_->ExportEvent(*event).status().code(), absl::StatusCode::kFailedPrecondition);
  PeerProcess peer;
  auto imported = runtime_->ImportEvent(peer.Get("export-event"));
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(runtime_->ExportEvent(**imported).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(DeviceRuntimeConformanceTest, BytesThatAreNoHandleAreRefused) {
  PeerProcess peer;
  const std::string memory = peer.Get("export-memory"), event = peer.Get("export-event");
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(runtime_->ImportMemory(event).status().code(), invalid);
  EXPECT_EQ(runtime_->ImportEvent(memory).status().code(), invalid);
  EXPECT_EQ(runtime_->ImportMemory("").status().code(), invalid);
  EXPECT_EQ(runtime_->ImportMemory(std::string(300, 'x')).status().code(), invalid);
  for (size_t i = 0; i < memory.size(); ++i) {
    std::string bent = memory;
    bent[i] ^= 0x10;
    EXPECT_EQ(runtime_->ImportMemory(bent).status().code(), invalid) << "byte " << i;
    EXPECT_EQ(runtime_->ImportMemory(memory.substr(0, i)).status().code(), invalid);
  }
}

TEST_P(DeviceRuntimeConformanceTest, TheDeathOfAnotherProcessLeavesThisOneWorking) {
  PeerProcess peer;
  const std::string memory = peer.Get("export-memory"), event = peer.Get("export-event");
  auto imported = runtime_->ImportEvent(event);
  ASSERT_TRUE(imported.ok()) << imported.status();
  peer.Get("record-own");
  EXPECT_EQ(peer.Ask("die").status().code(), absl::StatusCode::kUnavailable);
  peer.Reap();
  EXPECT_EQ(peer.Ask("read").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(runtime_->ImportMemory(memory).status().code(), absl::StatusCode::kFailedPrecondition);
  uint32_t* const own = Upload(IpcNumbers(0));
  if (GetParam().events_outlive_makers) {
    Ok(runtime_->WaitFor(**imported, *stream_));  // the event was reached before its process ended
  }
  Add(own, own, 1, kCount, *stream_);
  EXPECT_EQ(Download(own, kCount), IpcNumbers(1));
}

}  // namespace

bool IsIpcPeer(int argc, char** argv) { return argc == 2 && std::string(argv[1]) == kPeerFlag; }

int RunIpcPeer(const DeviceRuntimeParam& param) {
  Peer peer(param);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string command, bytes;
    in >> command >> bytes;
    const auto answer = peer.Answer(command, BytesOfHex(bytes));
    std::cout << (answer.ok() ? "ok " : "error ") << static_cast<int>(answer.status().code()) << " "
              << absl::BytesToHexString(answer.ok() ? *answer : answer.status().message())
              << std::endl;
  }
  return 0;
}

}  // namespace baton
