#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

// Memory that peers may read. The transport allocates it, because shared memory can be reached only
// if the transport has created it.
struct TransportMemory {
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::string key;         // opaque bytes that a peer needs to read this memory
  bool on_device = false;  // True if the host must not touch it.
};

using PeerId = int32_t;

// One read of a peer's memory.
struct ReadOperation {
  PeerId peer = -1;
  absl::string_view key;       // TransportMemory::key of the peer; copied by the call
  uint64_t offset = 0;         // in bytes, from the start of the peer's memory
  std::byte* local = nullptr;  // in memory of this transport, or in any host memory of the process
  size_t bytes = 0;
  // Called once, from Progress(), Disconnect() or the transport's destructor, never from Read().
  // Before the call the transport may write to `local` at any moment, afterwards never again.
  // `done` may call Read and SendNote, nothing else of the transport. Unavailable means that the
  // peer is gone. InvalidArgument means that the range is outside the peer's memory.
  std::function<void(absl::Status)> done;
};

// Reads peers' memory, and sends short notes to peers. It knows nothing of models or requests. All
// functions are called on one thread, the KV thread, except Wake().
//
// Notes between two peers arrive in order, each at most once. A note that was sent before a
// Disconnect may be lost.
class Transport {
 public:
  static constexpr size_t kMaxNoteBytes = 4096;
  static constexpr int kMaxNotesUnderWay = 4096;

  virtual ~Transport() = default;

  // Name for logs.
  virtual std::string name() const = 0;
  // Allocates memory that is zero, aligned to 4096 bytes, and lives as long as the transport.
  // Returns ResourceExhausted, with the sizes, if there is not enough memory.
  virtual absl::StatusOr<TransportMemory> Allocate(size_t bytes) = 0;
  // Allocates memory for a KV pool, with the same guarantees as Allocate. The memory lies where the
  // transport reads pools: in host memory, or in device memory, where it is aligned to 256 bytes.
  virtual absl::StatusOr<TransportMemory> AllocatePool(size_t bytes) { return Allocate(bytes); }
  // Makes device memory readable for peers, and a valid destination of reads. The caller has
  // allocated the memory and frees it after the transport. Returns FailedPrecondition, with the
  // reason, if the memory can't be registered. A read that turns out to be impossible later ends
  // with Unimplemented, and its connection keeps working.
  virtual absl::StatusOr<TransportMemory> RegisterDeviceMemory([[maybe_unused]] std::byte* data,
                                                               [[maybe_unused]] size_t bytes) {
    return absl::FailedPreconditionError(name() + " reads only host memory");
  }
  // Opaque bytes that a peer needs to Connect.
  virtual std::string address() const = 0;

  // Starts a connection. The first operation shows whether it works. Returns InvalidArgument for
  // bytes that are not an address.
  virtual absl::StatusOr<PeerId> Connect(absl::string_view address) = 0;
  // Returns Unavailable, with the reason, if connecting to this peer is known to have failed;
  // otherwise OK.
  virtual absl::Status Reachable([[maybe_unused]] PeerId peer) { return absl::OkStatus(); }
  // Ends a connection by force. When it returns, the `done` of every read from that peer has been
  // called, and no more bytes of these reads will arrive. Unknown peers are ignored.
  virtual void Disconnect(PeerId peer) = 0;
  // Returns the way that bytes from this peer's pool really take (or, before any read, the way that
  // notes to the peer take): inproc, shm, tcp, rdma, nvlink, pcie, cuda-ipc or peer-device. The
  // answer comes from the lower layer, which knows the way once a read or note has completed.
  // Returns Unavailable before that.
  virtual absl::StatusOr<std::string> Link(PeerId peer) = 0;

  virtual void Read(ReadOperation operation) = 0;
  // Sends a note. Returns InvalidArgument if it is longer than kMaxNoteBytes, Unavailable if the
  // peer is known to be gone, and ResourceExhausted if kMaxNotesUnderWay notes to it have not left
  // yet.
  virtual absl::Status SendNote(PeerId peer, absl::string_view note) = 0;
  // Sets the handler, which Progress() calls with every note that arrives from any peer. The
  // handler may call Read and SendNote, nothing else of the transport.
  virtual void SetNoteHandler(std::function<void(absl::string_view note)> handler) = 0;

  // Advances connections, reads and notes, and calls their callbacks. Returns true if anything
  // happened.
  virtual bool Progress() = 0;
  // Blocks until something may have happened, Wake() was called, or `timeout` has passed.
  virtual void Wait(absl::Duration timeout) = 0;
  // Any thread. Ends the current Wait, or the next one.
  virtual void Wake() = 0;
};

}  // namespace baton
