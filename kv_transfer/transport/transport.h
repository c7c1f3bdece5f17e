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

// Memory that peers may read, allocated by the transport (shared memory is reachable only that
// way).
struct TransportMemory {
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::string key;         // what a peer needs to read it; opaque
  bool on_device = false;  // the host may not touch it
};

using PeerId = int32_t;

// One read of a peer's memory.
struct ReadOperation {
  PeerId peer = -1;
  absl::string_view key;       // of the peer's TransportMemory; copied by the call
  uint64_t offset = 0;         // from its start, bytes
  std::byte* local = nullptr;  // inside memory of this transport, or any host memory of the process
  size_t bytes = 0;
  // Called once, from Progress(), Disconnect() or the transport's destructor, never from Read().
  // Before that the transport may write to `local` at any moment; afterwards never again. It may
  // call Read and SendNote, nothing else of the transport. Unavailable: the peer is gone.
  // InvalidArgument: not inside the peer's memory.
  std::function<void(absl::Status)> done;
};

// Reads from peers' memory, and short notes to peers. It knows neither models nor requests. All
// calls from one thread, the KV thread, but for Wake().
//
// Notes between two peers arrive in order, at most once; one that was sent before a Disconnect may
// be lost.
class Transport {
 public:
  static constexpr size_t kMaxNoteBytes = 4096;
  static constexpr int kMaxNotesUnderWay = 4096;

  virtual ~Transport() = default;

  // As logs name it.
  virtual std::string name() const = 0;
  // Zeroed, aligned to 4096, registered once; lives as long as the transport. ResourceExhausted
  // with the arithmetic when there is not that much.
  virtual absl::StatusOr<TransportMemory> Allocate(size_t bytes) = 0;
  // The same for a KV pool, which lies where the transport carries pools from: host memory, or a
  // device's, then aligned to 256.
  virtual absl::StatusOr<TransportMemory> AllocatePool(size_t bytes) { return Allocate(bytes); }
  // Makes memory of a device, which the caller allocated and will free after this transport,
  // readable for peers and fit to be read into. FailedPrecondition tells why it can't; a read that
  // turns out not to be possible all the same is Unimplemented, and leaves its connection as it
  // was.
  virtual absl::StatusOr<TransportMemory> RegisterDeviceMemory([[maybe_unused]] std::byte* data,
                                                               [[maybe_unused]] size_t bytes) {
    return absl::FailedPreconditionError(name() + " reads host memory alone");
  }
  // What a peer needs to Connect; opaque bytes.
  virtual std::string address() const = 0;

  // Starts a connection; the first operation finds out whether it works. InvalidArgument for an
  // address that is none.
  virtual absl::StatusOr<PeerId> Connect(absl::string_view address) = 0;
  // Unavailable, with the reason, once it is known that no connection to this peer came about. OK
  // before, and of every other peer.
  virtual absl::Status Reachable([[maybe_unused]] PeerId peer) { return absl::OkStatus(); }
  // Ends a connection by force. When it returns, every read posted to that peer has been reported
  // to its `done` and no byte of it will arrive any more. Unknown peers are ignored.
  virtual void Disconnect(PeerId peer) = 0;
  // Which way the bytes from this peer's pool, or else to this peer, really take: inproc, shm, tcp,
  // rdma, nvlink, pcie, cuda-ipc, peer-device. Found by asking, once a read or note has completed;
  // Unavailable before.
  virtual absl::StatusOr<std::string> Link(PeerId peer) = 0;

  virtual void Read(ReadOperation operation) = 0;
  // InvalidArgument above kMaxNoteBytes; Unavailable when the peer is known to be gone;
  // ResourceExhausted when kMaxNotesUnderWay to it have not left yet.
  virtual absl::Status SendNote(PeerId peer, absl::string_view note) = 0;
  // Called from Progress() with every note that arrives, whoever sent it. The handler may call Read
  // and SendNote, nothing else of the transport.
  virtual void SetNoteHandler(std::function<void(absl::string_view note)> handler) = 0;

  // Moves everything on; true when something happened.
  virtual bool Progress() = 0;
  // Blocks until something may have happened, Wake() was called, or `timeout` has passed.
  virtual void Wait(absl::Duration timeout) = 0;
  // Any thread. Ends a Wait, or the next one.
  virtual void Wake() = 0;
};

}  // namespace baton
