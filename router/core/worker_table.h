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
  absl::Time reported;     // last word over its attach stream
  AttachKey attach = 0;    // 0: no stream open
  absl::Time detached_at;  // meaningful while attach is 0
  bool replaced = false;   // a newer process took its address
  v1::Peers told;          // what it was last told of its peers
  bool ever_told = false;

  // This router's own share, counted when legs open and close.
  int legs = 0;                // open legs
  int prompts = 0;             // legs whose prompt it computes, without a first token yet
  uint64_t prompt_tokens = 0;  // tokens of those
  uint64_t new_blocks = 0;     // decode: needed by legs opened since the last report
  // Of other routers, as far as the last report tells: what it said less our own then.
  uint64_t others_prompt_tokens = 0;
  uint64_t others_sequences = 0;
  absl::Time full_until = absl::InfinitePast();  // refused a prompt: none before this

  bool prefill() const { return registration.role() == v1::WORKER_ROLE_PREFILL; }
  // Longest sequence that fits, tokens: its own limit, and its whole pool.
  int64_t capacity_tokens() const;
  uint64_t BlocksFor(int64_t tokens) const;
};

// What a request needs of a worker.
struct Need {
  int64_t tokens = 0;  // prompt and answer together, at the most
  // The only one that will do. Nothing: the router serves none yet, and no worker will do.
  std::optional<ModelIdentity> identity;
  WorkerKey avoid = 0;  // taken only when there is no other
};

// What the workers of one identity make together.
struct IdentityWorkers {
  int attached = 0;        // of either role, ready or not
  int pairs = 0;           // of ready workers with a proven link
  int paired_prefill = 0;  // ready prefill workers in at least one of these pairs
  int paired_decode = 0;   // ready decode workers in at least one of them
  int ready_prefill = 0;   // ready prefill workers, in a pair or not
  int ready_decode = 0;    // ready decode workers, in a pair or not
  // Longest prompt and answer together, in tokens, that a pair or a decode worker alone takes: what
  // ListModels tells, and what requests are held to. One that is gone still counts for a while, and
  // where there is none at all the last one counts. 0 until there was one.
  int64_t pair_capacity_tokens = 0;
  int64_t decode_capacity_tokens = 0;

  // Workers that the router can use in `mode`, as the choice of the served identity counts them:
  // pairs; or decode workers; or, for AUTO, decode workers and the prefill workers paired with
  // them.
  int Usable(v1::ServingMode mode) const;
};

// The workers that have attached, who may work with whom, and which one to take. Plain state of
// RouterCore: no actions, no clock.
class WorkerTable {
 public:
  // `keep_capacity`: how long a capacity counts that no worker has any more.
  WorkerTable(absl::Duration report_limit, absl::Duration keep_capacity)
      : report_limit_(report_limit), keep_capacity_(keep_capacity) {}

  // FailedPrecondition or InvalidArgument when this router can't serve such a worker (names field
  // and value). The newest registration at an address wins: `replaced` gets the processes that it
  // displaces, whose legs are as good as dead, `closed` the attach streams that are of no more use.
  // A known process that attaches again keeps its record and its legs.
  absl::StatusOr<Worker*> Attach(AttachKey attach, const v1::Registration& registration,
                                 const std::string& model_name, absl::Time now,
                                 std::vector<WorkerKey>* replaced, std::vector<AttachKey>* closed);
  // Null when no worker is attached by this stream. Sets `*matters` when pairs may have changed.
  Worker* Report(AttachKey attach, const v1::LoadReport& load, absl::Time now, bool* matters);
  Worker* Detach(AttachKey attach, absl::Time now);
  // Nobody could be heard for that long: reports are so much younger than they look.
  void Excuse(absl::Duration by, absl::Time now);
  // Removes detached workers without legs: replaced ones at once, others after `forget_after`.
  std::vector<WorkerKey> Forget(absl::Time now, absl::Duration forget_after);
  // When Forget has something to do; InfiniteFuture for never.
  absl::Time ForgetAt(absl::Duration forget_after) const;

  Worker* Find(WorkerKey key);
  bool Ready(const Worker& worker, absl::Time now) const;
  bool Stale(const Worker& worker, absl::Time now) const;
  // Equal protocol, model, layout and numerics, and one of each role.
  static bool Compatible(const Worker& a, const Worker& b);

  // Looks at every ready worker and proven link again: which prefill workers have a decode worker
  // to go with, and what each identity has. Call when Report says that it matters, and at
  // StaleAt().
  void RefreshPairs(absl::Time now);
  // As of the last RefreshPairs. Every identity that has a worker here, or had one and was not
  // dropped.
  const std::map<ModelIdentity, IdentityWorkers>& identities() const { return identities_; }
  // Of one identity; all zero for nothing or an unknown one.
  const IdentityWorkers& WorkersOf(const std::optional<ModelIdentity>& identity) const;
  // Forgets what identities without a worker here have offered, except for `kept`.
  void DropIdentities(const std::optional<ModelIdentity>& kept);
  // When the next report becomes too old, or a capacity ends; InfiniteFuture when none will.
  absl::Time StaleAt(absl::Time now) const;

  enum class Choice { kTaken, kBusy, kNone };
  // What one worker may have of prompts without a first token, for one more to go there.
  struct Places {
    int prompts = 0;                                         // fewer than these
    uint64_t tokens = std::numeric_limits<uint64_t>::max();  // and at most that many tokens
    // Decode workers that tickets wait for room at: they have no place, nor has who might send
    // there.
    std::set<WorkerKey> awaited;
  };
  // The least loaded prefill worker with a partner. kBusy: there are some, and none has a place.
  // kNone: there is none for this need.
  Choice ChoosePrefill(const Need& need, const Places& places, absl::Time now, Worker** chosen);
  // The least loaded decode worker, to compute the prompt itself. As ChoosePrefill.
  Choice ChooseColocated(const Need& need, const Places& places, absl::Time now, Worker** chosen);
  // Whether some prefill worker with a partner, or some decode worker, of one of these identities
  // has a place, for whatever number of tokens.
  enum class Role { kPrefill, kDecode };
  bool AnyPlace(Role role, const std::set<ModelIdentity>& identities, const Places& places,
                absl::Time now) const;
  // The decode workers that ChooseDecode would choose from if all had room.
  std::vector<Worker*> PartnersFor(const Worker& prefill, const Need& need, absl::Time now) const;
  // The least loaded decode worker with a proven link to `prefill`, none of `refused_by`. Null when
  // there is none; `*partners` counts those that could, the refusing ones among them.
  Worker* ChooseDecode(const Worker& prefill, const Need& need,
                       const std::vector<WorkerKey>& refused_by, absl::Time now, int* partners);
  // Transport between two workers as the decode worker reported it; empty if unknown.
  static std::string LinkName(const Worker& decode, WorkerEpoch prefill_epoch);

  // Every attached worker whose list of peers differs from what it was told, with the new list.
  // `pairs_wanted`: a worker is of no use alone.
  std::vector<std::pair<AttachKey, v1::Peers>> ChangedPeers(bool pairs_wanted);

  // --- Reasons, in words: worker_table_reasons.cc ---

  // Why none of the attached workers of the other role may work with `worker`. Empty if one may, or
  // if none of the other role is attached.
  std::string WithoutPartner(const Worker& worker) const;
  // What is missing for a pair, or for a decode worker alone, that meets `need`. `begun`: the need
  // is that of a request which began with its identity, so the router may serve another one now.
  std::string Missing(const Need& need, bool pair, bool begun, absl::Time now) const;
  // A sentence for each ready worker that is given no request while the router serves the identity
  // `served` in `mode`. At most kMostUnused, and one more that counts the others.
  static constexpr size_t kMostUnused = 8;
  std::vector<std::string> Unused(const std::optional<ModelIdentity>& served, v1::ServingMode mode,
                                  absl::Time now) const;

  // Sets the gauges that tell how many workers there are in which state, and how many ready ones
  // are unused for which reason.
  void CountStates(const std::optional<ModelIdentity>& served, v1::ServingMode mode, absl::Time now,
                   RequestMetrics* metrics) const;

 private:
  // Whether requests are given to a ready worker, and if not, why.
  enum class Use { kUsed, kOtherIdentity, kNoPartner };
  Use UseOf(const Worker& worker, const std::optional<ModelIdentity>& served,
            v1::ServingMode mode) const;

  // The largest capacity there is. One that is gone still counts for a while: a worker that is
  // started again must not cost the requests that only it can hold. While there is none at all, the
  // last one counts.
  class Capacity {
   public:
    explicit Capacity(absl::Duration keep) : keep_(keep) {}
    int64_t tokens() const { return tokens_; }
    // `largest` of those that are ready; 0: there are none.
    void Update(int64_t largest, absl::Time now);
    // When another Update would take a smaller one; InfiniteFuture for never.
    absl::Time EndsAt() const { return smaller_since_ + keep_; }

   private:
    const absl::Duration keep_;
    int64_t tokens_ = 0;
    absl::Time smaller_since_ = absl::InfiniteFuture();
  };
  struct Partners {
    std::vector<Worker*> decode;  // with a proven link; checked again at use
  };
  const absl::Duration report_limit_, keep_capacity_;
  std::map<WorkerKey, Worker> workers_;  // ordered: same events, same choices
  std::map<AttachKey, WorkerKey> by_attach_;
  WorkerKey next_key_ = 1;
  std::map<WorkerKey, Partners> partners_;  // by prefill worker
  std::set<WorkerKey> paired_;              // workers of either role in a pair of ready ones
  std::map<ModelIdentity, IdentityWorkers> identities_;
  // What each of identities_ has offered, which outlives the workers that offered it.
  struct Offered {
    Capacity pair, decode;
  };
  std::map<ModelIdentity, Offered> offered_;
};

}  // namespace baton
