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

// Everything that a decode worker needs to pull one sequence's KV (proto: KvTicket).
struct KvTicket {
  uint64_t handover_id = 0;
  std::string secret;  // 16 bytes
  WorkerEpoch owner_epoch = 0;
  std::string owner;  // advertised address of the prefill worker, for messages
  std::string layout_fingerprint;
  std::string numerics_id;
  int tokens = 0;
  std::vector<BlockId> blocks;        // in token order
  std::vector<uint64_t> generations;  // one for each of `blocks`
};

// A worker of the other role, as the routers describe it.
struct KvPeer {
  WorkerEpoch epoch = 0;
  std::string address;     // advertised address, for messages
  std::string kv_address;  // KvPlane::address() of that worker
};

struct ProvenLink {
  WorkerEpoch epoch = 0;
  std::string link;  // as Transport::Link returns it
  double bytes_per_us = 0;
};

// This worker's side of the KV plane: the memory of its KV pool, the connections to its peers, and
// the notes (short messages) between them. KvPublisher (prefill) and KvPuller (decode) use it.
// SetPeers must name each worker of a pair to the other worker, because notes from unknown workers
// are dropped. KV thread only, except that the engine's thread writes the memory of the pool.
class KvPlane {
 public:
  struct Options {
    WorkerEpoch epoch = 0;
    std::string numerics_id;
    KvLayout layout;
    int blocks = 0;
    // True at decode workers. Such a worker reads the test pattern (KvMeta) of every new peer, and
    // sends each peer a hello once a second. After five hellos without an answer, the peer's link
    // has to be proven again.
    bool proves_links = false;
    // Set for a transport whose pools lie in device memory: the device, and the kernel kv_checksum
    // compiled for that device.
    DeviceRuntime* device = nullptr;
    Kernel checksum_kernel;
    absl::Duration proof_timeout = absl::Seconds(5);
    // Length of the test pattern. All workers that exchange KV must have the same. Tests with many
    // workers have a shorter one. At least 8192, and a multiple of 8.
    size_t pattern_bytes = KvMeta::kPatternBytes;
    // If true, Create touches every page of the host memory of the pool and the KvMeta, so that a
    // lack of memory shows at the start and not under load. If false, the kernel provides a page
    // when it is first written.
    bool page_in = false;
    // Reports the progress of `page_in`, on the caller's thread. May be null.
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_page_in;
  };
  // Counts of notes, which are messages between workers. `notes` counts every note that arrived.
  // The other fields count notes that were dropped or refused, and tests of a link that read wrong
  // bytes.
  struct Counters {
    uint64_t notes = 0;
    uint64_t malformed = 0;     // not a valid note, an impossible state, or too many notes at once
    uint64_t misdirected = 0;   // notes for another epoch or another role, or answers to old hellos
    uint64_t unknown_peer = 0;  // from a worker that SetPeers has not named
    uint64_t refused = 0;       // unknown hand-over, wrong secret, or an old attempt
    uint64_t wrong_pattern = 0;  // proofs whose bytes were wrong
  };

  // Allocates the pool from `transport`, which must outlive the plane. Returns ResourceExhausted,
  // with the sizes, if it does not fit.
  static absl::StatusOr<std::unique_ptr<KvPlane>> Create(Transport* transport, Options options);
  // The publisher and the puller must be destroyed before the plane.
  ~KvPlane();
  KvPlane(const KvPlane&) = delete;
  KvPlane& operator=(const KvPlane&) = delete;

  // Start of the pool: `blocks * layout.BlockBytes()` bytes, initially zero. The pool lies in
  // device memory if the transport allocates its pools in device memory.
  std::byte* pool() { return pool_.data; }
  // One generation per block: a counter of the block's uses. The block pool increments it, and
  // peers can read it.
  std::atomic<uint64_t>* generations();
  const Options& options() const { return options_; }
  // Returns this worker's value for Registration.kv_address.
  std::string address() const;

  // Replaces the set of peers. Connects new peers and, if Options::proves_links is set, tests their
  // links with a pattern. Disconnects peers that are no longer named, and the work under way with
  // them fails. Leaves out, and logs, each peer whose KV address, epoch, layout or numerics do not
  // match.
  void SetPeers(const std::vector<KvPeer>& peers);
  // Returns the peers whose link is proven: a test pattern was read over the link without an error.
  // Always empty if Options::proves_links is false.
  std::vector<ProvenLink> links() const;
  // Returns true if this worker has a usable peer, or has no peers at all. At a decode worker
  // (`proves_links` is true), a peer is usable once a test pattern has arrived right from it. At a
  // prefill worker, a peer is usable if it has sent a note (control message) within the last five
  // seconds.
  bool has_link_or_no_peers() const;

  // Does the work that is due: lets the transport move data, computes checksums, tests links, and
  // runs the publisher and the puller, which are the two sides of hand-overs. Returns true if
  // anything happened.
  bool RunOnce(absl::Time now);
  // Call it after a RunOnce in which nothing happened. Waits until the transport has something to
  // do, for at most `timeout`. The wait is very short while a device computes checksums, because
  // their end can only be polled.
  void Wait(absl::Duration timeout);

  const Counters& counters() const { return counters_; }

  // The functions below are for KvPublisher and KvPuller.

  // Callbacks of the publisher or the puller. `on_note` handles a note, which is a short message
  // from a peer. `run_once` does the user's own work; RunOnce calls it. `drained` is true if all
  // notes that arrived before this call of RunOnce have been handled.
  struct User {
    std::function<void(const KvNote& note)> on_note;
    std::function<bool(absl::Time now, bool drained)> run_once;
  };
  void SetPublisher(User user) { publisher_ = std::move(user); }
  void SetPuller(User user) { puller_ = std::move(user); }

  enum class LinkState {
    kUnknown,  // no such peer, or the peer does not match this worker
    kDown,     // lost or not proven; retried after a pause
    kProving,
    kUp,
  };
  // Time of the current or last call of RunOnce.
  absl::Time now() const { return now_; }
  LinkState StateOf(WorkerEpoch peer) const;
  // Returns a number that identifies the current connection to a peer. Each new connection, to any
  // peer, gets a larger number. Returns 0 while the peer is not connected.
  uint64_t IncarnationOf(WorkerEpoch peer) const;
  uint64_t BlocksOf(WorkerEpoch peer) const;
  std::string LinkOf(WorkerEpoch peer);
  // Time of the last note (control message) from the peer.
  absl::Time HeardFrom(WorkerEpoch peer) const;

  // Sends a note. A note that can't be sent is lost. If the connection is broken, closes it. If
  // Options::proves_links is false, also connects anew and sends the note once more.
  void Send(WorkerEpoch peer, KvNote note);
  // ReadPool reads from the peer's pool and ReadMeta from its KvMeta, as Transport::Read does. The
  // peer's link must be in state kUp.
  void ReadPool(WorkerEpoch peer, uint64_t offset, std::byte* local, size_t bytes,
                std::function<void(absl::Status)> done);
  void ReadMeta(WorkerEpoch peer, uint64_t offset, std::byte* local, size_t bytes,
                std::function<void(absl::Status)> done);
  // Ends the connection by force. When it returns, every read from that peer has been reported. The
  // link is retried after a pause.
  void Drop(WorkerEpoch peer, absl::string_view why);

  KvMeta meta() const;
  std::byte* meta_data() { return meta_.data; }
  // Returns the object that computes checksums of slices of this worker's pool.
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
  // Logs a warning about a peer. The same text is logged again only after a minute, or if the link
  // has worked since the last time.
  void Warn(Peer* peer, absl::string_view event, absl::string_view why);
  void Drop(Peer* peer, absl::string_view why);
  bool SendTo(Peer* peer, const KvNote& note);
  // Notes that the peer has sent a hello. Returns true if it does not seem to get the answers. The
  // connection that carries them should then be made anew.
  bool AsksInVain(Peer* peer, uint64_t nonce);
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
