#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "router/router_core_parts.h"

// The identity that the router serves, the one that each request keeps, and what is said of workers
// that have another one.
namespace baton {
namespace {

// Links are proven, and workers replaced, in less: what lasts longer is worth a warning.
constexpr absl::Duration kWarnAfter = absl::Seconds(5);
constexpr absl::Duration kWarnAgain = absl::Minutes(1);

std::string NameOf(const std::optional<ModelIdentity>& identity) {
  return identity ? identity->ToString() : "none";
}

}  // namespace

void RouterCore::Parts::ChooseIdentity(absl::Time now) {
  ServedIdentity::Offers offers;
  for (const auto& [identity, all] : workers.identities()) {
    offers[identity] = {
        .usable = all.Usable(options.mode), .decode = all.ready_decode, .attached = all.attached};
  }
  const std::optional<ModelIdentity> before = served.served(), led = served.leader();
  const bool guessed = !served.found();
  const bool changed = served.Update(offers, now);
  workers.DropIdentities(served.served());
  if (!changed) {
    if (served.leader() && served.leader() != led) {
      Log(Severity::kInfo, "identity_leads",
          {{"served", NameOf(before)},
           {"usable", offers[*before].usable},
           {"leader", NameOf(served.leader())},
           {"usable_of_leader", offers[*served.leader()].usable},
           {"changes_in", absl::FormatDuration(served.ChangesAt() - now)}});
    }
    return;
  }
  const int usable = offers[*served.served()].usable;
  if (guessed) {
    Log(Severity::kInfo, "identity", {{"served", NameOf(served.served())}, {"usable", usable}});
  } else {
    ++counters.identity_changes;
    Log(Severity::kWarning, "identity_changed",
        {{"from", NameOf(before)},
         {"usable_before", offers[*before].usable},
         {"to", NameOf(served.served())},
         {"usable", usable}});
  }
  // Requests that have not begun are checked against what the new workers take.
  for (const RequestKey key : fresh) {
    Request& request = requests.at(key);
    if (request.identity) continue;
    request.sized = false;
    request.checked.sampling.max_tokens = request.asked_max_tokens;
  }
}

const std::optional<ModelIdentity>& RouterCore::Parts::IdentityFor(const Request& request) const {
  return request.identity ? request.identity : served.served();
}

std::string RouterCore::Parts::Missing(const Need& need, bool pair, bool begun,
                                       absl::Time now) const {
  std::string why = workers.Missing(need, pair, begun, now);
  if (begun) return why;
  const FixedIdentity& fixed = served.fixed();
  for (const auto& [identity, all] : workers.identities()) {
    if (fixed.Allows(identity) || all.attached == 0) continue;
    absl::StrAppend(&why, "; --serve-identity is ", fixed.ToString());
    break;
  }
  if (const auto& leader = served.leader()) {
    absl::StrAppend(&why, "; identity ", leader->ToString(), " will be served once it has led for ",
                    absl::FormatDuration(options.identity_lead));
  }
  return why;
}

void RouterCore::Parts::Bind(Request& request, const ModelIdentity& identity) {
  if (!request.identity) {
    for (Request* one : RequestsOf(request.client())) {
      one->identity = identity;
      ++bound[identity];
    }
  }
  BATON_CHECK(request.identity == identity)
      << "request " << request.key << " began with " << request.identity->ToString()
      << " and was given to a worker with " << identity.ToString();
}

void RouterCore::Parts::Unbind(const Request& request) {
  if (!request.identity) return;
  const auto found = bound.find(*request.identity);
  if (--found->second == 0) bound.erase(found);
}

void RouterCore::Parts::WatchUnused(const ServingChanged& serving, absl::Time now) {
  std::string text = draining          ? ""
                     : serving.serving ? absl::StrJoin(serving.unused, "; ")
                                       : serving.why;
  if (text == unused) return;
  unused = std::move(text);
  warn_at = unused.empty() ? absl::InfiniteFuture() : now + kWarnAfter;
}

void RouterCore::Parts::WarnOfUnused(absl::Time now) {
  const bool serves = serving && serving->serving;
  if (serves) {
    Log(Severity::kWarning, "workers_not_used", {{"why", unused}});
  } else {
    Log(Severity::kWarning, "cannot_serve",
        {{"why", unused}, {"requests_waiting", fresh.size() + again.size()}});
  }
  warn_at = serves ? absl::InfiniteFuture() : now + kWarnAgain;
}

}  // namespace baton
