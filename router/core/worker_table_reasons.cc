#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "router/core/worker_table.h"

// WorkerTable's sentences on workers that can't be used, for people who read logs and statuses.
namespace baton {
namespace {

absl::string_view RoleOf(const Worker& worker) { return worker.prefill() ? "prefill" : "decode"; }

// Returns the type of the KV cache. Both the layout fingerprint and the numerics id end with it.
absl::string_view KvTypeOf(absl::string_view layout) {
  const size_t slash = layout.rfind('/');
  return slash == layout.npos ? "" : layout.substr(slash + 1);
}
// Returns the backend and its summation order: the numerics id without the type of the KV cache.
absl::string_view SumsOf(absl::string_view numerics_id) {
  return numerics_id.substr(0, numerics_id.rfind('/'));
}

// Says what makes two workers of different roles incompatible, and which flags would make them fit.
std::string Differences(const Worker& a, const Worker& b) {
  const v1::Registration& x = a.registration;
  const v1::Registration& y = b.registration;
  std::vector<std::string> what, same;
  const auto compare = [&](absl::string_view name, const auto& one, const auto& other,
                           absl::string_view same_flag) {
    if (one == other) return;
    what.push_back(absl::StrCat(name, " ", one, " and ", other));
    if (!same_flag.empty()) same.emplace_back(same_flag);
  };
  compare("protocol", x.protocol_version(), y.protocol_version(), "version of Baton");
  compare("model", x.model_fingerprint(), y.model_fingerprint(), "--model");
  const size_t before_layout = what.size();
  compare("--block-tokens", x.block_tokens(), y.block_tokens(), "--block-tokens");
  compare("--kv-type", KvTypeOf(x.layout_fingerprint()), KvTypeOf(y.layout_fingerprint()),
          "--kv-type");
  if (what.size() == before_layout) {  // No flag changes the rest of the layout.
    compare("layout", x.layout_fingerprint(), y.layout_fingerprint(), "");
  }
  std::string advice;
  if (what.empty() || SumsOf(x.numerics_id()) != SumsOf(y.numerics_id())) {
    const bool on_cpu =
        absl::StartsWith(x.numerics_id(), "cpu-") && absl::StartsWith(y.numerics_id(), "cpu-");
    compare("numerics", x.numerics_id(), y.numerics_id(), on_cpu ? "" : "--backend");
    if (on_cpu) advice = "; give both --numerics portable";
  }
  if (!same.empty()) {
    advice = absl::StrCat("; give both the same ", absl::StrJoin(same, ", "), advice);
  }
  return absl::StrCat(RoleOf(a), " worker ", a.name.address, " and ", RoleOf(b), " worker ",
                      b.name.address, " have ", absl::StrJoin(what, ", "), advice);
}

// Numbers of workers, by role.
struct Counts {
  int prefill = 0, decode = 0;
  void Add(const Worker& worker) { ++(worker.prefill() ? prefill : decode); }
  std::string ToString() const { return absl::StrCat(prefill, " prefill and ", decode, " decode"); }
};

}  // namespace

std::string WorkerTable::WithoutPartner(const Worker& worker) const {
  std::string why;
  for (const auto& [key, other] : workers_) {
    if (other.attach == 0 || other.replaced || other.prefill() == worker.prefill()) continue;
    if (Compatible(worker, other)) return "";
    if (why.empty()) why = Differences(worker, other);
  }
  return why;
}

std::string WorkerTable::Missing(const Need& need, bool pair, bool begun, absl::Time now) const {
  Counts attached, ready, own;
  std::map<ModelIdentity, Counts> others;
  int pairs = 0;  // Pairs of any identity.
  for (const auto& [key, worker] : workers_) {
    if (worker.attach == 0 || worker.replaced || (worker.prefill() && !pair)) continue;
    attached.Add(worker);
    if (!Ready(worker, now)) continue;
    ready.Add(worker);
    if (worker.identity != need.identity) {
      others[worker.identity].Add(worker);
      continue;
    }
    own.Add(worker);
  }
  for (const auto& [identity, workers] : identities_) pairs += workers.pairs;

  const auto none_ready = [this](int workers, absl::string_view role) {
    return absl::StrFormat("none of %d %s workers is ready (draining, or no load report for %s)",
                           workers, role, absl::FormatDuration(report_limit_));
  };
  if (pair && attached.prefill == 0 && attached.decode == 0) return "no worker is attached";
  if (pair && attached.prefill == 0) return "no prefill worker is attached";
  if (attached.decode == 0) return "no decode worker is attached";
  if (pair && ready.prefill == 0) return none_ready(attached.prefill, "prefill");
  if (ready.decode == 0) return none_ready(attached.decode, "decode");

  if (pair && pairs == 0 && !begun) {
    std::string why;
    for (const auto& [key, prefill] : workers_) {
      if (!prefill.prefill() || !Ready(prefill, now)) continue;
      if (why.empty()) why = WithoutPartner(prefill);
      for (const auto& [other_key, decode] : workers_) {
        if (!Ready(decode, now) || !Compatible(prefill, decode)) continue;
        // These two workers fit each other, but their link is not proven yet. That takes a moment,
        // so most often nothing is wrong. This reason is more useful than one about workers that do
        // not fit.
        return absl::StrCat("prefill worker ", prefill.name.address, " and decode worker ",
                            decode.name.address,
                            " fit, and the decode worker is still proving its KV link to the "
                            "prefill worker; if that takes longer than a few seconds, the decode "
                            "worker's log says why (kv_link_down, kv_peer_cannot_be_connected)");
      }
    }
    return absl::StrCat("of ", ready.ToString(),
                        " workers no two have the same protocol, model, layout and numerics",
                        why.empty() ? "" : ": ", why);
  }
  std::string whose = "the identity that this router may serve";
  if (need.identity) {
    whose = absl::StrCat("identity ", need.identity->ToString(), ", which ",
                         begun ? "this answer was begun with" : "this router serves");
  }
  if ((pair && own.prefill == 0) || own.decode == 0) {
    std::vector<std::string> theirs;
    for (const auto& [identity, counts] : others) {
      theirs.push_back(
          absl::StrCat(pair ? counts.ToString() : absl::StrCat(counts.decode, " decode"), " with ",
                       identity.ToString()));
    }
    return absl::StrCat("no ", pair && own.prefill == 0 ? "prefill" : "decode",
                        " worker is ready with ", whose, "; ready are ",
                        absl::StrJoin(theirs, ", "));
  }
  if (pair && WorkersOf(need.identity).pairs == 0) {
    return absl::StrCat("of ", own.ToString(), " workers with ", whose,
                        ", no two have the same KV layout and a proven link");
  }
  return absl::StrCat("no ", pair ? "pair of workers" : "decode worker", " with ", whose,
                      ", has room for ", need.tokens, " tokens");
}

std::vector<std::string> WorkerTable::Unused(const std::optional<ModelIdentity>& served,
                                             ServingMode mode, absl::Time now) const {
  std::vector<std::string> sentences;
  size_t more = 0;
  for (const auto& [key, worker] : workers_) {
    if (!Ready(worker, now)) continue;
    const Use use = UseOf(worker, served, mode);
    if (use == Use::kUsed) continue;
    if (sentences.size() == kMaxUnused) {
      ++more;
      continue;
    }
    std::string why;
    if (use == Use::kOtherIdentity) {
      why = absl::StrCat("it has identity ", worker.identity.ToString());
    } else if (use == Use::kEjected) {
      why = "it failed several requests in a row";
    } else {
      why = WithoutPartner(worker);
      if (why.empty()) {
        why = absl::StrCat("no ", worker.prefill() ? "decode" : "prefill",
                           " worker that fits is ready and has a proven link with it");
      }
    }
    sentences.push_back(
        absl::StrCat(RoleOf(worker), " worker ", worker.name.address, " is not used: ", why));
  }
  if (more > 0) sentences.push_back(absl::StrCat(more, " more ready workers are not used"));
  return sentences;
}

std::vector<std::string> WorkerTable::Failing(absl::Time now) const {
  std::vector<std::pair<ErrorRate::Counts, const Worker*>> failing;
  for (const auto& [key, worker] : workers_) {
    const ErrorRate::Counts counts = worker.errors.LastMinute(now);
    if (counts.failed > 0 && Ready(worker, now)) failing.emplace_back(counts, &worker);
  }
  std::stable_sort(failing.begin(), failing.end(),
                   [](const auto& a, const auto& b) { return a.first.failed > b.first.failed; });
  if (failing.size() > kMaxUnused) failing.resize(kMaxUnused);
  std::vector<std::string> sentences;
  for (const auto& [counts, worker] : failing) {
    sentences.push_back(absl::StrCat(RoleOf(*worker), " worker ", worker->name.address, " failed ",
                                     counts.failed, " of ", counts.requests,
                                     " requests in the last minute"));
  }
  return sentences;
}

}  // namespace baton
