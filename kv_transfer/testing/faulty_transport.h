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

// A transport that misbehaves as told, for tests and the simulator: the same seed, clock and calls
// give the same faults. Wraps another one. Time is the clock's that it is given.
class FaultyTransport : public Transport {
 public:
  struct Faults {
    absl::Duration note_delay_min, note_delay_max;  // notes to one peer stay in order
    absl::Duration read_delay_min, read_delay_max;  // before the read starts: its bytes land late
    double drop_note = 0;                           // probability that a note is lost
    double fail_read = 0;                           // that a read ends with Unavailable
    double corrupt_read = 0;                        // that one bit of it arrives wrong
    double stall_read = 0;                          // that it ends only by Disconnect
    double tear_read = 0;                           // that its halves are read at two moments
    bool shuffle_reads = false;  // reads that are due at the same time start in any order
  };
  // `inner` must outlive it.
  FaultyTransport(Transport* inner, uint64_t seed, std::function<absl::Time()> clock);
  ~FaultyTransport() override;

  // For what is called from now on.
  void SetFaults(const Faults& faults) { faults_ = faults; }
  // Until Uncut, nothing goes to or comes from this peer: its reads fail, notes to it are
  // Unavailable.
  void Cut(PeerId peer) { cut_[peer] = true; }
  void Uncut(PeerId peer) { cut_.erase(peer); }
  // The same for every peer there is and will be; notes that arrive are lost.
  void CutAll(bool cut) { cut_all_ = cut; }
  // When something that is held back is due next; InfiniteFuture when nothing is.
  absl::Time NextDue() const;
  // Reads that were posted and have not been reported.
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
    return inner_->Connect(address);
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
  size_t started_ = 0;
  std::vector<HeldRead> reads_;
  std::deque<HeldNote> notes_;
};

}  // namespace baton
