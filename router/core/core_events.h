#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/decode_worker.pb.h"
#include "baton/v1/membership.pb.h"
#include "baton/v1/prefill_worker.pb.h"
#include "common/base/block_name.h"
#include "common/base/types.h"
#include "common/sampling/sampling_options.h"
#include "router/core/client_event.h"
#include "router/core/model_identity.h"
#include "router/core/serving_mode.h"
#include "router/core/slo_verdict.h"
#include "router/index/worker_key.h"

// Events that RouterCore takes, and actions that it asks for. The driver of the core chooses the
// keys of requests and attach streams; the core chooses the keys of workers and of legs, which are
// the RPCs to workers. Keys are unique for the life of the process and never 0. Wire messages that
// the router only passes on stay as they are.
namespace baton {

using RequestKey = uint64_t;  // One client RPC.
using LegKey = uint64_t;      // One Prefill or Decode RPC.
using AttachKey = uint64_t;   // One Attach stream.
// WorkerKey, one process of a worker, is defined in router/index/worker_key.h.

// A request that has passed all checks that do not depend on the workers.
struct CheckedRequest {
  std::string request_id;       // A name for logs. Two running requests may have the same one.
  std::string caller;           // Name of the caller. Callers take turns.
  std::vector<TokenId> prompt;  // Not empty; every id is in the vocabulary.
  SamplingOptions sampling;     // Its seed is set. max_tokens 0 means that the request has none.
  // The model's own limit, for requests without max_tokens, and its name for people. Without it,
  // the answer may go on to the end of the context.
  std::optional<int> default_max_tokens;
  std::string default_name;
  std::vector<std::string> stop;  // Stop strings; no string is empty.
  bool skip_special = true;       // Special tokens of the answer give no text.
  int answers = 1;                // Number of answers wanted, each sampled on its own.
  ServingMode mode = ServingMode::kUnspecified;  // Unspecified: the router's mode.
  std::string cache_salt;    // Requests share cached KV only if their salts are equal.
  bool prefix_cache = true;  // False: finds no cached KV, and leaves none.
  // Names of the prompt's full blocks of KV, for workers of the identity and layout that the router
  // served when the request arrived. Null if they are not known. Only a hint.
  std::shared_ptr<const std::vector<BlockName>> block_names;
  // Affects the verdict in the Summary, and tells prefill workers when the first token is due.
  LatencyTargets slo;
  absl::Time arrival;  // Time at which the RPC arrived, before its prompt was tokenised.
  absl::Time deadline = absl::InfiniteFuture();
  // Counts the memory of the request until the last copy of it is destroyed. Null if it is not
  // counted. The core only keeps it.
  std::shared_ptr<const void> memory;
};

// --- Events: told to the core -----------------------------------------------------------------

// A new client RPC. The core answers each one with exactly one FinishClient.
struct ClientArrived {
  RequestKey request;
  CheckedRequest checked;
};
// All messages to this client have been written to its stream, so the next Delta may be sent.
struct ClientWritable {
  RequestKey request;
};
// The client went away or cancelled. May come at any time before ClientGone.
struct ClientCancelled {
  RequestKey request;
};
// The client's RPC is over, and no further event of it comes. Must follow every FinishClient.
struct ClientGone {
  RequestKey request;
};
// An event of a prefill leg, which is a Prefill RPC. Ignored if the core has cancelled the RPC.
struct PrefillSaid {
  LegKey leg;
  v1::PrefillEvent event;
};
// A message from a decode worker on `leg`, which is one Decode RPC. Ignored if the leg is
// cancelled.
struct DecodeSaid {
  LegKey leg;
  v1::DecodeEvent event;
};
// A leg, which is one RPC to a worker, is over. Every StartPrefill and StartDecode must get exactly
// one LegEnded, even if the leg was cancelled. No event of the leg comes after LegEnded.
struct LegEnded {
  LegKey leg;
  absl::Status status;
};
// First message of an Attach stream. The program that drives the core has checked that the address
// is host:port.
struct WorkerAttached {
  AttachKey attach;
  v1::Registration registration;
};
// A load report on an Attach stream. Ignored if no worker is attached by that stream.
struct WorkerReported {
  AttachKey attach;
  v1::LoadReport load;
};
// A message on an Attach stream about the worker's prefix cache, which CheckCacheChanges() has
// accepted. If the stream stays open, the core answers with ReportTaken. Ignored if no worker is
// attached by that stream.
struct WorkerCached {
  AttachKey attach;
  v1::CacheChanges changes;
};
// An Attach stream is gone. May come for a stream that the core closed itself or never accepted.
struct WorkerDetached {
  AttachKey attach;
};
// The program that drives the core was not running for the time `by`, for example on a suspended
// machine. The silence of workers during this time does not count against them. Must be the first
// event after waking.
struct Overslept {
  absl::Duration by;
};
// From now on the core refuses new requests. Accepted requests go on.
struct Drain {};
// Ends every request with Unavailable.
struct StopAll {};

using CoreEvent = std::variant<ClientArrived, ClientWritable, ClientCancelled, ClientGone,
                               PrefillSaid, DecodeSaid, LegEnded, WorkerAttached, WorkerReported,
                               WorkerCached, WorkerDetached, Overslept, Drain, StopAll>;

// --- Actions: asked for by the core -----------------------------------------------------------

// Names one process of a worker.
struct WorkerName {
  WorkerKey key = 0;
  std::string address;
  WorkerEpoch epoch = 0;
};
// Opens a prefill leg, which is a Prefill RPC to a worker, and begins to read its events.
struct StartPrefill {
  LegKey leg;
  WorkerName worker;
  v1::PrefillRequest request;
  absl::Time deadline;
};
// Starts the RPC to a decode worker (the decode leg), and begins to read its events.
struct StartDecode {
  LegKey leg;
  WorkerName worker;
  v1::DecodeRequest request;
  absl::Time deadline;
};
// Cancels a leg (one RPC to a worker). The core ignores further events of this leg, except
// LegEnded, which must still come.
struct CancelLeg {
  LegKey leg;
};
// PauseLeg: stops reading events of a leg, which is one RPC to a worker. The RPC's stream fills up,
// and the worker pauses the sequence. ResumeLeg: reads the leg's events again.
struct PauseLeg {
  LegKey leg;
};
struct ResumeLeg {
  LegKey leg;
};
// Sends one message to a client, after all earlier messages to the same client.
struct SendToClient {
  RequestKey request;
  ClientEvent event;
};
// Ends the client's RPC. With status OK, all earlier messages must be written to the stream first.
// With another status, messages that are not written yet may be dropped.
struct FinishClient {
  RequestKey request;
  absl::Status status;
};
// Cuts the client's RPC, because the client does not read even its final status.
struct AbortClient {
  RequestKey request;
};
// Sends a worker its list of peers.
struct SendPeers {
  AttachKey attach;
  v1::Peers peers;
};
// The core has taken a WorkerCached, so the next message may be read from the stream.
struct ReportTaken {
  AttachKey attach;
};
// Ends an Attach stream with `status`.
struct CloseAttach {
  AttachKey attach;
  absl::Status status;
};
// Closes the connections to this worker, which are of no further use.
struct DropWorker {
  WorkerKey worker;
};
// The state that health and ListModels report. This action is added when the state changes.
struct ServingChanged {
  bool serving = false;    // True if the core can take a request of the router's own mode.
  ModelIdentity identity;  // Identity that is served; empty until a worker has attached.
  // Reason why the router does not serve; empty while it does.
  std::string why = "no worker is attached";
  // KV layout and tokens per block of the ready workers of this identity. If these workers differ,
  // the values that most of them have. The blocks of prompts are named for this layout.
  // `block_tokens` is 0 if no such worker is ready.
  std::string layout_fingerprint;
  int block_tokens = 0;
  uint32_t prefill_workers = 0;  // Ready workers that get requests of the served identity.
  uint32_t decode_workers = 0;
  uint32_t ready_prefill_workers = 0;  // Ready workers of any identity, in a pair or not.
  uint32_t ready_decode_workers = 0;
  // A sentence for each ready worker that gets no requests. Empty while the router does not serve.
  std::vector<std::string> unused;
  // A sentence for each ready worker that failed requests in the last minute. At most ten seconds
  // old.
  std::vector<std::string> failing;
  // Longest prompt and answer together, in tokens, that workers have offered for the router's mode;
  // 0: none yet.
  int context_tokens = 0;
  bool operator==(const ServingChanged& other) const = default;
};

using CoreAction = std::variant<StartPrefill, StartDecode, CancelLeg, PauseLeg, ResumeLeg,
                                SendToClient, FinishClient, AbortClient, SendPeers, ReportTaken,
                                CloseAttach, DropWorker, ServingChanged>;

}  // namespace baton
