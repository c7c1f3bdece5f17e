#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "kernels/kv_layout.h"
#include "kv_transfer/transport.h"

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
// notes between them. KvPublisher (prefill) and KvPuller (decode) work on top. KV thread only, but
// for the memory, which the engine's thread writes.
class KvPlane {
 public:
  struct Options {
    WorkerEpoch epoch = 0;
    std::string numerics_id;
    KvLayout layout;
    int blocks = 0;
    bool proves_links = false;  // decode workers read a pattern from every new peer
    absl::Duration proof_timeout = absl::Seconds(5);
  };
  // Allocates the pool from `transport`, which must outlive the plane. ResourceExhausted with the
  // arithmetic when it does not fit.
  static absl::StatusOr<std::unique_ptr<KvPlane>> Create(Transport* transport, Options options);
  virtual ~KvPlane() = default;

  // The pool, `blocks * layout.BlockBytes()` bytes.
  virtual std::byte* pool() = 0;
  // One generation per block, readable by peers: the block pool counts here.
  virtual std::atomic<uint64_t>* generations() = 0;
  virtual const Options& options() const = 0;
  // For Registration.kv_address.
  virtual std::string address() const = 0;

  // Replaces the peers. New ones are connected and, where asked for, proven; those no longer named
  // are disconnected, which fails what is under way with them.
  virtual void SetPeers(const std::vector<KvPeer>& peers) = 0;
  // Peers whose pattern arrived right.
  virtual std::vector<ProvenLink> links() const = 0;

  // Moves transport, proofs, publisher and puller on; true when something happened.
  virtual bool RunOnce(absl::Time now) = 0;
};

}  // namespace baton
