#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/load.pb.h"
#include "baton/v1/membership.pb.h"
#include "router/core/core_events.h"
#include "router/core/model_identity.h"
#include "router/core/request_metrics.h"

namespace baton {

// One process of a worker, as it registered and as it last reported.
struct Worker {
  WorkerName name;
  ModelIdentity identity;
  v1::Registration registration;
  v1::LoadReport load;
  absl::Time reported;     // Last message on its attach stream.
  AttachKey attach = 0;    // 0: no stream is open.
  absl::Time detached_at;  // Meaningful while `attach` is 0.
  bool replaced = false;   // A newer process took its address.
  v1::Peers told;          // List of peers that it was last sent.
  bool ever_told = false;

  // Load from this router, counted when legs open and close.
  int legs = 0;                // Open legs.
  int prompts = 0;             // Legs whose prompt it computes, without a first token yet.
  uint64_t prompt_tokens = 0;  // Tokens of these prompts.
  uint64_t new_blocks = 0;     // Decode: blocks for legs opened since the last report.
  // Load from other routers: the last report less this router's own load at that time.
  uint64_t others_prompt_tokens = 0;
  uint64_t others_sequences = 0;
  absl::Time full_until = absl::InfinitePast();  // It refused a prompt: it gets none before this.

  bool prefill() const { return registration.role() == v1::WORKER_ROLE_PREFILL; }
  // Longest sequence that fits, in tokens: limited by its context and by its whole pool of blocks.
  int64_t capacity_tokens() const;
  // Number of this worker's blocks that `tokens` tokens fill.
  uint64_t BlocksFor(int64_t tokens) const;
};

// The requirements of a request on a worker.
struct Need {
  int64_t tokens = 0;  // Prompt and answer together, at most.
  // The only identity that will do. Not set: the router serves none yet, and no worker will do.
  std::optional<ModelIdentity> identity;
  WorkerKey avoid = 0;  // Taken only if there is no other.
};

// Numbers of workers of one identity, and what they can hold.
struct IdentityWorkers {
  int attached = 0;        // Attached workers of either role, ready or not.
  int pairs = 0;           // Pairs of ready workers with a proven link.
  int paired_prefill = 0;  // Ready prefill workers in at least one of these pairs.
  int paired_decode = 0;   // Ready decode workers in at least one of these pairs.
  int ready_prefill = 0;   // Ready prefill workers, in a pair or not.
  int ready_decode = 0;    // Ready decode workers, in a pair or not.
  // Longest prompt and answer together, in tokens, that a pair takes, and that a decode worker
  // takes alone. ListModels reports it, and longer requests are refused. A worker that is gone
  // still counts for a while, and if there is none at all the last one counts. 0 until there was
  // one.
  int64_t pair_capacity_tokens = 0;
  int64_t decode_capacity_tokens = 0;

  // Number of workers that count in `mode` for the choice of the served identity: pairs if
  // disaggregated; ready decode workers if colocated; for AUTO, ready decode workers and the
  // prefill workers paired with them.
  int Usable(v1::ServingMode mode) const;
};

// Owns the records of the workers that have attached, and knows which can work together and which
// to choose. Part of RouterCore: runs on its thread, adds no actions and reads no clock. A Worker
// stays at its address until Forget() removes it.
class WorkerTable {
 public:
  // `keep_capacity` is the time for which a capacity still counts after no worker has it any more.
  WorkerTable(absl::Duration report_limit, absl::Duration keep_capacity)
      : report_limit_(report_limit), keep_capacity_(keep_capacity) {}

  // Takes a worker. Returns FailedPrecondition or InvalidArgument, with the field and its value, if
  // this router cannot serve the worker; then nothing has changed. The newest registration at an
  // address wins. Adds the processes that it replaces to `replaced`, whose legs the caller has to
  // fail, and the attach streams that are of no more use to `closed`. A known process that attaches
  // again keeps its record and its legs.
  absl::StatusOr<Worker*> Attach(AttachKey attach, const v1::Registration& registration,
                                 const std::string& model_name, absl::Time now,
                                 std::vector<WorkerKey>* replaced, std::vector<AttachKey>* closed);
  // Takes a load report. Returns null if no worker is attached by this stream. Otherwise sets
  // `*matters` to true if pairs may have changed.
  Worker* Report(AttachKey attach, const v1::LoadReport& load, absl::Time now, bool* matters);
  // Notes that the stream is closed. Returns null if no worker is attached by it. The record stays.
  Worker* Detach(AttachKey attach, absl::Time now);
  // Moves the time of the last reports forward by `by`, during which the router was not running.
  void Excuse(absl::Duration by, absl::Time now);
  // Removes detached workers without legs, replaced ones at once and others after `forget_after`.
  // Returns their keys. Pointers to them end here.
  std::vector<WorkerKey> Forget(absl::Time now, absl::Duration forget_after);
  // Time at which Forget has something to do; InfiniteFuture: never.
  absl::Time ForgetAt(absl::Duration forget_after) const;

  // Returns the worker, or null if it is unknown or was removed.
  Worker* Find(WorkerKey key);
  // True if the worker may get new work: attached, not replaced, not draining, not stale.
  bool Ready(const Worker& worker, absl::Time now) const;
  // True if the last report is older than `report_limit`.
  bool Stale(const Worker& worker, absl::Time now) const;
  // True if both have equal protocol, model, layout and numerics, and different roles.
  static bool Compatible(const Worker& a, const Worker& b);

  // Rebuilds all pairs from the ready workers and their proven links, and the numbers of each
  // identity. Call it when Report says that pairs may have changed, and at StaleAt().
  void RefreshPairs(absl::Time now);
  // Numbers of each identity as of the last RefreshPairs. Has every identity that a worker here
  // has, or had and that was not dropped.
  const std::map<ModelIdentity, IdentityWorkers>& identities() const { return identities_; }
  // Numbers of one identity; all zero if it is not set or unknown.
  const IdentityWorkers& WorkersOf(const std::optional<ModelIdentity>& identity) const;
  // Drops the identities that no worker here has, except `kept`, with the capacities that they
  // offered.
  void DropIdentities(const std::optional<ModelIdentity>& kept);
  // Time at which the next report becomes too old or a capacity ends; InfiniteFuture if none will.
  absl::Time StaleAt(absl::Time now) const;

  // Result of ChoosePrefill and ChooseColocated.
  enum class Choice { kTaken, kBusy, kNone };
  // Limits on the prompts without a first token at one worker. The worker has a place for one more
  // prompt while it is below them.
  struct Places {
    // Prompts at the worker: fewer than this.
    int prompts = 0;
    // Tokens of these prompts: at most this.
    uint64_t tokens = std::numeric_limits<uint64_t>::max();
    // Decode workers at which tickets wait for room. These have no place, and neither has a prefill
    // worker that might send to them.
    std::set<WorkerKey> awaited;
  };
  // Chooses the least loaded prefill worker with a place and a partner. Takes nothing: Legs::Open
  // does. kBusy: there are workers for this need, but none has a place. kNone: there is no worker
  // for this need. Sets `*chosen` only for kTaken.
  Choice ChoosePrefill(const Need& need, const Places& places, absl::Time now, Worker** chosen);
  // Chooses the least loaded decode worker that computes the prompt itself. Results as those of
  // ChoosePrefill.
  Choice ChooseColocated(const Need& need, const Places& places, absl::Time now, Worker** chosen);
  // The workers that AnyPlace looks at.
  enum class Role { kPrefill, kDecode };
  // Returns true if some worker of this role and one of these identities has a place for a prompt
  // of any length. A prefill worker also needs a partner.
  bool AnyPlace(Role role, const std::set<ModelIdentity>& identities, const Places& places,
                absl::Time now) const;
  // Returns the decode workers that ChooseDecode would choose from if all had room.
  std::vector<Worker*> PartnersFor(const Worker& prefill, const Need& need, absl::Time now) const;
  // Returns the least loaded decode worker with a proven link to `prefill` that is not in
  // `refused_by`. Null if there is none. Sets `*partners` to the number of candidates, those in
  // `refused_by` included.
  Worker* ChooseDecode(const Worker& prefill, const Need& need,
                       const std::vector<WorkerKey>& refused_by, absl::Time now, int* partners);
  // Name of the transport between two workers as the decode worker reported it; empty if unknown.
  static std::string LinkName(const Worker& decode, WorkerEpoch prefill_epoch);

  // Returns every attached worker whose list of peers differs from the one it was last sent, with
  // the new list. The caller has to send it. `pairs_wanted`: a worker is of no use alone.
  std::vector<std::pair<AttachKey, v1::Peers>> ChangedPeers(bool pairs_wanted);

  // --- Reasons in words, for logs and statuses: worker_table_reasons.cc ---

  // Says why none of the attached workers of the other role can work with `worker`. Empty if one
  // can, or if none of the other role is attached.
  std::string WithoutPartner(const Worker& worker) const;
  // Says what is missing for a pair, or for a decode worker alone, that meets `need`. `begun`: the
  // request has begun with its identity, so the router may serve another one now.
  std::string Missing(const Need& need, bool pair, bool begun, absl::Time now) const;
  // Max sentences of Unused() on single workers.
  static constexpr size_t kMaxUnused = 8;
  // Returns a sentence for each ready worker that gets no request while the router serves the
  // identity `served` in `mode`. After kMaxUnused of them, one more sentence counts the rest.
  std::vector<std::string> Unused(const std::optional<ModelIdentity>& served, v1::ServingMode mode,
                                  absl::Time now) const;

  // Sets the gauges of workers by state, and of ready workers without requests by reason.
  void CountStates(const std::optional<ModelIdentity>& served, v1::ServingMode mode, absl::Time now,
                   RequestMetrics* metrics) const;

 private:
  // Use of a ready worker: it gets requests, or the reason why it gets none.
  enum class Use { kUsed, kOtherIdentity, kNoPartner };
  Use UseOf(const Worker& worker, const std::optional<ModelIdentity>& served,
            v1::ServingMode mode) const;

  // The largest capacity of the ready workers. A smaller one counts only after `keep`, because a
  // worker that is restarted must not cost the requests that only it can hold. While no worker is
  // ready, the last capacity counts.
  class Capacity {
   public:
    explicit Capacity(absl::Duration keep) : keep_(keep) {}
    int64_t tokens() const { return tokens_; }
    // `largest` is the largest capacity of the ready workers; 0 if there are none.
    void Update(int64_t largest, absl::Time now);
    // Time at which Update() would accept a smaller capacity; InfiniteFuture: never.
    absl::Time EndsAt() const { return smaller_since_ + keep_; }

   private:
    const absl::Duration keep_;
    int64_t tokens_ = 0;
    absl::Time smaller_since_ = absl::InfiniteFuture();
  };
  struct Partners {
    std::vector<Worker*> decode;  // Have a proven link; checked again at use.
  };
  const absl::Duration report_limit_, keep_capacity_;
  std::map<WorkerKey, Worker> workers_;  // Ordered, so that the same events give the same choices.
  std::map<AttachKey, WorkerKey> by_attach_;
  WorkerKey next_key_ = 1;
  std::map<WorkerKey, Partners> partners_;  // Keyed by prefill worker.
  std::set<WorkerKey> paired_;              // Workers of either role in a pair of ready ones.
  std::map<ModelIdentity, IdentityWorkers> identities_;
  // The capacities of each entry of identities_. They outlive the workers that offered them.
  struct Offered {
    Capacity pair, decode;
  };
  std::map<ModelIdentity, Offered> offered_;
};

}  // namespace baton
