#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/core/core_events.h"

// The rule by which the router prefers one worker to another.
namespace baton {

// Kinds of legs (RPCs to workers) for which a worker is chosen.
enum class LegKind {
  kPrefill,    // A prefill worker computes the prompt.
  kColocated,  // A decode worker computes the prompt and the answer.
  kDecode,     // A decode worker pulls the KV of a ticket, and computes the answer.
};
inline constexpr LegKind kLegKinds[] = {LegKind::kPrefill, LegKind::kColocated, LegKind::kDecode};

// Facts about the leg (RPC to a worker) for which a worker is chosen, and about its request.
struct RouteRequest {
  LegKind leg = LegKind::kPrefill;
  uint64_t prompt_tokens = 0;  // Tokens of the prompt, and of the answer so far.
};

// Facts about a worker that may get the leg (RPC to the worker).
struct RouteCandidate {
  WorkerKey key = 0;
  // The worker has failed the request, which should go to another one.
  bool avoid = false;
  // The worker was given another answer of the same client, which has the same prompt.
  bool sibling = false;
  // The worker has enough free blocks for the whole answer. Always true for prefill workers, where
  // a prompt waits in the worker's queue until blocks are free.
  bool has_room = true;
  // Tokens of this prompt that the worker is expected to have cached.
  uint64_t cached_tokens = 0;
  uint64_t prompt_tokens = 0;  // Tokens of other prompts that the worker has still to compute.
  uint64_t prompts = 0;        // Prompts of this router at the worker that have no first token yet.
  uint64_t sequences = 0;      // Sequences at the worker, those of other routers included.
  uint32_t max_batch = 0;      // Max sequences in one step of a decode worker; 0: not known.
  // Free blocks at the time of the worker's last report, less the blocks that later legs need. May
  // be below 0.
  int64_t free_blocks = 0;
};

// Chooses one of several workers for a leg (RPC to a worker). WorkerTable finds the workers that
// may get the leg, and collects the facts; a policy only prefers one of them to the others. A
// policy may remember what it chose. Core's loop thread only.
//
// Guarantees of every policy, which routing_policy_test.cc checks:
//
// - A worker to avoid is chosen only if there is no other. Among the workers that remain, a worker
//   without room is chosen only if none has room.
// - Two policies with equal seeds choose the same workers if they get the same calls. The order of
//   the candidates makes no difference.
// - Equal workers that all have several open legs get about equally many. (On an idle cluster, a
//   policy may always choose the same worker.)
class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  // Returns the index of the chosen worker in `candidates`, which has at least one element. The
  // router need not use the choice: in mode auto, it may find a better worker of the other role.
  virtual size_t Choose(const RouteRequest& request,
                        absl::Span<const RouteCandidate> candidates) = 0;
};

enum class RoutingPolicyKind {
  // Weighs the load of a worker against the part of the prompt that it has not cached. Of equal
  // workers it chooses one at random.
  kPrefix,
  kLeastLoaded,  // Chooses the worker with the least load.
  kRoundRobin,   // Chooses the workers in turn, in the order of their keys, whatever their load.
};
inline constexpr RoutingPolicyKind kRoutingPolicyKinds[] = {
    RoutingPolicyKind::kPrefix, RoutingPolicyKind::kLeastLoaded, RoutingPolicyKind::kRoundRobin};

// Creates a policy, whose random choices follow from `seed`. Routers that serve the same workers
// should have different seeds, so that they do not all begin with the same worker.
std::unique_ptr<RoutingPolicy> CreateRoutingPolicy(RoutingPolicyKind kind, uint64_t seed);

// Returns the policy with this name, for flags: "prefix", "least-loaded" or "round-robin".
// Returns InvalidArgument, with the known names, for an unknown name.
absl::StatusOr<RoutingPolicyKind> RoutingPolicyFromName(absl::string_view name);
absl::string_view RoutingPolicyName(RoutingPolicyKind kind);

}  // namespace baton
