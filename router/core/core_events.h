#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/decode_worker.pb.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/membership.pb.h"
#include "baton/v1/prefill_worker.pb.h"
#include "common/base/types.h"
#include "common/sampling/sampling_options.h"
#include "router/core/model_identity.h"
#include "router/core/slo_verdict.h"

// What RouterCore is told and what it asks for. Keys are chosen by whoever drives the core
// (RequestKey, AttachKey) or by the core (LegKey, WorkerKey), are unique for the life of the
// process, and are never 0. Wire messages that the router only hands on stay as they are.
namespace baton {

using RequestKey = uint64_t;  // one client RPC
using LegKey = uint64_t;      // one Prefill or Decode RPC
using AttachKey = uint64_t;   // one Attach stream
using WorkerKey = uint64_t;   // one process of a worker: an (address, epoch)

// A request that has passed every check that needs no knowledge of the workers.
struct CheckedRequest {
  std::string request_id;         // a label: two running requests may share one
  std::vector<TokenId> prompt;    // not empty, every id in the vocabulary
  SamplingOptions sampling;       // seed set; max_tokens 0: to the end of the context
  std::vector<std::string> stop;  // stop strings, none empty
  int answers = 1;                // wanted, each drawn on its own
  v1::ServingMode mode = v1::SERVING_MODE_UNSPECIFIED;  // unspecified: the router's own
  LatencyTargets slo;                                   // nothing depends on it but the verdict
  absl::Time arrival;  // of the RPC, before its prompt was tokenised
  absl::Time deadline = absl::InfiniteFuture();
};

// --- Told to the core -------------------------------------------------------------------------

// A new client RPC. Every one is answered by exactly one FinishClient.
struct ClientArrived {
  RequestKey request;
  CheckedRequest checked;
};
// Everything sent to this client so far has left; the next Delta may follow.
struct ClientWritable {
  RequestKey request;
};
// The client went away or cancelled. May come at any time before ClientGone.
struct ClientCancelled {
  RequestKey request;
};
// The RPC is over and nothing more will be told of it. Must follow every FinishClient.
struct ClientGone {
  RequestKey request;
};
struct PrefillSaid {
  LegKey leg;
  v1::PrefillEvent event;
};
struct DecodeSaid {
  LegKey leg;
  v1::DecodeEvent event;
};
// Must follow every StartPrefill and StartDecode exactly once, cancelled or not; nothing of the leg
// comes after it.
struct LegEnded {
  LegKey leg;
  absl::Status status;
};
// First message of an Attach stream. The address has been checked to be host:port.
struct WorkerAttached {
  AttachKey attach;
  v1::Registration registration;
};
struct WorkerReported {
  AttachKey attach;
  v1::LoadReport load;
};
// The stream is gone. May be told of a stream that the core closed itself or never accepted.
struct WorkerDetached {
  AttachKey attach;
};
// The driver itself was not running for that long (a suspended machine, say): the silence of
// workers meanwhile is not theirs. Told before anything else at the time of waking.
struct Overslept {
  absl::Duration by;
};
// Refuses new requests from now on; accepted ones go on.
struct Drain {};
// Ends every request with Unavailable.
struct StopAll {};

using CoreEvent = std::variant<ClientArrived, ClientWritable, ClientCancelled, ClientGone,
                               PrefillSaid, DecodeSaid, LegEnded, WorkerAttached, WorkerReported,
                               WorkerDetached, Overslept, Drain, StopAll>;

// --- Asked for by the core --------------------------------------------------------------------

struct WorkerName {
  WorkerKey key = 0;
  std::string address;
  WorkerEpoch epoch = 0;
};
// Opens a leg. Its reading starts unpaused.
struct StartPrefill {
  LegKey leg;
  WorkerName worker;
  v1::PrefillRequest request;
  absl::Time deadline;
};
struct StartDecode {
  LegKey leg;
  WorkerName worker;
  v1::DecodeRequest request;
  absl::Time deadline;
};
// The core no longer listens to this leg; LegEnded must still come.
struct CancelLeg {
  LegKey leg;
};
// Reads no further events of this leg, so that the worker's stream fills up and its sequence
// pauses; or reads again.
struct PauseLeg {
  LegKey leg;
};
struct ResumeLeg {
  LegKey leg;
};
struct SendToClient {
  RequestKey request;
  v1::GenerateEvent event;
};
// After what was sent before when `status` is OK; otherwise what has not left yet may be dropped.
struct FinishClient {
  RequestKey request;
  absl::Status status;
};
// The client does not even take its status: cut the RPC.
struct AbortClient {
  RequestKey request;
};
struct SendPeers {
  AttachKey attach;
  v1::Peers peers;
};
struct CloseAttach {
  AttachKey attach;
  absl::Status status;
};
// Connections to this worker are of no further use.
struct DropWorker {
  WorkerKey worker;
};
// What health and ListModels say. Sent when it changes.
struct ServingChanged {
  bool serving = false;    // a request of the router's own mode can be taken now
  ModelIdentity identity;  // the one that is served; empty until a worker has attached
  std::string why = "no worker is attached";  // why it does not serve; empty while it serves
  uint32_t prefill_workers = 0;  // ready, and given requests of the identity that is served
  uint32_t decode_workers = 0;
  uint32_t ready_prefill_workers = 0;  // of any identity, and in a pair or not
  uint32_t ready_decode_workers = 0;
  // While it serves: a sentence for each ready worker that is given no requests.
  std::vector<std::string> unused;
  // Longest prompt and answer together that was offered for this mode; 0: none yet.
  int context_tokens = 0;
  bool operator==(const ServingChanged& other) const = default;
};

using CoreAction =
    std::variant<StartPrefill, StartDecode, CancelLeg, PauseLeg, ResumeLeg, SendToClient,
                 FinishClient, AbortClient, SendPeers, CloseAttach, DropWorker, ServingChanged>;

}  // namespace baton
