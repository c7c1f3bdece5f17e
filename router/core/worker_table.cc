#include "router/core/worker_table.h"

#include <algorithm>
#include <iterator>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/rpc/limits.h"
#include "router/core/worker_caches.h"

namespace baton {
namespace {

absl::Status CheckRegistration(const v1::Registration& r, const std::string& model_name) {
  if (r.protocol_version() != static_cast<uint32_t>(kProtocolVersion)) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", r.address(), " speaks protocol ", r.protocol_version(),
                     ", this router ", kProtocolVersion, ": give both the same version of Baton"));
  }
  if (r.role() != v1::WORKER_ROLE_PREFILL && r.role() != v1::WORKER_ROLE_DECODE) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", r.address(), " has role ", static_cast<int>(r.role()),
                     "; this router serves prefill (1) and decode (2)"));
  }
  if (!r.model().empty() && r.model() != model_name) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", r.address(), " has model '", r.model(), "', this router serves '", model_name,
        "': give all the same folder or file; for copies of one model with several names, give all "
        "the same --model-name"));
  }
  if (r.epoch() == 0) return absl::InvalidArgumentError("the worker registered without an epoch");
  if (r.block_tokens() == 0 || r.total_blocks() == 0 || r.context_tokens() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", r.address(), " registered with block_tokens ", r.block_tokens(),
                     ", total_blocks ", r.total_blocks(), ", context_tokens ", r.context_tokens(),
                     "; none may be 0"));
  }
  return absl::OkStatus();
}

// Returns the prompt tokens that the worker has still to compute for this router.
uint64_t OwnPromptTokensAt(const Worker& worker) {
  return worker.prompt_tokens - worker.cached_prompt_tokens;
}

// Returns the prompt tokens that the worker has still to compute. Tokens that this router sends
// count as soon as their RPC begins. Tokens of other routers count once the worker reports them.
uint64_t PromptTokensAt(const Worker& worker) {
  return OwnPromptTokensAt(worker) + worker.others_prompt_tokens;
}

// Returns true if the worker will probably compute at most `limit` prompt tokens for this router
// before a prompt with this QueueEntry::turn.
bool ComputesAtMostBefore(const Worker& worker, uint64_t turn, uint64_t limit) {
  if (OwnPromptTokensAt(worker) <= limit) return true;
  uint64_t tokens = 0;
  for (const auto& [other, own] : worker.turns) {
    if (other > turn) break;
    tokens += own;
    if (tokens > limit) return false;
  }
  return true;
}

// Returns true if the worker may be given one more prompt, whose QueueEntry::turn is `turn`.
bool HasPlace(const Worker& worker, const WorkerTable::Places& places, uint64_t turn,
              absl::Time now) {
  const uint64_t own = worker.registration.max_batch();
  const uint64_t limit = own == 0 ? places.prompts : std::min<uint64_t>(own, places.prompts);
  return static_cast<uint64_t>(worker.prompts) < limit && now >= worker.full_until &&
         PromptTokensAt(worker) <= places.tokens &&
         ComputesAtMostBefore(worker, turn, places.max_own_tokens);
}

bool IsSoonFree(const Worker& worker, const WorkerTable::Places& places, uint64_t turn) {
  return ComputesAtMostBefore(worker, turn, places.own_tokens);
}

bool MaySendTo(const std::vector<Worker*>& partners, const std::set<WorkerKey>& decode) {
  return std::any_of(partners.begin(), partners.end(),
                     [&](const Worker* worker) { return decode.contains(worker->name.key); });
}

bool HasIdentity(const Worker& worker, const Need& need) {
  return need.identity && *need.identity == worker.identity;
}

uint64_t SequencesAt(const Worker& worker) {
  return static_cast<uint64_t>(worker.legs) + worker.others_sequences;
}

// Returns the free blocks of the worker's last report, less the blocks needed by RPCs opened since
// that report.
int64_t FreeBlocksAt(const Worker& worker) {
  return static_cast<int64_t>(worker.load.free_blocks()) - static_cast<int64_t>(worker.new_blocks);
}

// Returns the facts about the worker that a routing policy may use.
RouteCandidate CandidateOf(LegKind leg, const Worker& worker, const Need& need) {
  const int64_t free = FreeBlocksAt(worker);
  return {
      .key = worker.name.key,
      .avoid = need.avoid != nullptr && std::find(need.avoid->begin(), need.avoid->end(),
                                                  worker.name.key) != need.avoid->end(),
      .sibling = worker.registration.prefix_cache() &&
                 worker.name.key == need.siblings[static_cast<size_t>(leg)],
      .has_room = worker.prefill() || free >= static_cast<int64_t>(worker.BlocksFor(need.tokens)),
      .prompt_tokens = PromptTokensAt(worker),
      .prompts = static_cast<uint64_t>(worker.prompts),
      .sequences = SequencesAt(worker),
      .max_batch = worker.registration.max_batch(),
      .free_blocks = free};
}

// The workers that fit a need. Those that are ejected count only if there are no others.
class Found {
 public:
  // Adds a worker that fits. `free` is true if it may get the request now, provided that one of the
  // free workers is `soon_free`. `candidate` returns the facts about it.
  template <class MakeCandidate>
  void Add(const Worker& worker, bool free, bool soon_free, absl::Time now,
           const MakeCandidate& candidate) {
    Group& group = worker.health.Out(now) ? ejected_ : in_use_;
    group.any = true;
    group.soon_free |= free && soon_free;
    if (free) group.candidates.push_back(candidate());
  }
  std::vector<RouteCandidate>& Best() {
    if (!Used().soon_free) Used().candidates.clear();
    return Used().candidates;
  }
  // True if a worker fits but may not get the request now.
  bool busy() { return Used().any; }

 private:
  struct Group {
    bool any = false, soon_free = false;
    std::vector<RouteCandidate> candidates;
  };
  Group& Used() { return in_use_.any ? in_use_ : ejected_; }

  Group in_use_, ejected_;
};

}  // namespace

int64_t Worker::capacity_tokens() const {
  const int64_t pool = static_cast<int64_t>(registration.total_blocks()) *
                       static_cast<int64_t>(registration.block_tokens());
  return std::min<int64_t>(registration.context_tokens(), pool);
}

int IdentityWorkers::Usable(ServingMode mode) const {
  if (mode == ServingMode::kDisaggregated) return pairs;
  if (mode == ServingMode::kColocated) return ready_decode;
  return ready_decode + paired_prefill;
}

uint64_t Worker::BlocksFor(int64_t tokens) const {
  const int64_t block = registration.block_tokens();
  return static_cast<uint64_t>((tokens + block - 1) / block);
}

absl::StatusOr<Worker*> WorkerTable::Attach(AttachKey attach, const v1::Registration& registration,
                                            const std::string& model_name, absl::Time now,
                                            std::vector<WorkerKey>* replaced,
                                            std::vector<AttachKey>* closed) {
  RETURN_IF_ERROR(CheckRegistration(registration, model_name));
  const ModelIdentity identity = {registration.model_fingerprint(), registration.numerics_id()};
  for (const auto& [key, other] : workers_) {
    if (other.name.address != registration.address() || other.replaced ||
        other.name.epoch != registration.epoch() || other.identity == identity) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", registration.address(), " attaches again with identity ",
                     identity.ToString(), "; the same process had ", other.identity.ToString()));
  }
  Worker* worker = nullptr;
  for (auto& [key, other] : workers_) {
    if (other.name.address != registration.address()) continue;
    if (other.attach != 0) {
      by_attach_.erase(other.attach);
      closed->push_back(other.attach);
      other.attach = 0;
      other.detached_at = now;
    }
    if (other.name.epoch == registration.epoch() && !other.replaced) {
      worker = &other;
    } else if (!other.replaced) {
      other.replaced = true;
      replaced->push_back(key);
    }
  }
  if (worker == nullptr) {
    const WorkerKey key = next_key_++;
    worker = &workers_[key];
    worker->name = {key, registration.address(), registration.epoch()};
    worker->identity = identity;
    worker->load.set_free_blocks(registration.total_blocks());
    worker->load.set_total_blocks(registration.total_blocks());
  }
  worker->registration = registration;
  worker->reported = now;
  worker->attach = attach;
  worker->ever_told = false;
  by_attach_[attach] = worker->name.key;
  return worker;
}

Worker* WorkerTable::Report(AttachKey attach, const v1::LoadReport& load, absl::Time now,
                            bool* matters) {
  const auto found = by_attach_.find(attach);
  if (found == by_attach_.end()) return nullptr;
  Worker& worker = workers_.at(found->second);
  bool changed = Stale(worker, now) || worker.load.draining() != load.draining() ||
                 worker.load.links_size() != load.links_size();
  for (int i = 0; !changed && i < load.links_size(); ++i) {
    changed = load.links(i).epoch() != worker.load.links(i).epoch();
  }
  *matters = changed;
  if (worker.load.waiting() > 0) worker.empty_since = now;
  worker.load = load;
  worker.reported = now;
  worker.new_blocks = 0;
  const auto beyond = [](uint64_t reported, uint64_t own) {
    return reported > own ? reported - own : 0;
  };
  // A worker that has begun a prompt no longer counts its cached tokens as waiting. Prompts that it
  // has not begun are counted whole, so the load of other routers may seem larger than it is.
  worker.others_prompt_tokens =
      beyond(load.waiting_tokens(), worker.prompt_tokens - worker.cached_prompt_tokens);
  worker.others_sequences =
      beyond(uint64_t{load.running()} + load.waiting(), static_cast<uint64_t>(worker.legs));
  return &worker;
}

Worker* WorkerTable::Heard(AttachKey attach, absl::Time now) {
  const auto found = by_attach_.find(attach);
  if (found == by_attach_.end()) return nullptr;
  Worker& worker = workers_.at(found->second);
  if (!Stale(worker, now)) worker.reported = now;
  return &worker;
}

void WorkerTable::CommonLayout(const ModelIdentity& identity, absl::Time now, std::string* layout,
                               int* block_tokens) const {
  std::map<std::pair<std::string, uint32_t>, int> count;
  for (const auto& [key, worker] : workers_) {
    if (worker.identity != identity || !Ready(worker, now)) continue;
    ++count[{worker.registration.layout_fingerprint(), worker.registration.block_tokens()}];
  }
  layout->clear();
  *block_tokens = 0;
  int largest = 0;
  for (const auto& [of, workers] : count) {
    if (workers <= largest) continue;
    largest = workers;
    *layout = of.first;
    *block_tokens = static_cast<int>(of.second);
  }
}

Worker* WorkerTable::Detach(AttachKey attach, absl::Time now) {
  const auto found = by_attach_.find(attach);
  if (found == by_attach_.end()) return nullptr;
  Worker& worker = workers_.at(found->second);
  by_attach_.erase(found);
  worker.attach = 0;
  worker.detached_at = now;
  return &worker;
}

void WorkerTable::Excuse(absl::Duration by, absl::Time now) {
  for (auto& [key, worker] : workers_) worker.reported = std::min(now, worker.reported + by);
}

std::vector<WorkerKey> WorkerTable::Forget(absl::Time now, absl::Duration forget_after) {
  std::vector<WorkerKey> forgotten;
  for (auto it = workers_.begin(); it != workers_.end();) {
    const Worker& worker = it->second;
    if (worker.attach == 0 && worker.legs == 0 &&
        (worker.replaced || now - worker.detached_at >= forget_after)) {
      forgotten.push_back(it->first);
      it = workers_.erase(it);
    } else {
      ++it;
    }
  }
  if (!forgotten.empty()) RefreshPairs(now);
  return forgotten;
}

absl::Time WorkerTable::ForgetAt(absl::Duration forget_after) const {
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& [key, worker] : workers_) {
    if (worker.attach != 0 || worker.legs > 0) continue;
    earliest = std::min(earliest, worker.detached_at + forget_after);
  }
  return earliest;
}

Worker* WorkerTable::Find(WorkerKey key) {
  const auto found = workers_.find(key);
  return found == workers_.end() ? nullptr : &found->second;
}

bool WorkerTable::Stale(const Worker& worker, absl::Time now) const {
  return now - worker.reported > report_limit_;
}

bool WorkerTable::Ready(const Worker& worker, absl::Time now) const {
  return worker.attach != 0 && !worker.replaced && !worker.load.draining() && !Stale(worker, now);
}

bool WorkerTable::Compatible(const Worker& a, const Worker& b) {
  const v1::Registration& x = a.registration;
  const v1::Registration& y = b.registration;
  return x.role() != y.role() && x.protocol_version() == y.protocol_version() &&
         x.model_fingerprint() == y.model_fingerprint() &&
         x.layout_fingerprint() == y.layout_fingerprint() && x.numerics_id() == y.numerics_id();
}

bool WorkerTable::RefreshPairs(absl::Time now) {
  partners_.clear();
  paired_.clear();
  for (auto& [identity, all] : identities_) all = {};
  std::map<WorkerEpoch, Worker*> prefill;
  for (auto& [key, worker] : workers_) {
    IdentityWorkers& all = identities_[worker.identity];
    all.attached += worker.attach != 0 && !worker.replaced;
    all.ready_prefill += worker.prefill() && Ready(worker, now);
    // Includes draining and stale workers. They take no new requests, but their tickets still need
    // decode workers.
    if (worker.prefill() && !worker.replaced) prefill[worker.name.epoch] = &worker;
  }
  for (auto& [key, decode] : workers_) {
    if (decode.prefill() || !Ready(decode, now)) continue;
    IdentityWorkers& all = identities_[decode.identity];
    ++all.ready_decode;
    all.decode_capacity_tokens = std::max(all.decode_capacity_tokens, decode.capacity_tokens());
    for (const v1::PeerLink& link : decode.load.links()) {
      const auto found = prefill.find(link.epoch());
      if (found == prefill.end() || !Compatible(*found->second, decode)) continue;
      Worker& partner = *found->second;
      partners_[partner.name.key].decode.push_back(&decode);
      if (!Ready(partner, now)) continue;
      ++all.pairs;
      all.paired_prefill += paired_.insert(partner.name.key).second;
      all.paired_decode += paired_.insert(key).second;
      all.pair_capacity_tokens = std::max(
          all.pair_capacity_tokens, std::min(partner.capacity_tokens(), decode.capacity_tokens()));
    }
  }
  bool smaller = false;
  for (auto& [identity, all] : identities_) {
    Offered& offered =
        offered_.try_emplace(identity, Offered{Capacity(keep_capacity_), Capacity(keep_capacity_)})
            .first->second;
    smaller |= offered.pair.Update(all.pair_capacity_tokens, now);
    smaller |= offered.decode.Update(all.decode_capacity_tokens, now);
    all.pair_capacity_tokens = offered.pair.tokens();
    all.decode_capacity_tokens = offered.decode.tokens();
  }
  return smaller;
}

bool WorkerTable::Capacity::Update(int64_t largest, absl::Time now) {
  const bool smaller = largest > 0 && largest < tokens_;
  if (smaller) {
    smaller_since_ = std::min(smaller_since_, now);
    if (now < EndsAt()) return false;
  }
  if (largest > 0) tokens_ = largest;
  smaller_since_ = absl::InfiniteFuture();
  return smaller;
}

const IdentityWorkers& WorkerTable::WorkersOf(const std::optional<ModelIdentity>& identity) const {
  static const IdentityWorkers none;
  const auto found = identity ? identities_.find(*identity) : identities_.end();
  return found == identities_.end() ? none : found->second;
}

void WorkerTable::DropIdentities(const std::optional<ModelIdentity>& kept) {
  std::set<ModelIdentity> present;
  for (const auto& [key, worker] : workers_) present.insert(worker.identity);
  for (auto it = identities_.begin(); it != identities_.end();) {
    const bool drop = it->first != kept && !present.contains(it->first);
    if (drop) offered_.erase(it->first);
    it = drop ? identities_.erase(it) : std::next(it);
  }
}

absl::Time WorkerTable::StaleAt(absl::Time now) const {
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& [identity, offered] : offered_) {
    earliest = std::min({earliest, offered.pair.EndsAt(), offered.decode.EndsAt()});
  }
  for (const auto& [key, worker] : workers_) {
    if (!Ready(worker, now)) continue;
    earliest = std::min(earliest, worker.reported + report_limit_ + absl::Nanoseconds(1));
  }
  return earliest;
}

void WorkerTable::FindCached(LegKind leg, const Need& need,
                             std::vector<RouteCandidate>* candidates) const {
  if (need.block_names == nullptr || need.block_names->empty()) return;
  const absl::Span<const HeldBlocks> held = caches_->Find(*need.block_names);
  auto candidate = candidates->begin();
  for (const HeldBlocks& one : held) {
    while (candidate != candidates->end() && candidate->key < one.worker) ++candidate;
    if (candidate == candidates->end()) return;
    if (candidate->key != one.worker) continue;
    const int64_t block = workers_.at(one.worker).registration.block_tokens();
    // A worker always computes the block with the prompt's last token. To pull KV, it needs all.
    const int64_t limit =
        leg == LegKind::kDecode ? need.prompt_tokens : (need.prompt_tokens - 1) / block * block;
    candidate->cached_tokens = static_cast<uint64_t>(std::min(one.blocks * block, limit));
  }
}

ChosenWorker WorkerTable::Pick(LegKind leg, const Need& need,
                               const std::vector<RouteCandidate>& candidates) {
  const RouteRequest request = {.leg = leg,
                                .prompt_tokens = static_cast<uint64_t>(need.prompt_tokens)};
  const size_t chosen = policy_->Choose(request, candidates);
  BATON_CHECK(chosen < candidates.size())
      << "the routing policy chose worker " << chosen << " of " << candidates.size();
  return {&workers_.at(candidates[chosen].key), candidates[chosen].cached_tokens};
}

WorkerTable::Choice WorkerTable::ChoosePrefill(const Need& need, const Places& places,
                                               absl::Time now, ChosenWorker* chosen) {
  Found found;
  for (const auto& [key, partners] : partners_) {
    const Worker& worker = workers_.at(key);
    if (!Ready(worker, now) || worker.capacity_tokens() < need.tokens) continue;
    if (!HasIdentity(worker, need)) continue;
    const bool partner =
        std::any_of(partners.decode.begin(), partners.decode.end(), [&](const Worker* decode) {
          return Ready(*decode, now) && decode->capacity_tokens() >= need.tokens;
        });
    if (!partner) continue;
    const bool free =
        HasPlace(worker, places, need.turn, now) && !MaySendTo(partners.decode, places.awaited);
    found.Add(worker, free, IsSoonFree(worker, places, need.turn), now,
              [&] { return CandidateOf(LegKind::kPrefill, worker, need); });
  }
  std::vector<RouteCandidate>& candidates = found.Best();
  const bool busy = found.busy();
  if (candidates.empty()) return busy ? Choice::kBusy : Choice::kNone;
  FindCached(LegKind::kPrefill, need, &candidates);
  *chosen = Pick(LegKind::kPrefill, need, candidates);
  return Choice::kTaken;
}

WorkerTable::Choice WorkerTable::ChooseColocated(const Need& need, const Places& places,
                                                 absl::Time now, ChosenWorker* chosen) {
  Found found;
  for (const auto& [key, worker] : workers_) {
    if (worker.prefill() || !Ready(worker, now) || worker.capacity_tokens() < need.tokens ||
        !HasIdentity(worker, need)) {
      continue;
    }
    const bool free = HasPlace(worker, places, need.turn, now) && !places.awaited.contains(key);
    found.Add(worker, free, IsSoonFree(worker, places, need.turn), now,
              [&] { return CandidateOf(LegKind::kColocated, worker, need); });
  }
  std::vector<RouteCandidate>& candidates = found.Best();
  const bool busy = found.busy();
  if (candidates.empty()) return busy ? Choice::kBusy : Choice::kNone;
  FindCached(LegKind::kColocated, need, &candidates);
  if (places.uncached < std::numeric_limits<uint64_t>::max()) {
    std::erase_if(candidates, [&](const RouteCandidate& one) {
      return static_cast<uint64_t>(need.prompt_tokens) - one.cached_tokens > places.uncached ||
             !one.has_room || (one.max_batch > 0 && one.sequences >= one.max_batch);
    });
  }
  if (candidates.empty()) return busy ? Choice::kBusy : Choice::kNone;
  *chosen = Pick(LegKind::kColocated, need, candidates);
  return Choice::kTaken;
}

bool WorkerTable::AnyPlace(Role role, const std::set<ModelIdentity>& identities,
                           const Places& places, uint64_t turn, absl::Time now) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const auto& [key, worker] = entry;
    if (worker.prefill() != (role == Role::kPrefill) || !Ready(worker, now) ||
        !HasPlace(worker, places, turn, now) || !IsSoonFree(worker, places, turn) ||
        !identities.contains(worker.identity)) {
      return false;
    }
    if (!worker.prefill()) return !places.awaited.contains(key);
    const auto partners = partners_.find(key);
    return partners != partners_.end() && !MaySendTo(partners->second.decode, places.awaited);
  });
}

WorkerTable::Duties WorkerTable::DutiesOf(const std::optional<ModelIdentity>& identity,
                                          ServingMode mode, absl::Time now) const {
  Duties duties;
  int queues[2] = {}, full = 0;
  for (const auto& [key, worker] : workers_) {
    if (worker.identity != identity || !Ready(worker, now) || worker.health.ejected()) continue;
    ++(worker.prefill() ? duties.prefill : duties.decode);
    queues[worker.prefill()] += worker.prompts >= 2;
    const uint64_t batch = worker.registration.max_batch();
    full += !worker.prefill() && batch > 0 && static_cast<uint64_t>(worker.legs) >= batch;
  }
  const bool at_prefill = mode != ServingMode::kColocated && duties.prefill > 0;
  const int computing = at_prefill ? duties.prefill : duties.decode;
  duties.prompts_queue = computing > 0 && queues[at_prefill] == computing;
  duties.batches_full = duties.decode > 0 && full == duties.decode;
  return duties;
}

uint64_t WorkerTable::WaitingPromptTokens() const {
  uint64_t tokens = 0;
  for (const auto& [key, worker] : workers_) tokens += worker.prompt_tokens;
  return tokens;
}

uint64_t WorkerTable::WaitingPromptTokensBefore(uint64_t turn) const {
  double sum = 0;
  for (const auto& [key, worker] : workers_) {
    uint64_t before = 0, all = 0;
    for (const auto& [other, tokens] : worker.turns) {
      all += tokens;
      if (other <= turn) before += tokens;
    }
    // The tokens in `turns` are without the cached ones.
    if (all > 0) {
      sum += static_cast<double>(worker.prompt_tokens) * static_cast<double>(before) /
             static_cast<double>(all);
    }
  }
  return static_cast<uint64_t>(sum);
}

bool WorkerTable::MayEject(const Worker& worker, absl::Time now) const {
  int ready = 0, ejected = 0;
  for (const auto& [key, other] : workers_) {
    if (other.prefill() != worker.prefill() || other.identity != worker.identity ||
        !Ready(other, now)) {
      continue;
    }
    ++ready;
    ejected += other.health.ejected() && key != worker.name.key;
  }
  return ejected + 1 < ready && ejected + 1 <= (ready + 1) / 2;
}

bool WorkerTable::Dead(WorkerKey key, absl::Time now) const {
  const auto found = workers_.find(key);
  return found == workers_.end() || !Ready(found->second, now);
}

std::vector<Worker*> WorkerTable::PartnersFor(const Worker& prefill, const Need& need,
                                              absl::Time now) const {
  std::vector<Worker*> partners;
  const auto found = partners_.find(prefill.name.key);
  if (found == partners_.end()) return partners;
  for (Worker* worker : found->second.decode) {
    if (Ready(*worker, now) && worker->capacity_tokens() >= need.tokens) partners.push_back(worker);
  }
  return partners;
}

ChosenWorker WorkerTable::ChooseDecode(const Worker& prefill, const Need& need,
                                       const std::vector<WorkerKey>& refused_by, absl::Time now,
                                       int* partners) {
  const std::vector<Worker*> all = PartnersFor(prefill, need, now);
  *partners = static_cast<int>(all.size());
  Found found;
  for (const Worker* worker : all) {
    // A worker in use that is full now still keeps the ticket from ejected ones.
    const bool free =
        std::find(refused_by.begin(), refused_by.end(), worker->name.key) == refused_by.end();
    found.Add(*worker, free, /*soon_free=*/true, now,
              [&] { return CandidateOf(LegKind::kDecode, *worker, need); });
  }
  std::vector<RouteCandidate>& candidates = found.Best();
  if (candidates.empty()) return {};
  FindCached(LegKind::kDecode, need, &candidates);
  return Pick(LegKind::kDecode, need, candidates);
}

std::string WorkerTable::LinkName(const Worker& decode, WorkerEpoch prefill_epoch) {
  for (const v1::PeerLink& link : decode.load.links()) {
    if (link.epoch() == prefill_epoch) return link.link();
  }
  return "";
}

std::vector<std::pair<AttachKey, v1::Peers>> WorkerTable::ChangedPeers(bool pairs_wanted) {
  std::vector<std::pair<AttachKey, v1::Peers>> changed;
  for (auto& [key, worker] : workers_) {
    if (worker.attach == 0) continue;
    // A peer that has lost only its Attach stream stays in the list until its record is removed,
    // because pulls from it go on.
    v1::Peers peers;
    for (const auto& [other_key, other] : workers_) {
      if (other.replaced || !Compatible(worker, other)) continue;
      v1::Peer* peer = peers.add_peers();
      peer->set_epoch(other.name.epoch);
      peer->set_address(other.name.address);
      peer->set_kv_address(other.registration.kv_address());
    }
    peers.set_none_fits(pairs_wanted && peers.peers().empty() && !WithoutPartner(worker).empty());
    if (worker.ever_told && peers.SerializeAsString() == worker.told.SerializeAsString()) continue;
    worker.ever_told = true;
    worker.told = peers;
    changed.emplace_back(worker.attach, std::move(peers));
  }
  return changed;
}

WorkerTable::Use WorkerTable::UseOf(const Worker& worker,
                                    const std::optional<ModelIdentity>& served,
                                    ServingMode mode) const {
  if (worker.identity != served) return Use::kOtherIdentity;
  const bool alone = !worker.prefill() && mode != ServingMode::kDisaggregated;
  if (!alone && !paired_.contains(worker.name.key)) return Use::kNoPartner;
  return worker.health.ejected() ? Use::kEjected : Use::kUsed;
}

void WorkerTable::CountStates(const std::optional<ModelIdentity>& served, ServingMode mode,
                              absl::Time now, RequestMetrics* metrics) const {
  int states[2][std::size(RequestMetrics::kWorkerStates)] = {};
  int unused[2][std::size(RequestMetrics::kUnusedReasons)] = {};
  for (const auto& [key, worker] : workers_) {
    const bool lost = worker.attach == 0 || worker.replaced || Stale(worker, now);
    ++states[worker.prefill()][lost                      ? RequestMetrics::kLost
                               : worker.load.draining()  ? RequestMetrics::kDraining
                               : worker.health.ejected() ? RequestMetrics::kEjected
                                                         : RequestMetrics::kReady];
    if (!Ready(worker, now)) continue;
    const Use use = UseOf(worker, served, mode);
    if (use == Use::kOtherIdentity) ++unused[worker.prefill()][RequestMetrics::kOtherIdentity];
    if (use == Use::kNoPartner) ++unused[worker.prefill()][RequestMetrics::kNoPartner];
  }
  for (size_t state = 0; state < std::size(RequestMetrics::kWorkerStates); ++state) {
    metrics->prefill_workers[state].Set(states[true][state]);
    metrics->decode_workers[state].Set(states[false][state]);
  }
  for (size_t reason = 0; reason < std::size(RequestMetrics::kUnusedReasons); ++reason) {
    metrics->unused_prefill[reason].Set(unused[true][reason]);
    metrics->unused_decode[reason].Set(unused[false][reason]);
  }
}

}  // namespace baton
