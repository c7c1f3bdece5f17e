#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "router/core/model_identity.h"

namespace baton {

// An identity that an operator has chosen. An empty field leaves that part of the choice open.
struct FixedIdentity {
  std::string fingerprint;
  std::string numerics_id;

  // True if the fields that are set are equal to those of `identity`.
  bool Allows(const ModelIdentity& identity) const {
    return (fingerprint.empty() || fingerprint == identity.fingerprint) &&
           (numerics_id.empty() || numerics_id == identity.numerics_id);
  }
  // Returns FINGERPRINT, FINGERPRINT/NUMERICS, or an empty string.
  std::string ToString() const {
    return numerics_id.empty() ? fingerprint : absl::StrCat(fingerprint, "/", numerics_id);
  }
};

// Reads the value of --serve-identity: "", FINGERPRINT or FINGERPRINT/NUMERICS, where FINGERPRINT
// is 16 hexadecimal digits. Returns InvalidArgument, with the text, for anything else. Any thread.
absl::StatusOr<FixedIdentity> ParseFixedIdentity(absl::string_view text);

// Decides which identity a router serves: the one with the most usable workers. If two have equally
// many, the present identity stays. The identity changes only after another one has led, without a
// break, for `lead_time`, so that a rollout from one model to another changes it once. Until a
// worker is usable, the router names the identity that is most likely to get a usable worker. This
// choice may change at any time. Part of RouterCore: runs on its thread and reads no clock.
class ServedIdentity {
 public:
  // Numbers of attached workers of one identity.
  struct Offer {
    // Workers that are usable in the router's mode. The identity with the most of these is served.
    int usable = 0;
    // Number of ready decode workers. While no identity has a usable worker, the router names the
    // identity with the most ready decode workers as the served one.
    int decode = 0;
    // Attached workers of either role. If there is no usable worker and no ready decode worker, the
    // router names the identity with the most attached workers.
    int attached = 0;
  };
  using Offers = std::map<ModelIdentity, Offer>;

  ServedIdentity(FixedIdentity fixed, absl::Duration lead_time);

  // Takes the present numbers of workers. Returns true if served() has changed.
  bool Update(const Offers& offers, absl::Time now);
  // Notes that the router was not running during the time `by`. This time does not count towards
  // `lead_time`, for which an identity must have the most usable workers before it is served.
  void Excuse(absl::Duration by, absl::Time now);

  // Identity that is served. Nothing until a worker has attached with an identity that the
  // operator's choice (FixedIdentity) allows. If the operator has fixed both fields, it is set from
  // the start.
  const std::optional<ModelIdentity>& served() const { return served_; }
  // True once the served identity has had a usable worker. Before that, served() is the identity
  // that is most likely to get one.
  bool found() const { return found_; }
  const FixedIdentity& fixed() const { return fixed_; }
  // Identity that has more usable workers than the served one; nothing if none has. At ChangesAt()
  // it replaces the served identity, unless the numbers of workers have changed.
  const std::optional<ModelIdentity>& leader() const { return leader_; }
  // Time from which the router will serve leader(). InfiniteFuture if no identity has more usable
  // workers than the served one.
  absl::Time ChangesAt() const;

 private:
  bool Guess(const Offers& offers);

  const FixedIdentity fixed_;
  const absl::Duration lead_time_;
  std::optional<ModelIdentity> served_;
  bool found_ = false;
  std::optional<ModelIdentity> leader_;
  absl::Time leads_since_;  // Meaningful if leader_ is set.
};

}  // namespace baton
