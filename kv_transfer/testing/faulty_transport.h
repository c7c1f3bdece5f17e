#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// Wraps a transport and injects the configured faults, for tests and the simulator. The same seed,
// the same times and the same calls give the same faults. Time comes from `clock`.
class FaultyTransport : public Transport {
 public:
  struct Faults {
    // Delay of each note; notes to one peer stay in order.
    absl::Duration note_delay_min, note_delay_max;
    // Delay before a read starts, so that its bytes arrive late.
    absl::Duration read_delay_min, read_delay_max;
    double drop_note = 0;     // probability that a note is lost
    double fail_read = 0;     // probability that a read ends with Unavailable
    double corrupt_read = 0;  // probability that one bit of a read is wrong on arrival
    double stall_read = 0;    // probability that a read ends only by Disconnect
    double tear_read = 0;     // probability that the halves of a read are read at different times
    // True if reads that are due at the same time start in random order.
    bool shuffle_reads = false;
  };
  // `inner` must outlive this object.
  FaultyTransport(Transport* inner, uint64_t seed, std::function<absl::Time()> clock);
  ~FaultyTransport() override;

  // Sets the faults for all later calls.
  void SetFaults(const Faults& faults) { faults_ = faults; }
  // Cuts the connection to a peer until Uncut: its reads fail, and notes to it return Unavailable.
  void Cut(PeerId peer) { cut_[peer] = true; }
  void Uncut(PeerId peer) { cut_.erase(peer); }
  // From now on, notes over the connections that exist now are lost. Reads go on.
  void MuteConnections() { first_loud_ = last_peer_ + 1; }
  // If `cut` is true, cuts the connections to all peers, also to peers that connect later, and
  // drops notes from peers. If `cut` is false, ends this state.
  void CutAll(bool cut) { cut_all_ = cut; }
  // Returns the time at which the next delayed note or read is due, or InfiniteFuture if nothing is
  // delayed.
  absl::Time NextDue() const;
  // Number of reads whose `done` has not been called yet.
  size_t reads_outstanding() const { return reads_.size() + started_; }

  std::string name() const override { return "faulty " + inner_->name(); }
  absl::StatusOr<TransportMemory> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  absl::StatusOr<TransportMemory> AllocatePool(size_t bytes) override {
    return inner_->AllocatePool(bytes);
  }
  absl::StatusOr<TransportMemory> RegisterDeviceMemory(std::byte* data, size_t bytes) override {
    return inner_->RegisterDeviceMemory(data, bytes);
  }
  std::string address() const override { return inner_->address(); }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override {
    absl::StatusOr<PeerId> peer = inner_->Connect(address);
    if (peer.ok()) last_peer_ = *peer;
    return peer;
  }
  void Disconnect(PeerId peer) override;
  absl::Status Reachable(PeerId peer) override { return inner_->Reachable(peer); }
  absl::StatusOr<std::string> Link(PeerId peer) override { return inner_->Link(peer); }
  void Read(ReadOperation operation) override;
  absl::Status SendNote(PeerId peer, absl::string_view note) override;
  void SetNoteHandler(std::function<void(absl::string_view note)> handler) override;
  bool Progress() override;
  void Wait(absl::Duration timeout) override;
  void Wake() override { inner_->Wake(); }

 private:
  struct HeldRead {
    absl::Time due;
    ReadOperation operation;
    std::string key;
    bool stalled = false;
  };
  struct HeldNote {
    absl::Time due;
    PeerId peer = -1;
    std::string bytes;
  };

  bool Chance(double probability);
  absl::Duration Between(absl::Duration low, absl::Duration high);
  bool IsCut(PeerId peer) const { return cut_all_ || cut_.count(peer) > 0; }
  void StartRead(HeldRead read);

  Transport* const inner_;
  const std::function<absl::Time()> clock_;
  std::mt19937_64 random_;
  Faults faults_;
  std::map<PeerId, bool> cut_;
  bool cut_all_ = false;
  PeerId last_peer_ = -1, first_loud_ = 0;  // Later connections have larger numbers.
  size_t started_ = 0;
  std::vector<HeldRead> reads_;
  std::deque<HeldNote> notes_;
};

}  // namespace baton
