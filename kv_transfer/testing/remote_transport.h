#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kv_transfer/testing/child_process.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// Controls a transport in another process (transport_test_peer), for tests of links that exist only
// between processes. The other transport owns the memory that the tests read. It does not support
// Read. Memory that it allocates is filled with ByteAt and must not be accessed from this process.
class RemoteTransport : public Transport {
 public:
  // Returns the content of byte `i` of memory that the other process has allocated.
  static std::byte ByteAt(size_t i) { return static_cast<std::byte>(i * 31 + (i >> 8) * 7); }

  explicit RemoteTransport(const std::vector<std::string>& command) : child_(command) {}
  ~RemoteTransport() override;

  std::string name() const override { return "remote"; }
  absl::StatusOr<TransportMemory> Allocate(size_t bytes) override { return Allocate(bytes, false); }
  absl::StatusOr<TransportMemory> AllocatePool(size_t bytes) override {
    return Allocate(bytes, true);
  }
  std::string address() const override;
  absl::StatusOr<PeerId> Connect(absl::string_view address) override;
  void Disconnect(PeerId peer) override;
  absl::StatusOr<std::string> Link(PeerId peer) override;
  void Read(ReadOperation operation) override;
  absl::Status SendNote(PeerId peer, absl::string_view note) override;
  void SetNoteHandler(std::function<void(absl::string_view note)> handler) override {
    handler_ = std::move(handler);
  }
  bool Progress() override;
  void Wait(absl::Duration timeout) override;
  // Does nothing: a Wait ends only by its timeout.
  void Wake() override {}

  // Tells the other process to destroy its transport and exit. Returns without waiting for that. No
  // other function may be called afterwards.
  void End() { child_.CloseInput(); }

 private:
  absl::StatusOr<TransportMemory> Allocate(size_t bytes, bool pool);
  std::string Ask(const std::string& question) const;

  mutable ChildProcess child_;
  std::function<void(absl::string_view)> handler_;
};

// For the process that RemoteTransport starts: answers the commands on standard input until the
// input ends. `fill` writes the content of newly allocated memory.
void ServeTransport(Transport* transport,
                    const std::function<void(const TransportMemory&, const std::string&)>& fill);

}  // namespace baton
