#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/cuda/cuda_runtime.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kv_transfer/device/device_transport.h"
#include "kv_transfer/testing/device_reading_transport.h"
#include "kv_transfer/testing/faulty_transport.h"
#include "kv_transfer/testing/inprocess_transport.h"
#include "kv_transfer/testing/remote_transport.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {
namespace {

// Two transports that can reach each other: one reads, the other owns the memory. This object owns
// the state that they share.
struct TransportPair {
  std::function<std::unique_ptr<Transport>()> make_reader, make_owner;
  // Devices in whose memory the pools lie, or null for host memory. `owner_device` is also null if
  // the owner is in another process.
  std::shared_ptr<DeviceRuntime> reader_device, owner_device;
  bool owner_is_remote = false;
};
struct TransportKind {
  std::string name;
  std::string link;
  std::function<TransportPair()> make;
};
void PrintTo(const TransportKind& kind, std::ostream* out) { *out << kind.name; }

struct InnerTransport {
  std::unique_ptr<Transport> inner;  // in a base class, so that it outlives the wrapper
};
class OwningFaulty : private InnerTransport, public FaultyTransport {
 public:
  explicit OwningFaulty(std::unique_ptr<Transport> wrapped)
      : InnerTransport{std::move(wrapped)},
        FaultyTransport(inner.get(), 1, [] { return absl::Now(); }) {}
};

using MakeTransport = std::function<std::unique_ptr<Transport>()>;
TransportPair BothBy(MakeTransport make) { return {.make_reader = make, .make_owner = make}; }
MakeTransport MakeInProcess() {
  auto fabric = std::make_shared<InProcessFabric>();
  return [fabric] { return fabric->CreateTransport(); };
}
MakeTransport MakeFaulty() {
  return [make = MakeInProcess()]() -> std::unique_ptr<Transport> {
    return std::make_unique<OwningFaulty>(make());
  };
}
MakeTransport MakeUcx(const std::string& tls) {
  return [tls] { return CreateUcxTransport({.tls = tls}).value(); };
}

std::shared_ptr<DeviceRuntime> Device(uint64_t seed) {
  return CreateEmulatedRuntime({.seed = seed, .memory_bytes = 128 << 20}).value();
}
std::shared_ptr<DeviceRuntime> Gpu() { return CreateCudaRuntime(0).value(); }

// Makes transports on two devices of one process. A process can't open its own IPC handles, so all
// reads go through host memory (kBounced) unless the inner transport reads device memory.
using MakeOnDevice = std::function<std::unique_ptr<Transport>(DeviceRuntime*)>;
TransportPair InOneProcess(std::shared_ptr<DeviceRuntime> reader,
                           std::shared_ptr<DeviceRuntime> owner, const MakeOnDevice& make,
                           DevicePath path) {
  TransportPair pair{.reader_device = std::move(reader), .owner_device = std::move(owner)};
  pair.make_reader = [make, path, device = pair.reader_device] {
    return CreateDeviceTransport(make(device.get()), device.get(), path).value();
  };
  pair.make_owner = [make, path, device = pair.owner_device] {
    return CreateDeviceTransport(make(device.get()), device.get(), path).value();
  };
  return pair;
}
MakeOnDevice Plain(const MakeTransport& make) {
  return [make](DeviceRuntime*) { return make(); };
}
MakeOnDevice DeviceReader(const MakeTransport& make) {
  return [make, registry = std::make_shared<DeviceReadingTransport::Registry>()](
             DeviceRuntime* device) -> std::unique_ptr<Transport> {
    return std::make_unique<DeviceReadingTransport>(make(), device, registry,
                                                    DeviceReadingTransport::Options());
  };
}
MakeTransport MakeUcxForDevices() {
  return [] {
    return CreateUcxTransport({.tls = "auto", .net_devices = "all", .device_memory = true}).value();
  };
}
// Returns a pair whose owner is in another process, on the emulated device or on a GPU.
TransportPair BetweenProcesses(std::shared_ptr<DeviceRuntime> reader, const std::string& kind) {
  TransportPair pair{.reader_device = std::move(reader), .owner_is_remote = true};
  pair.make_reader = [make = MakeUcx("shm"), device = pair.reader_device] {
    return CreateDeviceTransport(make(), device.get()).value();
  };
  pair.make_owner = [kind]() -> std::unique_ptr<Transport> {
    return std::make_unique<RemoteTransport>(
        std::vector<std::string>{ProgramBeside("transport_test_peer"), "shm", kind, "6"});
  };
  return pair;
}

absl::Status GpuIsThere() { return CreateCudaRuntime(0).status(); }
// Returns OK if UCX can read the memory of a GPU on this machine.
absl::Status UcxReadsGpus() {
  ASSIGN_OR_RETURN(const auto device, CreateCudaRuntime(0));
  auto transport = CreateDeviceTransport(MakeUcxForDevices()(), device.get(), DevicePath::kDirect);
  return transport.ok() ? (*transport)->AllocatePool(4096).status() : transport.status();
}

std::vector<TransportKind> Kinds() {
  std::vector<TransportKind> kinds = {
      {"InProcess", "inproc", [] { return BothBy(MakeInProcess()); }},
      {"Faulty", "inproc", [] { return BothBy(MakeFaulty()); }},
      {"DeviceBouncedInProcess", "inproc",
       [] {
         return InOneProcess(Device(3), Device(4), Plain(MakeInProcess()), DevicePath::kAuto);
       }},
      {"DeviceDirectInProcess", "rdma", [] {
         return InOneProcess(Device(3), Device(4), DeviceReader(MakeInProcess()),
                             DevicePath::kAuto);
       }}};
#if !defined(__SANITIZE_THREAD__)  // UCX is not built for the thread sanitizer
  kinds.push_back({"UcxShm", "shm", [] { return BothBy(MakeUcx("shm")); }});
  kinds.push_back({"UcxAuto", "shm", [] { return BothBy(MakeUcx("auto")); }});
  kinds.push_back({"UcxTcp", "tcp", [] { return BothBy(MakeUcx("tcp")); }});
  kinds.push_back({"CudaIpc", "cuda-ipc", [] { return BetweenProcesses(Device(5), "emulated"); }});
  if (GpuIsThere().ok()) {
    kinds.push_back({"GpuIpc", "cuda-ipc", [] { return BetweenProcesses(Gpu(), "gpu"); }});
    kinds.push_back(
        {"GpuBounced", "shm",
         [] { return InOneProcess(Gpu(), Gpu(), Plain(MakeUcx("shm")), DevicePath::kBounced); }});
  }
  if (UcxReadsGpus().ok()) {
    kinds.push_back({"GpuDirect", "rdma", [] {
                       return InOneProcess(Gpu(), Gpu(), Plain(MakeUcxForDevices()),
                                           DevicePath::kDirect);
                     }});
  }
#endif
  return kinds;
}

class TransportConformanceTest : public testing::TestWithParam<TransportKind> {
 protected:
  TransportConformanceTest()
      : pair_(GetParam().make()), reader_(pair_.make_reader()), owner_(pair_.make_owner()) {
    if (pair_.reader_device != nullptr) stream_ = pair_.reader_device->CreateStream().value();
  }

  // Drives both transports until connections that are still being set up have finished. Without
  // this, UCX 1.13 may abort the process (see lingering_ in ucx_transport.cc), because no thread
  // drives one transport of this test while the other is destroyed.
  void TearDown() override {
    reader_->SetNoteHandler(nullptr);
    if (owner_ == nullptr) return;
    owner_->SetNoteHandler(nullptr);
    for (int quiet = 0; quiet < 5;) {
      const bool moved = reader_->Progress() | owner_->Progress();
      quiet = moved ? 0 : quiet + 1;
      if (!moved) reader_->Wait(absl::Milliseconds(1));
    }
  }

  // Drives both transports by hand until `done` returns true, for at most 20 seconds.
  bool Until(const std::function<bool()>& done) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (!done()) {
      if (absl::Now() > end) return false;
      bool moved = reader_->Progress();
      if (owner_ != nullptr) moved |= owner_->Progress();
      if (!moved) reader_->Wait(absl::Microseconds(100));
    }
    return true;
  }

  // Returns a pool of the owner in which byte i is ByteAt(i).
  TransportMemory Theirs(size_t bytes) {
    TransportMemory memory = owner_->AllocatePool(bytes).value();
    if (pair_.owner_is_remote) return memory;  // The other process has filled the memory.
    std::vector<std::byte> content(bytes);
    for (size_t i = 0; i < bytes; ++i) content[i] = ByteAt(i);
    if (pair_.owner_device == nullptr) {
      std::memcpy(memory.data, content.data(), bytes);
      return memory;
    }
    DeviceRuntime& device = *pair_.owner_device;
    const auto stream = device.CreateStream().value();
    EXPECT_TRUE(device.Copy(memory.data, content.data(), bytes, *stream).ok());
    EXPECT_TRUE(device.Synchronize(*stream).ok());
    return memory;
  }
  // Returns a pool of the reader in which every byte is `value`.
  TransportMemory Ours(size_t bytes, std::byte value) {
    TransportMemory memory = reader_->AllocatePool(bytes).value();
    Overwrite(memory, value);
    return memory;
  }
  void Overwrite(const TransportMemory& ours, std::byte value) {
    if (!ours.on_device) {
      std::memset(ours.data, static_cast<int>(value), ours.bytes);
      return;
    }
    DeviceRuntime& device = *pair_.reader_device;
    EXPECT_TRUE(device.Fill(ours.data, static_cast<uint8_t>(value), ours.bytes, *stream_).ok());
    EXPECT_TRUE(device.Synchronize(*stream_).ok());
  }
  // Runs all work that is left on the reader's device. An emulated device may delay work until
  // something waits for it.
  void RunWhatIsLeft() {
    if (pair_.reader_device == nullptr) return;
    pair_.reader_device->Free(pair_.reader_device->Allocate(1).value());
  }
  std::vector<std::byte> Contents(const TransportMemory& ours, size_t offset, size_t bytes) {
    std::vector<std::byte> contents(bytes);
    if (bytes == 0) return contents;
    if (!ours.on_device) {
      std::memcpy(contents.data(), ours.data + offset, bytes);
      return contents;
    }
    DeviceRuntime& device = *pair_.reader_device;
    EXPECT_TRUE(device.Copy(contents.data(), ours.data + offset, bytes, *stream_).ok());
    EXPECT_TRUE(device.Synchronize(*stream_).ok());
    return contents;
  }
  static std::byte ByteAt(size_t i) { return RemoteTransport::ByteAt(i); }
  static bool Right(const std::byte* data, size_t offset, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      if (data[i] != ByteAt(offset + i)) return false;
    }
    return true;
  }
  static bool All(const std::vector<std::byte>& bytes, std::byte value) {
    return std::count(bytes.begin(), bytes.end(), value) == static_cast<ptrdiff_t>(bytes.size());
  }

  TransportPair pair_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<Transport> reader_, owner_;
};

TEST_P(TransportConformanceTest, MemoryIsZeroedAlignedAndItsOwn) {
  const TransportMemory a = reader_->Allocate(3 << 20).value();
  const TransportMemory b = reader_->Allocate(100).value();
  const TransportMemory c = reader_->AllocatePool(3 << 20).value();
  const TransportMemory d = reader_->AllocatePool(100).value();
  std::set<std::string> keys;
  for (const TransportMemory& memory : {a, b, c, d}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data) % (memory.on_device ? 256 : 4096), 0u);
    EXPECT_TRUE(All(Contents(memory, 0, memory.bytes), std::byte{0}));
    Overwrite(memory, std::byte{0xFF});
    EXPECT_TRUE(keys.insert(memory.key).second);
  }
  EXPECT_FALSE(a.on_device);
  EXPECT_EQ(c.on_device, pair_.reader_device != nullptr);
}

TEST_P(TransportConformanceTest, MoreMemoryThanThereIsIsRefusedWithTheArithmetic) {
  for (const auto& memory :
       {reader_->Allocate(size_t{1} << 46), reader_->AllocatePool(size_t{1} << 46)}) {
    ASSERT_TRUE(absl::IsResourceExhausted(memory.status())) << memory.status();
    EXPECT_THAT(std::string(memory.status().message()), testing::HasSubstr("70368744177664"));
  }
}

TEST_P(TransportConformanceTest, ReadsOfAllSizesBringTheRightBytesAndNoOthers) {
  const size_t bytes = 5 << 20;
  const TransportMemory theirs = Theirs(bytes);
  const PeerId peer = reader_->Connect(owner_->address()).value();
  const size_t sizes[] = {0, 1, 7, 8, 100, 4096, 65536, 65537, 1 << 20, (1 << 20) + 1, bytes - 9};
  for (const bool into_a_pool : {false, true}) {
    SCOPED_TRACE(into_a_pool ? "into a pool" : "into any host memory");
    std::vector<std::vector<std::byte>> targets;
    std::vector<TransportMemory> pools;
    int done = 0;
    for (const size_t size : sizes) {
      targets.emplace_back(size + 16, std::byte{0xEE});
      if (into_a_pool) pools.push_back(Ours(size + 16, std::byte{0xEE}));
      std::byte* const to = into_a_pool ? pools.back().data : targets.back().data();
      reader_->Read({peer, theirs.key, 9, to + 8, size, [&](absl::Status status) {
                       EXPECT_TRUE(status.ok()) << status;
                       ++done;
                     }});
    }
    EXPECT_EQ(done, 0) << "never from Read";
    ASSERT_TRUE(Until([&] { return done == static_cast<int>(std::size(sizes)); }));
    for (size_t i = 0; i < std::size(sizes); ++i) {
      if (into_a_pool) targets[i] = Contents(pools[i], 0, sizes[i] + 16);
      EXPECT_TRUE(Right(targets[i].data() + 8, 9, sizes[i])) << sizes[i];
      for (size_t k = 0; k < 8; ++k) {
        EXPECT_EQ(targets[i][k], std::byte{0xEE});
        EXPECT_EQ(targets[i][8 + sizes[i] + k], std::byte{0xEE});
      }
    }
  }
}

TEST_P(TransportConformanceTest, ManyScatteredReadsIntoItsOwnMemory) {
  const size_t block = 20000;
  const int blocks = 300;
  const TransportMemory theirs = Theirs(block * blocks);
  const TransportMemory ours = Ours(block * blocks, std::byte{0});
  const PeerId peer = reader_->Connect(owner_->address()).value();
  int done = 0;
  for (int i = 0; i < blocks; ++i) {
    const size_t at = (i * 7 % blocks) * block;
    reader_->Read({peer, theirs.key, at, ours.data + at, block, [&](absl::Status status) {
                     EXPECT_TRUE(status.ok()) << status;
                     ++done;
                   }});
  }
  ASSERT_TRUE(Until([&] { return done == blocks; }));
  EXPECT_TRUE(Right(Contents(ours, 0, block * blocks).data(), 0, block * blocks));
}

TEST_P(TransportConformanceTest, ReadsOutsideTheMemoryAreInvalid) {
  const TransportMemory theirs = Theirs(8192);
  const PeerId peer = reader_->Connect(owner_->address()).value();
  std::vector<std::byte> target(8192, std::byte{0xEE});
  std::vector<absl::StatusCode> codes;
  const auto read = [&](absl::string_view key, uint64_t offset, size_t bytes) {
    reader_->Read({peer, key, offset, target.data(), bytes,
                   [&](absl::Status status) { codes.push_back(status.code()); }});
  };
  read(theirs.key, 8192, 1);
  read(theirs.key, 1, 8192);
  read(theirs.key, ~uint64_t{0}, 2);
  read("no key", 0, 1);
  read("", 0, 1);
  ASSERT_TRUE(Until([&] { return codes.size() == 5; }));
  EXPECT_THAT(codes, testing::Each(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(target, testing::Each(std::byte{0xEE}));
}

TEST_P(TransportConformanceTest, NotesArriveInOrderBothWays) {
  const PeerId to_owner = reader_->Connect(owner_->address()).value();
  const PeerId to_reader = owner_->Connect(reader_->address()).value();
  std::vector<std::string> at_owner, at_reader;
  owner_->SetNoteHandler([&](absl::string_view note) { at_owner.emplace_back(note); });
  reader_->SetNoteHandler([&](absl::string_view note) { at_reader.emplace_back(note); });
  std::vector<std::string> sent;
  for (int i = 0; i < 200; ++i) {
    sent.push_back(std::string(1 + (i * 997) % Transport::kMaxNoteBytes, static_cast<char>(i)));
    ASSERT_TRUE(reader_->SendNote(to_owner, sent.back()).ok());
    ASSERT_TRUE(owner_->SendNote(to_reader, sent.back()).ok());
  }
  sent.push_back(std::string(Transport::kMaxNoteBytes, 'x'));
  ASSERT_TRUE(reader_->SendNote(to_owner, sent.back()).ok());
  ASSERT_TRUE(owner_->SendNote(to_reader, sent.back()).ok());
  ASSERT_TRUE(Until([&] { return at_owner.size() == 201 && at_reader.size() == 201; }));
  EXPECT_EQ(at_owner, sent);
  EXPECT_EQ(at_reader, sent);
  EXPECT_TRUE(absl::IsInvalidArgument(
      reader_->SendNote(to_owner, std::string(Transport::kMaxNoteBytes + 1, 'x'))));
  EXPECT_TRUE(absl::IsUnavailable(reader_->SendNote(to_owner + 1000, "x")));
}

TEST_P(TransportConformanceTest, NotesToAPeerThatTakesNoneAreBounded) {
  const PeerId peer = reader_->Connect(owner_->address()).value();
  absl::Status status;
  int sent = 0;
  // Buffers below the transport take some notes too. So SendNote returns OK for more than
  // kMaxNotesUnderWay notes before it returns ResourceExhausted.
  while (status.ok() && sent < 1000000) {
    status = reader_->SendNote(peer, std::string(1000, 'x'));
    if (++sent % 64 == 0) reader_->Progress();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  int arrived = 0;
  owner_->SetNoteHandler([&](absl::string_view) { ++arrived; });
  EXPECT_TRUE(Until([&] { return arrived == sent - 1; })) << arrived << " of " << sent - 1;
}

TEST_P(TransportConformanceTest, CallbacksMayPostMore) {
  const TransportMemory theirs = Theirs(8192);
  const PeerId peer = reader_->Connect(owner_->address()).value();
  const PeerId back = owner_->Connect(reader_->address()).value();
  std::vector<std::byte> target(8192);
  bool second = false, answered = false;
  owner_->SetNoteHandler(
      [&](absl::string_view note) { EXPECT_TRUE(owner_->SendNote(back, note).ok()); });
  reader_->SetNoteHandler([&](absl::string_view) { answered = true; });
  reader_->Read({peer, theirs.key, 0, target.data(), 4096, [&](absl::Status status) {
                   EXPECT_TRUE(status.ok()) << status;
                   EXPECT_TRUE(reader_->SendNote(peer, "hello").ok());
                   reader_->Read({peer, theirs.key, 4096, target.data() + 4096, 4096,
                                  [&](absl::Status) { second = true; }});
                 }});
  ASSERT_TRUE(Until([&] { return second && answered; }));
  EXPECT_TRUE(Right(target.data(), 0, 8192));
}

TEST_P(TransportConformanceTest, DisconnectReportsEveryReadAndNothingArrivesLater) {
  const size_t bytes = 16 << 20;
  const TransportMemory theirs = Theirs(bytes);
  const TransportMemory ours = Ours(bytes, std::byte{0});
  for (const int progress : {0, 1, 3, 20, 100}) {
    SCOPED_TRACE(progress);
    const PeerId peer = reader_->Connect(owner_->address()).value();
    int done = 0;
    for (int i = 0; i < 64; ++i) {
      const size_t at = i * (bytes / 64);
      reader_->Read(
          {peer, theirs.key, at, ours.data + at, bytes / 64, [&, at](absl::Status status) {
             ++done;
             EXPECT_TRUE(!status.ok() ||
                         Right(Contents(ours, at, bytes / 64).data(), at, bytes / 64));
           }});
    }
    for (int i = 0; i < progress; ++i) {
      reader_->Progress();
      owner_->Progress();
    }
    reader_->Disconnect(peer);
    EXPECT_EQ(done, 64);
    Overwrite(ours, std::byte{0x55});
    for (int i = 0; i < 200; ++i) {
      reader_->Progress();
      owner_->Progress();
    }
    RunWhatIsLeft();
    EXPECT_EQ(done, 64);
    ASSERT_TRUE(All(Contents(ours, 0, bytes), std::byte{0x55}));
    EXPECT_TRUE(absl::IsUnavailable(reader_->SendNote(peer, "x")));
    reader_->Disconnect(peer);
  }
}

TEST_P(TransportConformanceTest, DisconnectDoesNotNeedThePeersHelp) {
  const TransportMemory theirs = Theirs(8 << 20);
  std::vector<std::byte> target(8 << 20);
  const PeerId peer = reader_->Connect(owner_->address()).value();
  bool warm = false;
  reader_->Read({peer, theirs.key, 0, target.data(), 8, [&](absl::Status) { warm = true; }});
  ASSERT_TRUE(Until([&] { return warm; }));
  int done = 0;
  for (int i = 0; i < 8; ++i) {
    reader_->Read({peer, theirs.key, size_t(i) << 20, target.data() + (i << 20), 1 << 20,
                   [&](absl::Status) { ++done; }});
  }
  for (int i = 0; i < 50; ++i) reader_->Progress();  // the owner makes no progress
  reader_->Disconnect(peer);
  EXPECT_EQ(done, 8);
}

TEST_P(TransportConformanceTest, AConnectionCanBeMadeAgain) {
  const TransportMemory theirs = Theirs(4096);
  std::vector<std::byte> target(4096);
  int arrived = 0;
  owner_->SetNoteHandler([&](absl::string_view) { ++arrived; });
  std::set<PeerId> ids;
  for (int i = 0; i < 5; ++i) {
    const PeerId peer = reader_->Connect(owner_->address()).value();
    EXPECT_TRUE(ids.insert(peer).second) << "ids are not used again";
    bool done = false;
    reader_->Read({peer, theirs.key, 0, target.data(), 4096, [&](absl::Status status) {
                     EXPECT_TRUE(status.ok()) << status;
                     done = true;
                   }});
    ASSERT_TRUE(reader_->SendNote(peer, "note").ok());
    ASSERT_TRUE(Until([&] { return done && arrived == i + 1; })) << i;
    reader_->Disconnect(peer);
  }
}

TEST_P(TransportConformanceTest, NotesGoOnWhenTheOtherSideConnectsAgain) {
  PeerId to_owner = reader_->Connect(owner_->address()).value();
  PeerId to_reader = owner_->Connect(reader_->address()).value();
  int at_owner = 0, at_reader = 0;
  owner_->SetNoteHandler([&](absl::string_view) { ++at_owner; });
  reader_->SetNoteHandler([&](absl::string_view) { ++at_reader; });
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    at_owner = at_reader = 0;
    // Does what KvPlane does: connects a broken link again, and repeats a lost note.
    const auto say = [](Transport* transport, PeerId* peer, const std::string& address) {
      if (!absl::IsUnavailable(transport->SendNote(*peer, "x"))) return;
      transport->Disconnect(*peer);
      *peer = transport->Connect(address).value();
    };
    ASSERT_TRUE(Until([&] {
      if (at_owner == 0) say(reader_.get(), &to_owner, owner_->address());
      if (at_reader == 0) say(owner_.get(), &to_reader, reader_->address());
      return at_owner > 0 && at_reader > 0;
    }));
    if (round % 2 == 0) {
      reader_->Disconnect(to_owner);
      to_owner = reader_->Connect(owner_->address()).value();
    } else {
      owner_->Disconnect(to_reader);
      to_reader = owner_->Connect(reader_->address()).value();
    }
  }
}

TEST_P(TransportConformanceTest, ReadsFromATransportThatIsGoneEnd) {
  const TransportMemory theirs = Theirs(1 << 20);
  const PeerId peer = reader_->Connect(owner_->address()).value();
  std::vector<std::byte> target(1 << 20);
  bool warm = false;
  reader_->Read({peer, theirs.key, 0, target.data(), 8, [&](absl::Status) { warm = true; }});
  ASSERT_TRUE(Until([&] { return warm; }));
  const std::string key = theirs.key;
  owner_.reset();
  int done = 0;
  for (int i = 0; i < 4; ++i) {
    reader_->Read({peer, key, 0, target.data(), 1 << 20, [&](absl::Status) { ++done; }});
  }
  const absl::Time end = absl::Now() + absl::Seconds(3);
  while (done < 4 && absl::Now() < end) {
    if (!reader_->Progress()) reader_->Wait(absl::Milliseconds(1));
  }
  reader_->Disconnect(peer);
  EXPECT_EQ(done, 4);
}

TEST_P(TransportConformanceTest, TheLinkIsKnownOnceSomethingWentOverIt) {
  const TransportMemory theirs = Theirs(4096);
  const PeerId peer = reader_->Connect(owner_->address()).value();
  EXPECT_TRUE(absl::IsUnavailable(reader_->Link(peer).status()));
  EXPECT_TRUE(absl::IsUnavailable(reader_->Link(peer + 100).status()));
  const TransportMemory ours = Ours(4096, std::byte{0});
  bool done = false;
  reader_->Read({peer, theirs.key, 0, ours.data, 4096, [&](absl::Status) { done = true; }});
  ASSERT_TRUE(Until([&] { return done; }));
  ASSERT_TRUE(reader_->Link(peer).ok()) << reader_->Link(peer).status();
  EXPECT_EQ(*reader_->Link(peer), GetParam().link);
}

TEST_P(TransportConformanceTest, AddressesThatAreNoneAreInvalid) {
  std::string cut = owner_->address();
  cut.resize(cut.size() / 2);
  for (const std::string& address : {std::string(), std::string("nonsense"), cut.substr(0, 6)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(reader_->Connect(address).status())) << address;
  }
  if (GetParam().link != "inproc") {
    for (size_t i = 0; i < owner_->address().size(); ++i) {
      std::string changed = owner_->address();
      changed[i] ^= 0x20;
      EXPECT_FALSE(reader_->Connect(changed).ok()) << i;
    }
  }
}

TEST_P(TransportConformanceTest, WakeEndsAWait) {
  std::atomic<bool> ended = false;
  std::thread waiter([&] {
    reader_->Wait(absl::Seconds(60));
    // The first Wait may return early, before the Wake. In this case, only the Wake can end the
    // second Wait quickly.
    while (!ended) reader_->Wait(absl::Seconds(60));
  });
  const absl::Time started = absl::Now();
  ended = true;
  reader_->Wake();
  waiter.join();
  EXPECT_LT(absl::Now() - started, absl::Seconds(30));
  const absl::Time before = absl::Now();
  for (int i = 0; i < 4; ++i) reader_->Wait(absl::Milliseconds(5));
  EXPECT_LT(absl::Now() - before, absl::Seconds(10));
}

TEST_P(TransportConformanceTest, TwoThreadsEachWithItsTransport) {
  const TransportMemory theirs = Theirs(4 << 20);
  const PeerId peer = reader_->Connect(owner_->address()).value();
  std::atomic<bool> stop = false;
  std::atomic<int> heard = 0;
  owner_->SetNoteHandler([&](absl::string_view) { ++heard; });
  std::thread owner([&] {
    while (!stop) {
      if (!owner_->Progress()) owner_->Wait(absl::Milliseconds(50));
    }
  });
  std::vector<std::byte> target(4 << 20);
  int done = 0;
  for (int round = 0; round < 8; ++round) {
    for (int i = 0; i < 64; ++i) {
      const size_t at = i * 65536;
      reader_->Read({peer, theirs.key, at, target.data() + at, 65536, [&](absl::Status status) {
                       EXPECT_TRUE(status.ok()) << status;
                       ++done;
                     }});
    }
    EXPECT_TRUE(reader_->SendNote(peer, "round").ok());
    while (done < 64 * (round + 1)) {
      if (!reader_->Progress()) reader_->Wait(absl::Milliseconds(50));
    }
    EXPECT_TRUE(Right(target.data(), 0, target.size()));
  }
  while (heard < 8) reader_->Progress();
  reader_->Disconnect(peer);
  stop = true;
  owner_->Wake();
  owner.join();
}

#if !defined(__SANITIZE_THREAD__)
// The next two tests skip, with the reason, on machines where the suite lacks the kinds of
// transports that need a GPU.
TEST(GpuTransportsTest, AreInTheSuite) {
  const absl::Status status = GpuIsThere();
  if (absl::IsFailedPrecondition(status)) GTEST_SKIP() << status.message();
  EXPECT_EQ(status, absl::OkStatus());
}
TEST(GpuTransportsTest, ThatUcxReadsAreInTheSuite) {
  if (const absl::Status status = UcxReadsGpus(); !status.ok()) GTEST_SKIP() << status.message();
}
#endif

INSTANTIATE_TEST_SUITE_P(Transports, TransportConformanceTest, testing::ValuesIn(Kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace baton
