#include "kv_transfer/kv_plane.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "common/base/usable_memory.h"
#include "kv_transfer/testing/inprocess_transport.h"
#include "kv_transfer/transport/memory_budget.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {
namespace {

using testing::HasSubstr;

// A block has 64 KiB.
constexpr KvLayout kPlaneLayout = {
    .layers = 4, .kv_heads = 2, .head_dim = 64, .block_tokens = 16, .type = DType::kF32};

// Returns true if every page of the memory is resident.
bool AllResident(const std::byte* data, size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  if (mincore(const_cast<std::byte*>(data), bytes, pages.data()) != 0) return false;
  for (const unsigned char page : pages) {
    if ((page & 1) == 0) return false;
  }
  return true;
}

TEST(KvPlaneTest, AllOfItsMemoryIsTakenAtStartWhereThatIsAskedFor) {
  InProcessFabric fabric(InProcessFabric::Options{});
  for (const bool ucx : {false, true}) {
    SCOPED_TRACE(ucx);
    absl::StatusOr<std::unique_ptr<Transport>> transport = fabric.CreateTransport();
    if (ucx) transport = CreateUcxTransport({.tls = "shm"});
    ASSERT_TRUE(transport.ok()) << transport.status();
    uint64_t last = 0, total = 0, calls = 0;
    KvPlane::Options options = {
        .epoch = 7, .numerics_id = "n", .layout = kPlaneLayout, .blocks = 600};
    options.page_in = true;
    options.on_page_in = [&](uint64_t done, uint64_t of) {
      EXPECT_GE(done, last);
      last = done;
      total = of;
      ++calls;
    };
    const auto plane = KvPlane::Create(transport->get(), options);
    ASSERT_TRUE(plane.ok()) << plane.status();
    const size_t bytes = KvMeta::PoolBytes(kPlaneLayout, options.blocks);
    EXPECT_TRUE(AllResident((*plane)->pool(), bytes));
    EXPECT_TRUE(AllResident((*plane)->meta_data(), (*plane)->meta().Bytes()));
    EXPECT_EQ((*plane)->pool()[bytes / 2], std::byte{0});
    EXPECT_GE(total, bytes);
    EXPECT_EQ(last, total);
    EXPECT_GT(calls, 3u);

    options.page_in = false;
    options.on_page_in = nullptr;
    options.epoch = 8;
    const auto lazy = KvPlane::Create(transport->get(), options);
    ASSERT_TRUE(lazy.ok()) << lazy.status();
    EXPECT_FALSE(AllResident((*lazy)->pool(), bytes));
  }
}

TEST(KvPlaneTest, WhatIsMoreThanThereIsIsRefusedWithTheLimit) {
  const UsableMemory memory = ReadUsableMemory();
  const absl::Status status = CheckMemoryFor(memory.limit_bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not fit"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(memory.limit));
  EXPECT_TRUE(CheckMemoryFor(1).ok());
}

#if !defined(__SANITIZE_THREAD__)
TEST(KvPlaneTest, APeerThatCannotBeReachedIsWarnedOfOnceAMinuteWithWhatToDo) {
  // One transport has only shared memory, the other only TCP. So they can't reach each other, like
  // two machines of which one has its KV plane on loopback.
  const auto ours = CreateUcxTransport({.tls = "shm"}).value();
  const auto theirs = CreateUcxTransport({.tls = "tcp"}).value();
  KvPlane::Options options = {.epoch = 7, .numerics_id = "n", .layout = kPlaneLayout, .blocks = 4};
  const auto owner = KvPlane::Create(theirs.get(), options).value();
  options.epoch = 8;
  options.proves_links = true;
  const auto reader = KvPlane::Create(ours.get(), options).value();
  reader->SetPeers({{.epoch = 7, .address = "far:1", .kv_address = owner->address()}});
  const auto said_until = [&](int second) {
    testing::internal::CaptureStderr();
    static int now = 0;
    for (; now < second; ++now) reader->RunOnce(absl::UnixEpoch() + absl::Seconds(now));
    return testing::internal::GetCapturedStderr();
  };
  const std::string first = said_until(60);
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 1) << first;
  EXPECT_THAT(first, HasSubstr("kv_peer_cannot_be_connected peer=far:1"));
  EXPECT_THAT(first, HasSubstr("--kv-transports=shm and --kv-net-device=lo"));
  EXPECT_THAT(first, HasSubstr("both workers need the name of the network interface"));
  const std::string second = said_until(120);
  EXPECT_EQ(std::count(second.begin(), second.end(), '\n'), 1) << second;
}
#endif

}  // namespace
}  // namespace baton
