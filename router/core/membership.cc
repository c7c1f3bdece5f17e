#include "router/core/membership.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "router/core/request.h"

namespace baton {
namespace {

// Time for which a problem must last before it is logged as a warning. Tests of links between
// workers, and the replacement of a worker, take less time and cause no warning.
constexpr absl::Duration kWarnAfter = absl::Seconds(5);
constexpr absl::Duration kWarnAgain = absl::Minutes(1);

std::string NameOf(const std::optional<ModelIdentity>& identity) {
  return identity ? identity->ToString() : "none";
}

std::unique_ptr<RoutingPolicy> CreatePolicy(const RouterCoreOptions& options) {
  if (options.new_policy) return options.new_policy(options.policy_seed);
  return CreateRoutingPolicy(options.policy, options.policy_seed);
}

bool WantsPair(ServingMode mode) { return mode == ServingMode::kDisaggregated; }

}  // namespace

Membership::Membership(CoreContext* core)
    : core_(core),
      caches_(core),
      // Ends before the requests that came when the worker left stop waiting for it, so that those
      // of them that need no such worker can still be answered.
      workers_(core->options.report_limit, core->options.pair_wait * 3 / 4,
               CreatePolicy(core->options), &caches_),
      served_(core->options.serve_identity, core->options.identity_lead) {}

const Worker* Membership::Attach(const WorkerAttached& event, std::vector<WorkerKey>* replaced) {
  std::vector<AttachKey> closed;
  const absl::StatusOr<Worker*> worker = workers_.Attach(
      event.attach, event.registration, core_->options.model_name, core_->now, replaced, &closed);
  if (!worker.ok()) {
    core_->actions.push_back(CloseAttach{event.attach, worker.status()});
    return nullptr;
  }
  for (const AttachKey attach : closed) {
    core_->actions.push_back(CloseAttach{
        attach,
        absl::AbortedError(absl::StrCat("worker ", (*worker)->name.address, " attached again"))});
  }
  if (!replaced->empty()) forget_at_ = core_->now;
  if (const std::string why = workers_.WithoutPartner(**worker); !why.empty()) {
    Log(Severity::kWarning, "worker_without_partner",
        {{"worker", (*worker)->name.address}, {"why", why}});
  }
  return *worker;
}

void Membership::WarnOfIdentity(const Worker& worker) const {
  if (worker.identity == served()) return;
  Log(Severity::kWarning, "worker_of_other_identity",
      {{"worker", worker.name.address},
       {"identity", worker.identity.ToString()},
       {"served", served() ? served()->ToString() : served_.fixed().ToString()}});
}

bool Membership::Detach(AttachKey attach) {
  if (workers_.Detach(attach, core_->now) == nullptr) return false;
  ForgetAt(core_->now + core_->options.forget_after);
  return true;
}

void Membership::Cached(WorkerCached event) {
  const Worker* worker = workers_.Heard(event.attach, core_->now);
  if (worker == nullptr) return;
  const absl::Status taken = caches_.Take(event.attach, worker->name.key, std::move(event.changes));
  if (!taken.ok()) core_->actions.push_back(CloseAttach{event.attach, taken});
}

void Membership::Excuse(absl::Duration by) {
  workers_.Excuse(by, core_->now);
  served_.Excuse(by, core_->now);
}

void Membership::Drain() {
  draining_ = true;
  serving_due_ = true;
}

bool Membership::Refresh() {
  const bool smaller = workers_.RefreshPairs(core_->now);
  ServedIdentity::Offers offers;
  for (const auto& [identity, all] : workers_.identities()) {
    offers[identity] = {.usable = all.Usable(core_->options.mode),
                        .decode = all.ready_decode,
                        .attached = all.attached};
  }
  const std::optional<ModelIdentity> before = served(), led = served_.leader();
  const bool guessed = !served_.found();
  const bool changed = served_.Update(offers, core_->now);
  workers_.DropIdentities(served());
  stale_at_ = workers_.StaleAt(core_->now);
  peers_due_ = serving_due_ = true;
  if (!changed) {
    if (served_.leader() && served_.leader() != led) {
      Log(Severity::kInfo, "identity_leads",
          {{"served", NameOf(before)},
           {"usable", offers[*before].usable},
           {"leader", NameOf(served_.leader())},
           {"usable_of_leader", offers[*served_.leader()].usable},
           {"changes_in", absl::FormatDuration(served_.ChangesAt() - core_->now)}});
    }
    return smaller;
  }
  const int usable = offers[*served()].usable;
  if (guessed) {
    Log(Severity::kInfo, "identity", {{"served", NameOf(served())}, {"usable", usable}});
  } else {
    ++core_->counters.identity_changes;
    Log(Severity::kWarning, "identity_changed",
        {{"from", NameOf(before)},
         {"usable_before", offers[*before].usable},
         {"to", NameOf(served())},
         {"usable", usable}});
  }
  return true;
}

bool Membership::RefreshDue() const {
  return core_->now >= stale_at_ || core_->now >= served_.ChangesAt();
}

void Membership::Forget() {
  if (core_->now < forget_at_) return;
  for (const WorkerKey key : workers_.Forget(core_->now, core_->options.forget_after)) {
    core_->actions.push_back(DropWorker{key});
    caches_.Remove(key);
    peers_due_ = serving_due_ = true;
  }
  forget_at_ = workers_.ForgetAt(core_->options.forget_after);
}

void Membership::Tell(size_t waiting) {
  if (std::exchange(peers_due_, false)) {
    const bool pairs_wanted = core_->options.mode != ServingMode::kColocated;
    for (auto& [attach, peers] : workers_.ChangedPeers(pairs_wanted)) {
      core_->actions.push_back(SendPeers{attach, std::move(peers)});
    }
  }
  if (std::exchange(serving_due_, false) || core_->now >= errors_at_) {
    workers_.CountStates(served(), core_->options.mode, core_->now, core_->metrics);
    ServingChanged serving = Serving();
    WatchUnused(serving);
    errors_at_ = serving.failing.empty() ? absl::InfiniteFuture() : core_->now + ErrorRate::kStep;
    if (!told_ || !(*told_ == serving)) {
      told_ = serving;
      core_->actions.push_back(std::move(serving));
    }
  }
  if (core_->now >= warn_at_) WarnOfUnused(waiting);
}

absl::Time Membership::NextWake() const {
  if (peers_due_ || serving_due_) return absl::InfinitePast();
  return std::min({stale_at_, forget_at_, warn_at_, errors_at_, served_.ChangesAt()});
}

const std::optional<ModelIdentity>& Membership::IdentityFor(const Request& request) const {
  return request.identity ? request.identity : served();
}

Need Membership::NeedOf(const Request& request) const {
  const CheckedRequest& checked = request.checked;
  const int64_t prompt = static_cast<int64_t>(checked.prompt.size());
  return {
      .tokens = prompt + std::max(1, request.max_tokens),
      .identity = IdentityFor(request),
      .avoid = &request.failed_by,
      .prompt_tokens = prompt + static_cast<int64_t>(request.answer.tokens().size()),
      .turn = request.queue.turn,
      .block_names = request.may_find_cached_kv() ? checked.block_names.get() : nullptr,
      .siblings = checked.prefix_cache ? request.siblings : decltype(request.siblings){},
  };
}

int64_t Membership::CapacityFor(const Request& request) const {
  const IdentityWorkers& all = workers_.WorkersOf(IdentityFor(request));
  return WantsPair(request.checked.mode) ? all.pair_capacity_tokens : all.decode_capacity_tokens;
}

bool Membership::Servable(const Request& request) const {
  const IdentityWorkers& all = workers_.WorkersOf(IdentityFor(request));
  return (WantsPair(request.checked.mode) ? all.pairs : all.ready_decode) > 0;
}

std::string Membership::MissingFor(const Request& request) const {
  return Missing(NeedOf(request), WantsPair(request.checked.mode), request.identity.has_value());
}

std::string Membership::Missing(const Need& need, bool pair, bool begun) const {
  std::string why = workers_.Missing(need, pair, begun, core_->now);
  if (begun) return why;
  const FixedIdentity& fixed = served_.fixed();
  for (const auto& [identity, all] : workers_.identities()) {
    if (fixed.Allows(identity) || all.attached == 0) continue;
    absl::StrAppend(&why, "; --serve-identity is ", fixed.ToString());
    break;
  }
  if (const auto& leader = served_.leader()) {
    absl::StrAppend(&why, "; identity ", leader->ToString(),
                    " will be served once it has had the most usable workers for ",
                    absl::FormatDuration(core_->options.identity_lead));
  }
  return why;
}

ServingChanged Membership::Serving() const {
  const IdentityWorkers& all = workers_.WorkersOf(served());
  const bool pairs = WantsPair(core_->options.mode);
  ServingChanged serving;
  serving.serving = !draining_ && (pairs ? all.pairs : all.ready_decode) > 0;
  if (served()) {
    serving.identity = *served();
    workers_.CommonLayout(*served(), core_->now, &serving.layout_fingerprint,
                          &serving.block_tokens);
  }
  serving.prefill_workers = static_cast<uint32_t>(all.paired_prefill);
  serving.decode_workers = static_cast<uint32_t>(pairs ? all.paired_decode : all.ready_decode);
  for (const auto& [identity, of_it] : workers_.identities()) {
    serving.ready_prefill_workers += static_cast<uint32_t>(of_it.ready_prefill);
    serving.ready_decode_workers += static_cast<uint32_t>(of_it.ready_decode);
  }
  serving.context_tokens =
      static_cast<int>(pairs ? all.pair_capacity_tokens : all.decode_capacity_tokens);
  serving.failing = workers_.Failing(core_->now);
  serving.why.clear();
  if (serving.serving) {
    serving.unused = workers_.Unused(served(), core_->options.mode, core_->now);
  } else if (draining_) {
    serving.why = "the router is draining: it takes no new requests";
  } else {
    serving.why = Missing({.tokens = 1, .identity = served()}, pairs, /*begun=*/false);
  }
  return serving;
}

void Membership::WatchUnused(const ServingChanged& serving) {
  std::string text = draining_         ? ""
                     : serving.serving ? absl::StrJoin(serving.unused, "; ")
                                       : serving.why;
  if (text == unused_) return;
  unused_ = std::move(text);
  warn_at_ = unused_.empty() ? absl::InfiniteFuture() : core_->now + kWarnAfter;
}

void Membership::WarnOfUnused(size_t waiting) {
  const bool serves = told_ && told_->serving;
  if (serves) {
    Log(Severity::kWarning, "workers_not_used", {{"why", unused_}});
  } else {
    Log(Severity::kWarning, "cannot_serve", {{"why", unused_}, {"requests_waiting", waiting}});
  }
  warn_at_ = serves ? absl::InfiniteFuture() : core_->now + kWarnAgain;
}

}  // namespace baton
