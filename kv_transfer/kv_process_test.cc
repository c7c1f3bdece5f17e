#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include <sys/types.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/hex_bytes.h"
#include "gtest/gtest.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kv_transfer/device/device_transport.h"
#include "kv_transfer/kv_test_world.h"
#include "kv_transfer/testing/child_process.h"
#include "kv_transfer/testing/remote_transport.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {
namespace {

// Returns the number of shared memory segments that `pid` created, according to /proc/sysvipc/shm.
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

std::set<std::string> UcxFiles() {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, "ucx")) files.insert(name);
  }
  return files;
}

// Setting of a test: how the owner's and the reader's process are linked.
struct Linked {
  std::string name;
  std::string tls;
  std::string link;  // expected result of Transport::Link
  // Emulated devices in whose memory the two pools lie. -1 means host memory.
  int owners_device = -1, readers_device = -1;
  bool peer_access = true;
};
void PrintTo(const Linked& linked, std::ostream* out) { *out << linked.name; }

class KvProcessTest : public testing::TestWithParam<Linked> {
 protected:
  static constexpr int kTokens = 64 * kProcessLayout.block_tokens;
  static constexpr absl::Duration kStall = absl::Milliseconds(1500);

  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "UCX is not built for the thread sanitizer";
#endif
    transport_ = CreateUcxTransport({.tls = GetParam().tls}).value();
    KvPlane::Options options;
    if (GetParam().readers_device >= 0) {
      device_ = CreateEmulatedRuntime({.seed = 1,
                                       .memory_bytes = 64 << 20,
                                       .device = GetParam().readers_device,
                                       .peer_access = GetParam().peer_access})
                    .value();
      transport_ = CreateDeviceTransport(std::move(transport_), device_.get()).value();
      options.device = device_.get();
      options.checksum_kernel = EmulatedKernels().kv_checksum;
    }
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
    std::vector<std::string> command = {ProgramBeside("kv_test_owner"), GetParam().tls};
    if (GetParam().owners_device >= 0) command.push_back(absl::StrCat(GetParam().owners_device));
    owner_ = std::make_unique<ChildProcess>(command);
    std::istringstream in(owner_->Hear());
    std::string word, hex;
    in >> word >> hex;
    ASSERT_EQ(word, "address");
    owner_->Say(absl::StrCat("peer 88 ", absl::BytesToHexString(plane_->address())));
    plane_->SetPeers({{kProcessOwnerEpoch, "owner", BytesOfHex(hex)}});
    ASSERT_TRUE(Until([&] { return plane_->links().size() == 1; }));
  }
  bool Until(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(20)) {
    const absl::Time end = absl::Now() + limit;
    while (!done()) {
      const absl::Time now = absl::Now();
      if (now > end) return false;
      if (!plane_->RunOnce(now)) plane_->Wait(absl::Milliseconds(20));
    }
    return true;
  }
  // Returns the next message from the owner's process. Skips messages that report the end of a
  // hand-over.
  std::string Answer() {
    std::string line = owner_->Hear();
    while (absl::StartsWith(line, "ended")) line = owner_->Hear();
    return line;
  }
  KvTicket Open(int blocks = 64) {
    owner_->Say(absl::StrCat("open ", blocks));
    std::istringstream in(Answer());
    KvTicket ticket;
    std::string word, secret;
    in >> word >> ticket.handover_id >> secret;
    EXPECT_EQ(word, "ticket");
    ticket.secret = BytesOfHex(secret);
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
    pull_ = puller_->Start(ticket, ++attempt_, blocks,
                           [this](PullResult result) { result_ = std::move(result); });
  }
  bool Right(int blocks = 64) {
    for (int i = 0; i < blocks; ++i) {
      if (!BlockIs(plane_.get(), 2 * i, 1000 + i)) return false;
    }
    return true;
  }
  void PublishAll(uint64_t id) {
    owner_->Say(absl::StrCat("publish ", id, " ", kTokens, " ", kProcessLayout.layers));
    owner_->Say(absl::StrCat("complete ", id));
  }

  std::unique_ptr<DeviceRuntime> device_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<KvPlane> plane_;
  std::unique_ptr<KvPuller> puller_;
  std::unique_ptr<ChildProcess> owner_;
  uint32_t attempt_ = 0;
  uint64_t pull_ = 0;
  std::optional<PullResult> result_;
};

TEST_P(KvProcessTest, APullBetweenProcessesBringsTheRightBytes) {
  EXPECT_EQ(plane_->links()[0].link, GetParam().link);
  EXPECT_GT(plane_->links()[0].bytes_per_us, 0);
  const KvTicket ticket = Open();
  Start(ticket);
  ASSERT_TRUE(Until([&] { return plane_->counters().notes > 1; }));
  PublishAll(ticket.handover_id);
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_EQ(result_->payload, "first token");
  EXPECT_EQ(result_->link, GetParam().link);
  EXPECT_TRUE(Right());
  EXPECT_EQ(owner_->Hear(), absl::StrCat("ended ", ticket.handover_id, " OK\n"));
}

TEST_P(KvProcessTest, AnOwnerKilledDuringAPullEndsItAndLeavesNothingBehind) {
  // Files of UCX that exist before the test: a process that was killed during its start may have
  // left some.
  const std::set<std::string> files = UcxFiles();
  for (const bool reaped : {true, false}) {
    SCOPED_TRACE(reaped ? "reaped" : "zombie");
    const pid_t pid = owner_->pid();
    if (GetParam().tls == "shm") {
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
    EXPECT_TRUE(absl::IsFailedPrecondition(result_->status) ||
                absl::IsDeadlineExceeded(result_->status))
        << result_->status;
    plane_->SetPeers({});
    owner_.reset();
    EXPECT_TRUE(Until([&] { return SegmentsOf(pid) == 0; })) << SegmentsOf(pid);
    // Other processes on this machine may be starting. They then have files of UCX for a moment.
    EXPECT_TRUE(Until([&] {
      const std::set<std::string> now = UcxFiles();
      return std::includes(files.begin(), files.end(), now.begin(), now.end());
    })) << absl::StrJoin(UcxFiles(), " ");
    StartOwner();
  }
  const KvTicket ticket = Open();
  Start(ticket);
  PublishAll(ticket.handover_id);
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_TRUE(Right());
}

TEST_P(KvProcessTest, WhatAKilledOwnerHadCompletedIsRightOrFails) {
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
    EXPECT_TRUE(absl::IsFailedPrecondition(result_->status) ||
                absl::IsDeadlineExceeded(result_->status))
        << result_->status;
  }
}

TEST_P(KvProcessTest, AStoppedOwnerIsGivenUpAndUsedAgainWhenItGoesOn) {
  const KvTicket ticket = Open();
  Start(ticket);
  owner_->Say(absl::StrCat("publish ", ticket.handover_id, " ", kTokens / 2, " 4"));
  ASSERT_TRUE(Until([&] { return plane_->counters().notes > 1; }));
  owner_->Signal(SIGSTOP);
  const absl::Time stopped = absl::Now();
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  EXPECT_LT(absl::Now() - stopped, 2 * kStall + absl::Seconds(2));
  EXPECT_TRUE(absl::IsFailedPrecondition(result_->status) ||
              absl::IsDeadlineExceeded(result_->status))
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

TEST_P(KvProcessTest, AFlippedBitAndAReusedBlockAreDataLoss) {
  for (const std::string wrong : {"flip 17 2", "reuse 17"}) {
    SCOPED_TRACE(wrong);
    const KvTicket ticket = Open();
    owner_->Say(
        absl::StrCat("publish ", ticket.handover_id, " ", kTokens, " ", kProcessLayout.layers));
    owner_->Say(wrong);
    ASSERT_EQ(Answer(), "changed\n");
    owner_->Say(absl::StrCat("complete ", ticket.handover_id));
    Start(ticket);
    ASSERT_TRUE(Until([&] { return result_.has_value(); }));
    EXPECT_TRUE(absl::IsDataLoss(result_->status)) << result_->status;
    EXPECT_TRUE(absl::StrContains(result_->status.message(), "block 17 of 64")) << result_->status;
  }
}

TEST_P(KvProcessTest, ACancelledPullIsDoneWhenNothingWillBeWrittenAnyMore) {
  for (const int turns : {0, 2, 6, 20}) {
    SCOPED_TRACE(turns);
    const KvTicket ticket = Open();
    Start(ticket);
    PublishAll(ticket.handover_id);
    const uint64_t notes = plane_->counters().notes;
    ASSERT_TRUE(Until([&] { return plane_->counters().notes > notes || result_.has_value(); }));
    for (int i = 0; i < turns && !result_.has_value(); ++i) plane_->RunOnce(absl::Now());
    puller_->Cancel(pull_);
    ASSERT_TRUE(Until([&] { return result_.has_value(); }));
    for (int i = 0; i < 64; ++i) FillBlock(plane_.get(), 2 * i, 9);
    const absl::Time end = absl::Now() + absl::Milliseconds(20);
    Until([&] { return absl::Now() >= end; });
    for (int i = 0; i < 64; ++i) EXPECT_TRUE(BlockIs(plane_.get(), 2 * i, 9)) << i;
  }
}

std::vector<Linked> AllLinked() {
  return {{"shm", "shm", "shm"},
          {"tcp", "tcp", "tcp"},
          {"CudaIpc", "shm", "cuda-ipc", 0, 0},
          {"Bounced", "shm", "shm", 1, 0, false}};
}
INSTANTIATE_TEST_SUITE_P(Links, KvProcessTest, testing::ValuesIn(AllLinked()),
                         [](const auto& info) { return info.param.name; });

// The owner's pool lies on another device than the reader's. Only the test below depends on that,
// so the tests of KvProcessTest do not run in this setting.
class PeerDeviceTest : public KvProcessTest {};
TEST_P(PeerDeviceTest, APullFromAnotherDeviceIsLabelledSo) {
  const KvTicket ticket = Open();
  Start(ticket);
  PublishAll(ticket.handover_id);
  ASSERT_TRUE(Until([&] { return result_.has_value(); }));
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_EQ(result_->link, GetParam().link);
  EXPECT_TRUE(Right());
}
INSTANTIATE_TEST_SUITE_P(Links, PeerDeviceTest,
                         testing::Values(Linked{"PeerDevice", "tcp", "nvlink", 1, 0}),
                         [](const auto& info) { return info.param.name; });

TEST(KvProcessesTest, SharedMemoryOfAnotherUserIsNamedAsThat) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto runtime = CreateEmulatedRuntime({.memory_bytes = 64 << 20}).value();
  // The owner runs in another process, because within one process UCX 1.18 does not use its
  // shared-memory transports.
  for (const char* tls : {"shm", "auto", "shm,tcp", "tcp,sm"}) {
    SCOPED_TRACE(tls);
    const RemoteTransport owner({ProgramBeside("transport_test_peer"), tls, "emulated", "6"});
    const std::string address = owner.address();
    const auto reader =
        CreateDeviceTransport(CreateUcxTransport({.tls = tls}).value(), runtime.get()).value();
    ASSERT_EQ(seteuid(65534), 0);  // also gives up the right to open other users' memory
    const auto peer = reader->Connect(address);
    ASSERT_EQ(seteuid(0), 0);
    ASSERT_FALSE(peer.ok());
    EXPECT_TRUE(absl::StrContains(peer.status().message(),
                                  "both workers to run as the same user; otherwise give both "
                                  "--kv-transports=tcp"))
        << peer.status();
  }
}

}  // namespace
}  // namespace baton
