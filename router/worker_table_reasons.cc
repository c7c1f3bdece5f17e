#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "router/worker_table.h"

// What WorkerTable says about workers that can't be used, for people who read logs and statuses.
namespace baton {
namespace {

absl::string_view RoleOf(const Worker& worker) { return worker.prefill() ? "prefill" : "decode"; }

// What keeps two workers of different roles apart.
std::string Differences(const Worker& a, const Worker& b) {
  const v1::Registration& x = a.registration;
  const v1::Registration& y = b.registration;
  std::vector<std::string> what;
  const auto compare = [&what](absl::string_view name, const auto& one, const auto& other) {
    if (one != other) what.push_back(absl::StrCat(name, " ", one, " and ", other));
  };
  compare("protocol", x.protocol_version(), y.protocol_version());
  compare("model", x.model_fingerprint(), y.model_fingerprint());
  compare("layout", x.layout_fingerprint(), y.layout_fingerprint());
  compare("numerics", x.numerics_id(), y.numerics_id());
  return absl::StrCat(RoleOf(a), " worker ", a.name.address, " and ", RoleOf(b), " worker ",
                      b.name.address, " have ", absl::StrJoin(what, ", "));
}

// How many workers of each role there are, of all that some condition holds for.
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
  int pairs = 0;  // of any identity
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
    // Two that fit and have no link explain more than two that differ.
    std::string why;
    bool fit = false;
    for (const auto& [key, prefill] : workers_) {
      if (fit || !prefill.prefill() || !Ready(prefill, now)) continue;
      if (why.empty()) why = WithoutPartner(prefill);
      for (const auto& [other_key, decode] : workers_) {
        if (!Ready(decode, now) || !Compatible(prefill, decode)) continue;
        fit = true;
        why = absl::StrCat(
            "prefill worker ", prefill.name.address, " and decode worker ", decode.name.address,
            " fit, and the decode worker has not proven its KV link to the other; its log says why "
            "(kv_link_down, kv_peer_cannot_be_connected)");
        break;
      }
    }
    return absl::StrCat("of ", ready.ToString(),
                        " workers no two have the same protocol, model, layout and numerics and a "
                        "proven link",
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
                                             v1::ServingMode mode, absl::Time now) const {
  std::vector<std::string> sentences;
  size_t more = 0;
  for (const auto& [key, worker] : workers_) {
    if (!Ready(worker, now)) continue;
    const Use use = UseOf(worker, served, mode);
    if (use == Use::kUsed) continue;
    if (sentences.size() == kMostUnused) {
      ++more;
      continue;
    }
    std::string why;
    if (use == Use::kOtherIdentity) {
      why = absl::StrCat("it has identity ", worker.identity.ToString());
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

}  // namespace baton
