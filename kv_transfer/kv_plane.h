#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kv_transfer/kv_address.h"
#include "kv_transfer/kv_checksums.h"
#include "kv_transfer/kv_meta.h"
#include "kv_transfer/kv_notes.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// What a decode worker needs to pull one sequence's KV (proto: KvTicket).
struct KvTicket {
  uint64_t handover_id = 0;
  std::string secret;  // 16 bytes
  WorkerEpoch owner_epoch = 0;
  std::string owner;  // advertised address, for messages
  std::string layout_fingerprint;
  std::string numerics_id;
  int tokens = 0;
  std::vector<BlockId> blocks;        // in token order
  std::vector<uint64_t> generations;  // of each block
};

// A worker of the other role, as its routers describe it.
struct KvPeer {
  WorkerEpoch epoch = 0;
  std::string address;     // advertised, for messages
  std::string kv_address;  // KvPlane::address() of that worker
};

struct ProvenLink {
  WorkerEpoch epoch = 0;
  std::string link;  // as Transport::Link
  double bytes_per_us = 0;
};

// This worker's side of the KV plane: the memory of its KV pool, the peers it may meet, and the
// notes between them. KvPublisher (prefill) and KvPuller (decode) work on top. Both workers of a
// pair must be told of each other: notes from a worker that SetPeers has not named are dropped. KV
// thread only, but for the memory, which the engine's thread writes.
class KvPlane {
 public:
  struct Options {
    WorkerEpoch epoch = 0;
    std::string numerics_id;
    KvLayout layout;
    int blocks = 0;
    // Decode workers read a pattern from every new peer, and ask it once a second whether it is
    // still there; five questions without an answer, and it has to prove itself again.
    bool proves_links = false;
    // For a transport whose pools lie in device memory: that device, and kv_checksum for it.
    DeviceRuntime* device = nullptr;
    Kernel checksum_kernel;
    absl::Duration proof_timeout = absl::Seconds(5);
    // Takes every page of the host memory of pool and KvMeta in Create, so that a lack of memory
    // shows then and not under load. Without it a page is taken when it is first written.
    bool page_in = false;
    // Told how far that is, on the caller's thread; may be null.
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_page_in;
  };
  // Of the notes that arrived. Those that are counted here were dropped.
  struct Counters {
    uint64_t notes = 0;
    uint64_t malformed = 0;      // not a note, or it says what cannot be
    uint64_t misdirected = 0;    // for another epoch, or for a role that we don't have
    uint64_t unknown_peer = 0;   // from a worker that SetPeers has not named
    uint64_t refused = 0;        // unknown hand-over, wrong secret, an attempt that is over
    uint64_t wrong_pattern = 0;  // proofs whose bytes were wrong
  };

  // Allocates the pool from `transport`, which must outlive the plane. ResourceExhausted with the
  // arithmetic when it does not fit.
  static absl::StatusOr<std::unique_ptr<KvPlane>> Create(Transport* transport, Options options);
  // After the publisher and the puller on it.
  ~KvPlane();
  KvPlane(const KvPlane&) = delete;
  KvPlane& operator=(const KvPlane&) = delete;

  // The pool, `blocks * layout.BlockBytes()` bytes, zero at first; in device memory where the
  // transport has its pools there.
  std::byte* pool() { return pool_.data; }
  // One generation per block, readable by peers: the block pool counts here.
  std::atomic<uint64_t>* generations();
  const Options& options() const { return options_; }
  // For Registration.kv_address.
  std::string address() const;

  // Replaces the peers. New ones are connected and, where asked for, proven; those no longer named
  // are disconnected, which fails what is under way with them. A peer whose KV address, epoch,
  // layout or numerics do not fit is left out, with a line in the log.
  void SetPeers(const std::vector<KvPeer>& peers);
  // Peers whose pattern arrived right. Always empty without `proves_links`.
  std::vector<ProvenLink> links() const;
  // Whether there is a peer to work with, as far as this end can tell: one is linked (proven; at
  // the end that proves nothing, heard from within five seconds), or there are none at all.
  bool has_link_or_no_peers() const;

  // Moves transport, checksums, proofs, publisher and puller on; true when something happened.
  bool RunOnce(absl::Time now);
  // After a RunOnce in which nothing happened: as Transport::Wait, and no longer than work on a
  // device may take.
  void Wait(absl::Duration timeout);

  const Counters& counters() const { return counters_; }

  // The rest is for KvPublisher and KvPuller.

  // One of the two: gets its notes, and its turn in RunOnce. `drained`: everything that had arrived
  // by now has been handled.
  struct User {
    std::function<void(const KvNote& note)> on_note;
    std::function<bool(absl::Time now, bool drained)> run_once;
  };
  void SetPublisher(User user) { publisher_ = std::move(user); }
  void SetPuller(User user) { puller_ = std::move(user); }

  enum class LinkState {
    kUnknown,  // no such peer, or one that did not fit
    kDown,     // lost or not proven; tried again after a pause
    kProving,
    kUp,
  };
  // Of the turn that is running, or ran last.
  absl::Time now() const { return now_; }
  LinkState StateOf(WorkerEpoch peer) const;
  // Grows with every connection to any peer: another value, another link. Zero while there is none.
  uint64_t IncarnationOf(WorkerEpoch peer) const;
  uint64_t BlocksOf(WorkerEpoch peer) const;
  std::string LinkOf(WorkerEpoch peer);
  // The last note from it.
  absl::Time HeardFrom(WorkerEpoch peer) const;

  // Best effort: a note that cannot go is lost, and a broken link is taken down and made anew.
  void Send(WorkerEpoch peer, KvNote note);
  // As Transport::Read, from the peer's pool or KvMeta. The peer must be kUp.
  void ReadPool(WorkerEpoch peer, uint64_t offset, std::byte* local, size_t bytes,
                std::function<void(absl::Status)> done);
  void ReadMeta(WorkerEpoch peer, uint64_t offset, std::byte* local, size_t bytes,
                std::function<void(absl::Status)> done);
  // Ends the connection by force: every read from that peer has been reported when it returns. The
  // link is tried again after a pause.
  void Drop(WorkerEpoch peer, absl::string_view why);

  KvMeta meta() const;
  std::byte* meta_data() { return meta_.data; }
  // Of slices of our pool.
  KvChecksums* checksums() { return checksums_.get(); }
  void CountMalformed() { ++counters_.malformed; }
  void CountRefused() { ++counters_.refused; }

 private:
  struct Peer;

  KvPlane(Transport* transport, Options options);
  absl::Status PageIn();
  absl::Status MakeChecksums();
  absl::Status WritePattern();
  absl::Status Fits(const KvPeer& peer, const KvAddress& at) const;
  Peer* Find(WorkerEpoch epoch);
  const Peer* Find(WorkerEpoch epoch) const;
  bool Connect(Peer* peer);
  // Logs a warning about a peer; the same words again only after a minute, or once its link was
  // proven.
  void Warn(Peer* peer, absl::string_view event, absl::string_view why);
  void Drop(Peer* peer, absl::string_view why);
  bool SendTo(Peer* peer, const KvNote& note);
  void SayHello(Peer* peer);
  void ReadPattern(Peer* peer, size_t offset, size_t bytes);
  bool MoveProof(Peer* peer);
  bool MoveLink(Peer* peer, bool drained);
  void HandleNote(const std::string& bytes);

  Transport* const transport_;
  const Options options_;
  TransportMemory pool_;
  TransportMemory meta_;
  std::unique_ptr<KvChecksums> checksums_;
  absl::Time now_ = absl::InfinitePast();
  uint64_t incarnations_ = 0;
  std::map<WorkerEpoch, std::unique_ptr<Peer>> peers_;
  std::deque<std::string> inbox_;
  User publisher_;
  User puller_;
  Counters counters_;
};

}  // namespace baton
