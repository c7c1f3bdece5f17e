#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kv_transfer/testing/child_process.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// A transport that lives in another process (transport_test_peer), driven from this one call by
// call: the owner's end for tests of links that exist between processes alone. Read is not carried.
// Memory that it allocates holds ByteAt and is not to be touched from here.
class RemoteTransport : public Transport {
 public:
  // What byte `i` of its memory is.
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
  // Does nothing: it is Wait's timeout that ends one.
  void Wake() override {}

  // Tells the other process to destroy its transport and end, which goes on behind the call.
  // Nothing else may be called then.
  void End() { child_.CloseInput(); }

 private:
  absl::StatusOr<TransportMemory> Allocate(size_t bytes, bool pool);
  std::string Ask(const std::string& question) const;

  mutable ChildProcess child_;
  std::function<void(absl::string_view)> handler_;
};

// The other end: answers what comes on standard input until it ends.
void ServeTransport(Transport* transport,
                    const std::function<void(const TransportMemory&, const std::string&)>& fill);

}  // namespace baton
