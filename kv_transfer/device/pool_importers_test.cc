#include "kv_transfer/device/pool_importers.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kv_transfer/device/device_transport.h"
#include "kv_transfer/testing/inprocess_transport.h"
#include "kv_transfer/testing/remote_transport.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {
namespace {

TEST(PoolImportersTest, EachIsAskedOnceUntilItHasClosed) {
  InProcessFabric fabric;
  const auto owner = fabric.CreateTransport(), reader = fabric.CreateTransport();
  std::vector<uint64_t> asked;
  reader->SetNoteHandler(
      [&](absl::string_view note) { asked.push_back(DecodeUnmap(note).value().id); });
  PoolImporters importers(owner.get());
  importers.OnMapped({.id = 7, .mapped = true, .address = reader->address()});
  importers.OnMapped({.id = 7, .mapped = true, .address = reader->address()});
  importers.OnMapped({.id = 8, .mapped = true, .address = reader->address()});
  importers.OnMapped({.id = 9, .mapped = true, .address = "nowhere"});
  EXPECT_EQ(importers.open(), 3u);
  for (int i = 0; i < 3; ++i) importers.AskToClose();
  while (reader->Progress()) {
  }
  EXPECT_THAT(asked, testing::ElementsAre(7, 8));
  EXPECT_EQ(importers.open(), 2u) << "who can't be reached has nothing mapped";
  importers.OnMapped({.id = 7});
  importers.OnMapped({.id = 1});  // this reader has reported no mapping before
  EXPECT_EQ(importers.open(), 1u);
  importers.OnMapped({.id = 8});
  EXPECT_EQ(importers.open(), 0u);
}

TEST(PoolImportersTest, TheFirstOfManyAreForgotten) {
  InProcessFabric fabric;
  const auto owner = fabric.CreateTransport();
  PoolImporters importers(owner.get());
  for (uint64_t id = 1; id <= PoolImporters::kMax + 2; ++id) {
    importers.OnMapped({.id = id, .mapped = true, .address = "a"});
  }
  EXPECT_EQ(importers.open(), PoolImporters::kMax);
  importers.OnMapped({.id = 2});
  EXPECT_EQ(importers.open(), PoolImporters::kMax);
  importers.OnMapped({.id = 3});
  EXPECT_EQ(importers.open(), PoolImporters::kMax - 1);
}

#if !defined(__SANITIZE_THREAD__)  // UCX is not built for the thread sanitizer
// On the emulated device a reader can go on reading freed memory that it still has mapped, but the
// contents of this memory have changed. So the test notices if a pool is freed too early.
TEST(PoolImportersTest, AnOwnerThatEndsFreesItsPoolWhenItsReaderHasClosedIt) {
  constexpr size_t kBytes = 4096;
  const auto device = CreateEmulatedRuntime({.memory_bytes = 16 << 20}).value();
  const auto reader =
      CreateDeviceTransport(CreateUcxTransport({.tls = "shm"}).value(), device.get()).value();
  RemoteTransport owner({ProgramBeside("transport_test_peer"), "shm", "emulated", "6"});
  const TransportMemory theirs = owner.AllocatePool(kBytes).value();
  const PeerId peer = reader->Connect(owner.address()).value();
  std::vector<std::byte> target(kBytes);
  const auto read = [&] {
    absl::Status status = absl::UnknownError("still under way");
    std::fill(target.begin(), target.end(), std::byte{0});
    reader->Read({peer, theirs.key, 0, target.data(), kBytes,
                  [&](const absl::Status& ended) { status = ended; }});
    const absl::Time end = absl::Now() + absl::Seconds(10);
    while (absl::IsUnknown(status) && absl::Now() < end) {
      if (!reader->Progress()) reader->Wait(absl::Milliseconds(1));
    }
    for (size_t i = 0; status.ok() && i < kBytes; ++i) {
      EXPECT_EQ(target[i], RemoteTransport::ByteAt(i)) << i;
      if (target[i] != RemoteTransport::ByteAt(i)) break;
    }
    return status;
  };
  ASSERT_EQ(read(), absl::OkStatus());
  ASSERT_EQ(reader->Link(peer).value(), "cuda-ipc");
  // Sends a note and waits until it has reached the owner. Notes arrive in order, so the owner has
  // then also received the earlier note that says that the reader has mapped the pool.
  bool heard = false;
  owner.SetNoteHandler([&](absl::string_view) { heard = true; });
  ASSERT_EQ(reader->SendNote(peer, "and then"), absl::OkStatus());
  for (const absl::Time end = absl::Now() + absl::Seconds(10); !heard && absl::Now() < end;) {
    owner.Progress();
    if (!reader->Progress()) reader->Wait(absl::Milliseconds(1));
  }
  ASSERT_TRUE(heard);
  owner.End();
  absl::Status status;
  for (int i = 0; i < 100'000 && status.ok() && !HasFailure(); ++i) status = read();
  EXPECT_EQ(status, absl::UnavailableError("the owner frees its pools"));
  EXPECT_EQ(read(), status);
  reader->Disconnect(peer);
}
#endif

}  // namespace
}  // namespace baton
