#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kv_transfer/kv_test_world.h"
#include "kv_transfer/ucx_transport.h"

namespace baton {
namespace {

// Segments made by `pid`, as /proc/sysvipc/shm lists them.
int SegmentsOf(pid_t pid) {
  std::ifstream file("/proc/sysvipc/shm");
  std::string line;
  std::getline(file, line);
  int segments = 0;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    int64_t key, id, perms, bytes, creator;
    in >> key >> id >> perms >> bytes >> creator;
    segments += creator == pid;
  }
  return segments;
}

int UcxFiles() {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    files += absl::StartsWith(entry.path().filename().string(), "ucx");
  }
  return files;
}

// kv_test_owner as a child.
class OwnerProcess {
 public:
  explicit OwnerProcess(const std::string& tls) {
    int to[2], from[2];
    EXPECT_EQ(pipe(to), 0);
    EXPECT_EQ(pipe(from), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      for (int fd = 3; fd < 1024; ++fd) close(fd);
      const std::string program = std::string(BATON_TEST_OWNER);
      execl(program.c_str(), program.c_str(), tls.c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    in_ = fdopen(to[1], "w");
    out_ = fdopen(from[0], "r");
  }
  ~OwnerProcess() {
    Signal(SIGKILL);
    Reap();
    std::fclose(in_);
    std::fclose(out_);
  }
  void Signal(int signal) {
    if (pid_ > 0) kill(pid_, signal);
  }
  void Reap() {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }
  void Say(const std::string& line) {
    std::fprintf(in_, "%s\n", line.c_str());
    std::fflush(in_);
  }
  std::string Hear() {
    char line[65536];
    if (std::fgets(line, sizeof(line), out_) == nullptr) return "";
    return std::string(line);
  }

 private:
  pid_t pid_ = -1;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
};

class UcxProcessTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kTokens = 64 * kProcessLayout.block_tokens;
  static constexpr absl::Duration kStall = absl::Milliseconds(1500);

  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "UCX is not built for the thread sanitizer";
#endif
    std::signal(SIGPIPE, SIG_IGN);
    transport_ = CreateUcxTransport({.tls = GetParam()}).value();
    KvPlane::Options options;
    options.epoch = 88;
    options.numerics_id = "test";
    options.layout = kProcessLayout;
    options.blocks = kProcessBlocks;
    options.proves_links = true;
    options.proof_timeout = absl::Seconds(2);
    plane_ = KvPlane::Create(transport_.get(), options).value();
    puller_ = KvPuller::Create(plane_.get(), {.stall = kStall});
    StartOwner();
  }
  void TearDown() override {
    puller_.reset();
    plane_.reset();
  }

  void StartOwner() {
    owner_ = std::make_unique<OwnerProcess>(GetParam());
    std::istringstream in(owner_->Hear());
    std::string word, hex;
    in >> word >> hex;
    ASSERT_EQ(word, "address");
    owner_->Say(absl::StrCat("peer 88 ", absl::BytesToHexString(plane_->address())));
    plane_->SetPeers({{kProcessOwnerEpoch, "owner", absl::HexStringToBytes(hex)}});
    ASSERT_TRUE(Until([&] { return plane_->links().size() == 1; }));
  }
  bool Until(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(20)) {
    const absl::Time end = absl::Now() + limit;
    while (!done()) {
      const absl::Time now = absl::Now();
      if (now > end) return false;
      if (!plane_->RunOnce(now)) transport_->Wait(absl::Milliseconds(20));
    }
    return true;
  }
  KvTicket Open(int blocks = 64) {
    owner_->Say(absl::StrCat("open ", blocks));
    std::istringstream in(owner_->Hear());
    KvTicket ticket;
    std::string word, secret;
    in >> word >> ticket.handover_id >> secret;
    EXPECT_EQ(word, "ticket");
    ticket.secret = absl::HexStringToBytes(secret);
    ticket.owner_epoch = kProcessOwnerEpoch;
    ticket.owner = "owner";
    ticket.layout_fingerprint = kProcessLayout.Fingerprint();
    ticket.numerics_id = "test";
    ticket.tokens = blocks * kProcessLayout.block_tokens;
    for (BlockId block = 0; block < blocks; ++block) {
      uint64_t generation = 0;
      in >> generation;
      ticket.blocks.push_back(block);
      ticket.generations.push_back(generation);
    }
    return ticket;
  }
  void Start(const KvTicket& ticket) {
    result_.reset();
    std::vector<BlockId> blocks;
    for (size_t i = 0; i < ticket.blocks.size(); ++i) {
      blocks.push_back(static_cast<BlockId>(2 * i));
    }
    puller_->Start(ticket, ++attempt_, blocks,
                   [this](PullResult result) { result_ = std::move(result); });
  }
  bool Right(int blocks = 64) {
    for (int i = 0; i < blocks; ++i) {
      for (int layer = 0; layer < kProcessLayout.layers; ++layer) {
        if (!SliceIs(plane_.get(), 2 * i, layer, 1000 + i)) return false;
      }
    }
    return true;
  }
  void PublishAll(uint64_t id) {
    owner_->Say(absl::StrCat("publish ", id, " ", kTokens, " ", kProcessLayout.layers));
    owner_->Say(absl::StrCat("complete ", id));
  }

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<KvPlane> plane_;
  std::unique_ptr<KvPuller> puller_;
  std::unique_ptr<OwnerProcess> owner_;
  uint32_t attempt_ = 0;
  std::optional<PullResult> result_;
};

TEST_P(UcxProcessTest, APullBetweenProcessesBringsTheRightBytes) {
  EXPECT_EQ(plane_->links()[0].link, GetParam());
  EXPECT_GT(plane_->links()[0].bytes_per_us, 0);
  const KvTicket ticket = Open();
  Start(ticket);
  ASSERT_TRUE(Until([&] { return plane_->counters().notes > 1; }));
  PublishAll(ticket.handover_id);
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_EQ(result_->payload, "first token");
  EXPECT_EQ(result_->link, GetParam());
  EXPECT_TRUE(Right());
  EXPECT_EQ(owner_->Hear(), absl::StrCat("ended ", ticket.handover_id, " OK\n"));
}

TEST_P(UcxProcessTest, AnOwnerKilledDuringAPullEndsItAndLeavesNothingBehind) {
  for (const bool reaped : {true, false}) {
    SCOPED_TRACE(reaped ? "reaped" : "zombie");
    const pid_t pid = owner_->pid();
    if (GetParam() == "shm") {
      EXPECT_GT(SegmentsOf(pid), 0) << "the test must see its segments";
    }
    const KvTicket ticket = Open();
    Start(ticket);
    owner_->Say(absl::StrCat("publish ", ticket.handover_id, " ", kTokens / 2, " 2"));
    ASSERT_TRUE(Until([&] { return plane_->counters().notes > 1; }));
    owner_->Signal(SIGKILL);
    if (reaped) owner_->Reap();
    const absl::Time killed = absl::Now();
    ASSERT_TRUE(Until([&] { return result_.has_value(); }));
    EXPECT_LT(absl::Now() - killed, 2 * kStall + absl::Seconds(2));
    EXPECT_TRUE(absl::IsUnavailable(result_->status) || absl::IsDeadlineExceeded(result_->status))
        << result_->status;
    plane_->SetPeers({});
    owner_.reset();
    EXPECT_TRUE(Until([&] { return SegmentsOf(pid) == 0; })) << SegmentsOf(pid);
    // Others on this machine may be making theirs, which have names for a moment.
    EXPECT_TRUE(Until([] { return UcxFiles() == 0; })) << UcxFiles();
    StartOwner();
  }
  const KvTicket ticket = Open();
  Start(ticket);
  PublishAll(ticket.handover_id);
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_TRUE(Right());
}

TEST_P(UcxProcessTest, WhatAKilledOwnerHadCompletedIsRightOrFails) {
  const KvTicket ticket = Open();
  Start(ticket);
  ASSERT_TRUE(Until([&] { return plane_->counters().notes > 1; }));
  PublishAll(ticket.handover_id);
  const uint64_t notes = plane_->counters().notes;
  ASSERT_TRUE(Until([&] { return plane_->counters().notes > notes || result_.has_value(); }));
  owner_->Signal(SIGKILL);
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  if (result_->status.ok()) {
    EXPECT_TRUE(Right());
  } else {
    EXPECT_TRUE(absl::IsUnavailable(result_->status) || absl::IsDeadlineExceeded(result_->status))
        << result_->status;
  }
}

TEST_P(UcxProcessTest, AStoppedOwnerIsGivenUpAndUsedAgainWhenItGoesOn) {
  const KvTicket ticket = Open();
  Start(ticket);
  owner_->Say(absl::StrCat("publish ", ticket.handover_id, " ", kTokens / 2, " 4"));
  ASSERT_TRUE(Until([&] { return plane_->counters().notes > 1; }));
  owner_->Signal(SIGSTOP);
  const absl::Time stopped = absl::Now();
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  EXPECT_LT(absl::Now() - stopped, 2 * kStall + absl::Seconds(2));
  EXPECT_TRUE(absl::IsUnavailable(result_->status) || absl::IsDeadlineExceeded(result_->status))
      << result_->status;
  ASSERT_TRUE(Until([&] { return plane_->links().empty(); }));
  owner_->Signal(SIGCONT);
  ASSERT_TRUE(Until([&] { return plane_->links().size() == 1; }));
  PublishAll(ticket.handover_id);
  Start(ticket);
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_TRUE(Right());
}

INSTANTIATE_TEST_SUITE_P(Links, UcxProcessTest, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

#if !defined(__SANITIZE_THREAD__)
TEST(UcxTransportTest, AFallFromSharedMemoryToTcpIsReported) {
  setenv("UCX_MM_ERROR_HANDLING", "n", 1);
  auto reader = CreateUcxTransport({.tls = "auto"}).value();
  auto owner = CreateUcxTransport({.tls = "auto"}).value();
  unsetenv("UCX_MM_ERROR_HANDLING");
  const TransportMemory theirs = owner->Allocate(4096).value();
  const PeerId peer = reader->Connect(owner->address()).value();
  std::byte target[64];
  bool done = false;
  reader->Read({peer, theirs.key, 0, target, sizeof(target), [&](absl::Status status) {
                  EXPECT_TRUE(status.ok()) << status;
                  done = true;
                }});
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (!done && absl::Now() < end) {
    reader->Progress();
    owner->Progress();
  }
  ASSERT_TRUE(done);
  EXPECT_EQ(reader->Link(peer).value(), "tcp");
}

TEST(UcxTransportTest, TransportsThatAreNotThereAreAStatusInUcxsWords) {
  const auto transport = CreateUcxTransport({.tls = "warp"});
  ASSERT_FALSE(transport.ok());
  EXPECT_TRUE(absl::StrContains(transport.status().message(), "warp")) << transport.status();
  const auto nowhere = CreateUcxTransport({.tls = "tcp", .net_devices = "nowhere0"});
  EXPECT_FALSE(nowhere.ok());
}

TEST(UcxTransportTest, OurSignalsStayOurs) {
  auto transport = CreateUcxTransport({.tls = "tcp"}).value();
  for (const int signal : {SIGILL, SIGBUS, SIGFPE}) {
    struct sigaction action {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
#if !defined(__SANITIZE_ADDRESS__)
    EXPECT_EQ(action.sa_handler, SIG_DFL) << signal;
#endif
  }
}
#endif

}  // namespace
}  // namespace baton
