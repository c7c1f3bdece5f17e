#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "router/core/model_identity.h"

namespace baton {

// An identity that an operator has chosen. An empty field leaves the choice open.
struct FixedIdentity {
  std::string fingerprint;
  std::string numerics_id;

  bool Allows(const ModelIdentity& identity) const {
    return (fingerprint.empty() || fingerprint == identity.fingerprint) &&
           (numerics_id.empty() || numerics_id == identity.numerics_id);
  }
  // FINGERPRINT, FINGERPRINT/NUMERICS, or nothing.
  std::string ToString() const {
    return numerics_id.empty() ? fingerprint : absl::StrCat(fingerprint, "/", numerics_id);
  }
};

// Reads the value of --serve-identity: "", FINGERPRINT or FINGERPRINT/NUMERICS, where FINGERPRINT
// is 16 hexadecimal digits. InvalidArgument says what is wrong with it.
absl::StatusOr<FixedIdentity> ParseFixedIdentity(absl::string_view text);

// Decides which identity a router serves: the one with the most usable workers. A tie keeps the
// present one. The identity changes only after another one has led, without a break, for
// `lead_time`, so that a rollout from one model to another changes it once. Until the first
// identity with a usable worker is found, the best guess is served and may change at once. Plain
// state of RouterCore: no clock.
class ServedIdentity {
 public:
  // What the attached workers of one identity make.
  struct Offer {
    int usable = 0;    // by the router's mode; these decide
    int decode = 0;    // ready decode workers; these decide the first guess while none is usable
    int attached = 0;  // workers of either role; these decide it while no decode worker is ready
  };
  using Offers = std::map<ModelIdentity, Offer>;

  ServedIdentity(FixedIdentity fixed, absl::Duration lead_time);

  // Takes what there is now. Returns true if served() has changed.
  bool Update(const Offers& offers, absl::Time now);
  // Nothing could be observed for `by`: that time does not count as a lead.
  void Excuse(absl::Duration by, absl::Time now);

  // Nothing as long as no worker that may be served has attached.
  const std::optional<ModelIdentity>& served() const { return served_; }
  // Whether served() had a usable worker at some time: until then it is a guess.
  bool found() const { return found_; }
  const FixedIdentity& fixed() const { return fixed_; }
  // The identity that leads and will be served at ChangesAt(), unless that changes before.
  const std::optional<ModelIdentity>& leader() const { return leader_; }
  // InfiniteFuture if no other identity leads.
  absl::Time ChangesAt() const;

 private:
  bool Guess(const Offers& offers);

  const FixedIdentity fixed_;
  const absl::Duration lead_time_;
  std::optional<ModelIdentity> served_;
  bool found_ = false;
  std::optional<ModelIdentity> leader_;
  absl::Time leads_since_;  // meaningful with leader_
};

}  // namespace baton
