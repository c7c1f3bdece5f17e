#include "router/core/routing_policy.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <tuple>
#include <vector>

#include "common/base/check.h"

namespace baton {
namespace {

// Returns the index of the candidate with the lowest cost. `cost` returns a tuple for a candidate;
// earlier entries weigh more. The last entry should be the worker's key, so that no two are equal.
template <class Cost>
size_t Lowest(absl::Span<const RouteCandidate> candidates, const Cost& cost) {
  const auto lowest = std::min_element(
      candidates.begin(), candidates.end(),
      [&](const RouteCandidate& a, const RouteCandidate& b) { return cost(a) < cost(b); });
  return static_cast<size_t>(lowest - candidates.begin());
}

// Returns a number that is smaller for a worker with more free blocks. Unlike -free_blocks, it
// exists for every value of free_blocks.
int64_t Scarcity(const RouteCandidate& worker) { return ~worker.free_blocks; }

// Returns the load of a decode worker that computes prompts, in prompt tokens. Each running
// sequence counts as kSequenceTokens tokens, because it makes every step longer.
uint64_t ColocatedLoad(const RouteCandidate& worker) {
  constexpr uint64_t kSequenceTokens = 16;
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  if (worker.sequences > (kMax - worker.prompt_tokens) / kSequenceTokens) return kMax;
  return worker.prompt_tokens + kSequenceTokens * worker.sequences;
}

// Returns a number that looks random and depends on every bit of `x` (SplitMix64; Steele et al.,
// 2014).
uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class LeastLoadedPolicy : public RoutingPolicy {
 public:
  size_t Choose(const RouteRequest& request, absl::Span<const RouteCandidate> candidates) override {
    switch (request.leg) {
      case LegKind::kPrefill:
        return Lowest(candidates, [](const RouteCandidate& w) {
          return std::tuple(w.avoid, w.prompt_tokens, w.prompts, Scarcity(w), w.key);
        });
      case LegKind::kColocated:
        return Lowest(candidates, [](const RouteCandidate& w) {
          return std::tuple(w.avoid, !w.has_room, ColocatedLoad(w), Scarcity(w), w.key);
        });
      case LegKind::kDecode:
        return Lowest(candidates, [](const RouteCandidate& w) {
          const double fill = static_cast<double>(w.sequences) / std::max<uint32_t>(1, w.max_batch);
          return std::tuple(w.avoid, !w.has_room, fill, Scarcity(w), w.key);
        });
    }
    BATON_CHECK(false) << "leg kind " << static_cast<int>(request.leg);
  }
};

class PrefixPolicy : public RoutingPolicy {
 public:
  explicit PrefixPolicy(uint64_t seed) : seed_(seed) {}

  size_t Choose(const RouteRequest& request, absl::Span<const RouteCandidate> candidates) override {
    const uint64_t call = Mixed(seed_ + ++calls_);
    const auto missing = [&request](const RouteCandidate& w) {
      return request.prompt_tokens - std::min(w.cached_tokens, request.prompt_tokens);
    };
    const auto tie = [call](const RouteCandidate& w) { return Mixed(call ^ Mixed(w.key)); };
    switch (request.leg) {
      case LegKind::kPrefill:
        return Lowest(candidates, [&](const RouteCandidate& w) {
          return std::tuple(w.avoid, !w.sibling,
                            Sum(w.prompt_tokens / kQueuedPerMissing, missing(w)), tie(w), w.key);
        });
      case LegKind::kColocated:
        return Lowest(candidates, [&](const RouteCandidate& w) {
          return std::tuple(w.avoid, !w.has_room, !w.sibling,
                            Sum(ColocatedLoad(w) / kQueuedPerMissing, missing(w)), tie(w), w.key);
        });
      case LegKind::kDecode:
        return Lowest(candidates, [&](const RouteCandidate& w) {
          return std::tuple(w.avoid, !w.has_room, !w.sibling,
                            Sum(ColocatedLoad(w), missing(w) / kPulledPerComputed), tie(w), w.key);
        });
    }
    BATON_CHECK(false) << "leg kind " << static_cast<int>(request.leg);
  }

 private:
  // Number of queued tokens that count as much as one token that is not cached. A token that is
  // computed again delays all later prompts too. With 1, prompts leave their cached KV as soon as a
  // short queue has formed; with 32, they wait longer than the hits save (tests/routing compares).
  static constexpr uint64_t kQueuedPerMissing = 8;
  // Number of tokens whose KV is pulled that count as much as one token that is computed.
  static constexpr uint64_t kPulledPerComputed = 32;

  static uint64_t Sum(uint64_t a, uint64_t b) {
    return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max()
                                                        : a + b;
  }

  const uint64_t seed_;
  uint64_t calls_ = 0;
};

class RoundRobinPolicy : public RoutingPolicy {
 public:
  explicit RoundRobinPolicy(uint64_t seed) : seed_(seed) {}

  size_t Choose(const RouteRequest& request, absl::Span<const RouteCandidate> candidates) override {
    WorkerKey& last = last_[static_cast<size_t>(request.leg)];
    if (last == 0) last = BeforeFirst(candidates);
    const size_t chosen = Lowest(candidates, [last](const RouteCandidate& w) {
      return std::tuple(w.avoid, !w.has_room, w.key <= last, w.key);
    });
    last = candidates[chosen].key;
    return chosen;
  }

 private:
  // Returns the key after which the first turn begins. 0: it begins with the lowest key.
  WorkerKey BeforeFirst(absl::Span<const RouteCandidate> candidates) const {
    const size_t first = seed_ % candidates.size();
    if (first == 0) return 0;
    std::vector<WorkerKey> keys;
    for (const RouteCandidate& worker : candidates) keys.push_back(worker.key);
    std::sort(keys.begin(), keys.end());
    return keys[first - 1];
  }

  const uint64_t seed_;
  // The worker that was chosen last, for each kind of leg. 0: no choice was made yet.
  std::array<WorkerKey, std::size(kLegKinds)> last_ = {};
};

}  // namespace

std::unique_ptr<RoutingPolicy> CreateRoutingPolicy(RoutingPolicyKind kind, uint64_t seed) {
  switch (kind) {
    case RoutingPolicyKind::kPrefix:
      return std::make_unique<PrefixPolicy>(seed);
    case RoutingPolicyKind::kLeastLoaded:
      return std::make_unique<LeastLoadedPolicy>();
    case RoutingPolicyKind::kRoundRobin:
      return std::make_unique<RoundRobinPolicy>(seed);
  }
  BATON_CHECK(false) << "routing policy " << static_cast<int>(kind);
}

absl::string_view RoutingPolicyName(RoutingPolicyKind kind) {
  switch (kind) {
    case RoutingPolicyKind::kPrefix:
      return "prefix";
    case RoutingPolicyKind::kLeastLoaded:
      return "least-loaded";
    case RoutingPolicyKind::kRoundRobin:
      return "round-robin";
  }
  BATON_CHECK(false) << "routing policy " << static_cast<int>(kind);
}

absl::StatusOr<RoutingPolicyKind> RoutingPolicyFromName(absl::string_view name) {
  for (const RoutingPolicyKind kind : kRoutingPolicyKinds) {
    if (name == RoutingPolicyName(kind)) return kind;
  }
  return absl::InvalidArgumentError("it takes prefix, least-loaded or round-robin");
}

}  // namespace baton
