#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/load.pb.h"
#include "baton/v1/membership.pb.h"
#include "router/core/core_events.h"
#include "router/core/error_rate.h"
#include "router/core/model_identity.h"
#include "router/core/request_metrics.h"
#include "router/core/routing_policy.h"
#include "router/core/worker_health.h"

namespace baton {

class WorkerCaches;

// One process of a worker, as it registered and as it last reported.
struct Worker {
  WorkerName name;
  ModelIdentity identity;
  v1::Registration registration;
  v1::LoadReport load;
  absl::Time reported;  // Time of the last message on its Attach stream.
  // Time since which its reports have said that nothing waits there.
  absl::Time empty_since = absl::InfinitePast();
  AttachKey attach = 0;  // 0: no stream is open.
  // Another process has answered at its address since its last report.
  bool doubted = false;
  absl::Time detached_at;  // Meaningful while `attach` is 0.
  bool replaced = false;   // A newer process took its address.
  v1::Peers told;          // The last list of peers that was sent to this worker.
  bool ever_told = false;

  // Load of the worker from this router. Updated when legs, which are RPCs to the worker, open and
  // close.
  int legs = 0;     // Open legs.
  int prompts = 0;  // Legs whose prompt the worker computes and whose first token has not come.
  uint64_t prompt_tokens = 0;  // Tokens of the prompts that `prompts` counts.
  // Part of `prompt_tokens` that the worker was expected to have cached when the prompts were sent.
  uint64_t cached_prompt_tokens = 0;
  // QueueEntry::turn of each of these prompts, and its tokens that were not expected to be cached.
  std::multiset<std::pair<uint64_t, uint64_t>> turns;
  // Blocks needed by legs (RPCs to this worker) that were opened since its last report; decode
  // workers only.
  uint64_t new_blocks = 0;
  // Load from other routers: the load in the worker's last report minus this router's own load at
  // that time.
  uint64_t others_prompt_tokens = 0;
  uint64_t others_sequences = 0;
  // The worker refused a prompt as full; it gets no prompt before this time.
  absl::Time full_until = absl::InfinitePast();
  WorkerHealth health;  // Decides if its failures keep requests away from it.
  ErrorRate errors;     // The same failures, for those who watch.

  bool prefill() const { return registration.role() == v1::WORKER_ROLE_PREFILL; }
  // Longest sequence that the worker can hold, in tokens. Its context and its whole pool of blocks
  // limit it.
  int64_t capacity_tokens() const;
  // Number of this worker's blocks that `tokens` tokens fill.
  uint64_t BlocksFor(int64_t tokens) const;
};

// The requirements of a request on a worker.
struct Need {
  int64_t tokens = 0;  // Max length of prompt and answer together.
  // Identity that the worker must have. Not set: the router serves no identity yet, so no worker
  // fits.
  std::optional<ModelIdentity> identity;
  // Workers that are chosen only if no other fits. Null: none.
  const std::vector<WorkerKey>* avoid = nullptr;
  int64_t prompt_tokens = 0;  // Length of the prompt, and of the answer so far, in tokens.
  uint64_t turn = 0;          // QueueEntry::turn.
  // Names of the prompt's full blocks. Null: not known, or the request may find no cached KV.
  const std::vector<BlockName>* block_names = nullptr;
  // Workers that the client's other answers were given last, by LegKind; 0: none.
  std::array<WorkerKey, std::size(kLegKinds)> siblings = {};
};

// A worker that was chosen for a request.
struct ChosenWorker {
  Worker* worker = nullptr;
  uint64_t cached_tokens = 0;  // Tokens of the prompt that the worker is expected to have cached.
};

// Counts of the workers of one identity, and the longest sequences that they can hold.
struct IdentityWorkers {
  int attached = 0;        // Attached workers of either role, ready or not.
  int pairs = 0;           // Pairs of ready workers with a proven link.
  int paired_prefill = 0;  // Ready prefill workers that are in at least one pair.
  int paired_decode = 0;   // Ready decode workers that are in at least one pair.
  int ready_prefill = 0;   // Ready prefill workers, in a pair or not.
  int ready_decode = 0;    // Ready decode workers, in a pair or not.
  // Longest prompt and answer together, in tokens: for a pair, which is a prefill and a decode
  // worker, and for a decode worker alone. ListModels reports this limit, and longer requests are
  // refused. The capacity of a worker that has gone counts for a while longer. If no worker is
  // left, the last capacity counts. 0 until the first worker has come.
  int64_t pair_capacity_tokens = 0;
  int64_t decode_capacity_tokens = 0;

  // Returns the number by which the served identity is chosen in `mode`. Disaggregated: pairs.
  // Colocated: ready decode workers. Auto: ready decode workers, plus the prefill workers paired
  // with them.
  int Usable(ServingMode mode) const;
};

// Owns the records of the workers that have attached. Knows which workers can work together, and
// finds the workers for a request. If several workers fit, a routing policy chooses one. Part of
// RouterCore: runs on its thread, starts no RPC, and reads no clock. Pointers to a Worker are valid
// until Forget() removes the worker.
class WorkerTable {
 public:
  // A worker is stale if its last report is older than `report_limit`. `keep_capacity` is the time
  // for which a worker's capacity still counts for the limit on request lengths after the worker is
  // no longer ready. `policy` chooses between workers that may get a request. `caches` outlives the
  // object.
  WorkerTable(absl::Duration report_limit, absl::Duration keep_capacity,
              std::unique_ptr<RoutingPolicy> policy, WorkerCaches* caches)
      : report_limit_(report_limit),
        keep_capacity_(keep_capacity),
        policy_(std::move(policy)),
        caches_(caches) {}

  // Accepts a worker that attaches. The newest registration at an address replaces older ones. Adds
  // the replaced processes to `replaced`, and the Attach streams that are no longer needed to
  // `closed`. The caller has to fail the RPCs to replaced processes. A known process that attaches
  // again keeps its record and its RPCs. Returns FailedPrecondition or InvalidArgument, with the
  // field and its value, and changes nothing, if this router cannot serve the worker.
  absl::StatusOr<Worker*> Attach(AttachKey attach, const v1::Registration& registration,
                                 const std::string& model_name, absl::Time now,
                                 std::vector<WorkerKey>* replaced, std::vector<AttachKey>* closed);
  // Takes a load report that came on the stream `attach`. Returns null if no worker is attached by
  // this stream. Otherwise sets `*matters` to true if the report may change which workers can work
  // together.
  Worker* Report(AttachKey attach, const v1::LoadReport& load, absl::Time now, bool* matters);
  // Notes a message on the stream `attach` that is no load report: the worker lives. Returns null
  // if no worker is attached by this stream. A stale worker stays stale until its next load report.
  Worker* Heard(AttachKey attach, absl::Time now);
  // Notes that the stream `attach` is closed. Returns null if no worker is attached by this stream.
  // The worker's record stays.
  Worker* Detach(AttachKey attach, absl::Time now);
  // Adds `by`, the time during which the router was not running, to the time of each worker's last
  // report. So this time does not count as silence of a worker.
  void Excuse(absl::Duration by, absl::Time now);
  // Removes detached workers without legs (RPCs to the worker): replaced workers immediately,
  // others after `forget_after`. Returns their keys. Pointers to removed workers become invalid.
  std::vector<WorkerKey> Forget(absl::Time now, absl::Duration forget_after);
  // Time at which Forget has something to do; InfiniteFuture: never.
  absl::Time ForgetAt(absl::Duration forget_after) const;

  // Sets the layout and the tokens per block that most ready workers of the identity have; "" and 0
  // if no such worker is ready.
  void CommonLayout(const ModelIdentity& identity, absl::Time now, std::string* layout,
                    int* block_tokens) const;

  // Returns the worker; null if the key is unknown or its worker was removed.
  Worker* Find(WorkerKey key);
  // True if the worker may get new work: attached, not replaced, not draining, not stale.
  bool Ready(const Worker& worker, absl::Time now) const;
  // True if the last report is older than `report_limit`.
  bool Stale(const Worker& worker, absl::Time now) const;
  // True if `a` and `b` have the same protocol, model, layout and numerics, and different roles.
  static bool Compatible(const Worker& a, const Worker& b);

  // Rebuilds all pairs from the ready workers and their proven links (links over which a test
  // pattern arrived right), and counts the workers of each identity. Call it when Report says that
  // pairs may have changed, and at the time that StaleAt returns.
  // Returns true if requests may be less long than before.
  bool RefreshPairs(absl::Time now);
  // Numbers of workers of each identity, as RefreshPairs last counted them. Has an entry for the
  // identity of every worker in this table, and for identities of removed workers until
  // DropIdentities() drops them.
  const std::map<ModelIdentity, IdentityWorkers>& identities() const { return identities_; }
  // Counts of one identity; all zero if `identity` is not set or unknown.
  const IdentityWorkers& WorkersOf(const std::optional<ModelIdentity>& identity) const;
  // Drops each identity that no worker in this table has, together with its capacities. Keeps
  // `kept`.
  void DropIdentities(const std::optional<ModelIdentity>& kept);
  // Returns the next time at which a worker's last report becomes too old, or the capacity of a
  // worker that is gone stops counting. InfiniteFuture if there is no such time.
  absl::Time StaleAt(absl::Time now) const;

  // Result of ChoosePrefill and ChooseColocated.
  enum class Choice { kTaken, kBusy, kNone };
  // Limits on the prompts at one worker that have no first token yet. A worker below the limits has
  // a place for one more prompt.
  struct Places {
    // The worker must have fewer prompts without a first token than this.
    int prompts = 0;
    // The prompts at the worker must have at most this many tokens together that are still to be
    // computed.
    uint64_t tokens = std::numeric_limits<uint64_t>::max();
    // One of the workers with a place must have at most this many such tokens from this router that
    // it computes before the new prompt (QueueEntry::turn). So prompts stay in the queue, where
    // callers take turns, while all workers have much to do. The routing policy may still choose a
    // worker with up to `max_own_tokens`, which may have the prompt cached.
    uint64_t own_tokens = std::numeric_limits<uint64_t>::max();
    uint64_t max_own_tokens = std::numeric_limits<uint64_t>::max();
    // The worker must have all but this many tokens of the new prompt cached. If there is such a
    // limit, the worker must also have free blocks and a free place in its batch: a prompt does not
    // wait for a cache.
    uint64_t uncached = std::numeric_limits<uint64_t>::max();
    // Decode workers that may get a waiting ticket, which is KV that waits for free blocks. They
    // get no prompt, and a prefill worker that might send its KV to one of them gets none either.
    // So their free blocks are kept for the ticket.
    std::set<WorkerKey> awaited;
  };
  // An ejected worker (WorkerHealth) is chosen only if all workers that fit the need are ejected.

  // Lets the routing policy choose a prefill worker that has a place for a prompt and a decode
  // worker to pull its KV. Does not take the place: Legs::Open does. Returns kBusy if workers fit
  // the need but none has a place, and kNone if no worker fits. Sets `*chosen` only for kTaken.
  Choice ChoosePrefill(const Need& need, const Places& places, absl::Time now,
                       ChosenWorker* chosen);
  // Lets the routing policy choose a decode worker that computes the prompt itself. The results
  // mean the same as for ChoosePrefill.
  Choice ChooseColocated(const Need& need, const Places& places, absl::Time now,
                         ChosenWorker* chosen);
  // The role of the workers among which AnyPlace looks for a place.
  enum class Role { kPrefill, kDecode };
  // Returns true if some worker of this role and one of these identities may get another prompt.
  // `turn` is that of the prompt. Does not ask how long a prompt the worker takes. A prefill worker
  // also needs a decode worker that can pull from it.
  bool AnyPlace(Role role, const std::set<ModelIdentity>& identities, const Places& places,
                uint64_t turn, absl::Time now) const;
  // Returns the decode workers that ChooseDecode would choose from if all of them had free blocks.
  std::vector<Worker*> PartnersFor(const Worker& prefill, const Need& need, absl::Time now) const;
  // Returns the decode worker that the routing policy chooses from those that can pull from
  // `prefill` and are not in `refused_by`; no worker if there is none. Sets `*partners` to the
  // number of workers that can pull, those in `refused_by` included.
  ChosenWorker ChooseDecode(const Worker& prefill, const Need& need,
                            const std::vector<WorkerKey>& refused_by, absl::Time now,
                            int* partners);
  // Name of the transport between two workers as the decode worker reported it; empty if unknown.
  static std::string LinkName(const Worker& decode, WorkerEpoch prefill_epoch);

  // State of the workers of an identity. Ejected workers do not count.
  struct Duties {
    int prefill = 0, decode = 0;  // Ready workers by role.
    // True if each worker that computes prompts in this mode has two prompts of this router, so
    // that it always has a next one.
    bool prompts_queue = false;
    bool batches_full = false;  // Each decode worker has as many RPCs as places in its batch.
  };
  Duties DutiesOf(const std::optional<ModelIdentity>& identity, ServingMode mode,
                  absl::Time now) const;
  // Tokens of the prompts that this router has sent to workers and that are not computed yet.
  uint64_t WaitingPromptTokens() const;
  // Returns the part of WaitingPromptTokens() that the workers will probably compute before a
  // prompt with this QueueEntry::turn.
  uint64_t WaitingPromptTokensBefore(uint64_t turn) const;

  // True if one more worker of this role and identity may be ejected now (WorkerHealth): then at
  // most half of the ready workers, rounded up, are ejected, and at least one is not.
  bool MayEject(const Worker& worker, absl::Time now) const;
  // True if the worker's process has probably ended or is about to: it is unknown, detached,
  // replaced, stale or draining.
  bool Dead(WorkerKey key, absl::Time now) const;

  // Returns every attached worker whose list of peers differs from the list it was last sent, with
  // the new list. The caller has to send it. `pairs_wanted` is true if a worker is of no use
  // without a worker of the other role.
  std::vector<std::pair<AttachKey, v1::Peers>> ChangedPeers(bool pairs_wanted);

  // --- Reasons in words, for logs and statuses: worker_table_reasons.cc ---

  // Says why no attached worker of the other role can work with `worker`. Empty if one can, or if
  // no worker of the other role is attached.
  std::string WithoutPartner(const Worker& worker) const;
  // Returns a sentence on the worker that is missing to meet `need`: a pair if `pair` is true,
  // otherwise a single decode worker. `begun` is true if the answer has begun: the request then
  // stays with its identity, even if the router now serves another one.
  std::string Missing(const Need& need, bool pair, bool begun, absl::Time now) const;
  // Max number of workers that Unused() describes in a sentence each.
  static constexpr size_t kMaxUnused = 8;
  // Returns a sentence for each ready worker that gets no request while the router serves the
  // identity `served` in `mode`. After kMaxUnused sentences, one more gives the number of the other
  // workers.
  std::vector<std::string> Unused(const std::optional<ModelIdentity>& served, ServingMode mode,
                                  absl::Time now) const;
  // Returns a sentence for each ready worker that has failed requests in the last minute, for those
  // that failed most; at most kMaxUnused.
  std::vector<std::string> Failing(absl::Time now) const;

  // Sets the gauges of workers by state, and of ready workers without requests by reason.
  void CountStates(const std::optional<ModelIdentity>& served, ServingMode mode, absl::Time now,
                   RequestMetrics* metrics) const;

 private:
  // Use of a ready worker: it gets requests, or the reason why it gets none.
  enum class Use { kUsed, kOtherIdentity, kNoPartner, kEjected };
  Use UseOf(const Worker& worker, const std::optional<ModelIdentity>& served,
            ServingMode mode) const;

  // The largest capacity of the ready workers. A smaller value counts only once it has lasted for
  // `keep`: requests that fit only one worker must not fail while that worker restarts. While no
  // worker is ready, the last capacity counts.
  class Capacity {
   public:
    explicit Capacity(absl::Duration keep) : keep_(keep) {}
    int64_t tokens() const { return tokens_; }
    // `largest` is the largest capacity of a ready worker, in tokens; 0 if no worker is ready.
    // Returns true if tokens() is smaller now.
    bool Update(int64_t largest, absl::Time now);
    // Time at which the next Update() lowers the capacity, because it has been smaller for long
    // enough; InfiniteFuture if the capacity is not smaller.
    absl::Time EndsAt() const { return smaller_since_ + keep_; }

   private:
    const absl::Duration keep_;
    int64_t tokens_ = 0;
    absl::Time smaller_since_ = absl::InfiniteFuture();
  };
  struct Partners {
    std::vector<Worker*> decode;  // Decode workers with a proven link; checked again before use.
  };
  // Notes in each candidate how many tokens of the prompt it has cached. The candidates are ordered
  // by key.
  void FindCached(LegKind leg, const Need& need, std::vector<RouteCandidate>* candidates) const;
  // Lets the routing policy choose one of `candidates`, of which there is at least one.
  ChosenWorker Pick(LegKind leg, const Need& need, const std::vector<RouteCandidate>& candidates);

  const absl::Duration report_limit_, keep_capacity_;
  const std::unique_ptr<RoutingPolicy> policy_;
  WorkerCaches* const caches_;
  std::map<WorkerKey, Worker> workers_;  // Ordered, so that the same events give the same choices.
  std::map<AttachKey, WorkerKey> by_attach_;
  WorkerKey next_key_ = 1;
  std::map<WorkerKey, Partners> partners_;  // Keyed by prefill worker.
  std::set<WorkerKey> paired_;  // Workers of either role that are in a pair of ready workers.
  std::map<ModelIdentity, IdentityWorkers> identities_;
  // Capacities of one identity. They outlive the workers that offered them.
  struct Offered {
    Capacity pair, decode;
  };
  std::map<ModelIdentity, Offered> offered_;
};

}  // namespace baton
