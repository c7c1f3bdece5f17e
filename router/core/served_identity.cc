#include "router/core/served_identity.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<FixedIdentity> ParseFixedIdentity(absl::string_view text) {
  constexpr size_t kDigits = 16;
  const size_t slash = text.find('/');
  FixedIdentity fixed = {.fingerprint = std::string(text.substr(0, slash))};
  if (slash != text.npos) fixed.numerics_id = std::string(text.substr(slash + 1));
  if (text.empty()) return fixed;
  const bool hex = std::all_of(fixed.fingerprint.begin(), fixed.fingerprint.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
  });
  if (!hex || fixed.fingerprint.size() != kDigits ||
      (slash != text.npos && fixed.numerics_id.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text,
        "' is neither FINGERPRINT nor FINGERPRINT/NUMERICS, where FINGERPRINT is 16 hexadecimal "
        "digits, as `baton-client models` and the worker's metric baton_worker_info show them"));
  }
  return fixed;
}

ServedIdentity::ServedIdentity(FixedIdentity fixed, absl::Duration lead_time)
    : fixed_(std::move(fixed)), lead_time_(lead_time) {
  if (!fixed_.fingerprint.empty() && !fixed_.numerics_id.empty()) {
    served_ = ModelIdentity{fixed_.fingerprint, fixed_.numerics_id};
  }
}

bool ServedIdentity::Guess(const Offers& offers) {
  std::optional<ModelIdentity> best = served_;
  const auto rank = [&offers](const std::optional<ModelIdentity>& identity) {
    if (!identity) return std::tuple(-1, -1, -1);
    const auto found = offers.find(*identity);
    if (found == offers.end()) return std::tuple(0, 0, 0);
    return std::tuple(found->second.usable, found->second.decode, found->second.attached);
  };
  for (const auto& [identity, offer] : offers) {
    if (fixed_.Allows(identity) && rank(identity) > rank(best)) best = identity;
  }
  found_ = std::get<0>(rank(best)) > 0;
  if (best == served_) return false;
  served_ = std::move(best);
  return true;
}

bool ServedIdentity::Update(const Offers& offers, absl::Time now) {
  if (!found_) return Guess(offers);
  const auto usable = [&offers](const ModelIdentity& identity) {
    const auto found = offers.find(identity);
    return found == offers.end() ? 0 : found->second.usable;
  };
  // The leader is the identity that has more usable workers than the served one, and more than any
  // other. If several have the same number, the previous leader stays.
  std::optional<ModelIdentity> leader;
  int max = usable(*served_);
  if (leader_ && usable(*leader_) > max) {
    leader = leader_;
    max = usable(*leader_);
  }
  for (const auto& [identity, offer] : offers) {
    if (offer.usable <= max || !fixed_.Allows(identity)) continue;
    leader = identity;
    max = offer.usable;
  }
  if (leader != leader_) {
    leader_ = std::move(leader);
    leads_since_ = now;
  }
  if (now < ChangesAt()) return false;
  served_ = std::exchange(leader_, std::nullopt);
  return true;
}

void ServedIdentity::Excuse(absl::Duration by, absl::Time now) {
  if (leader_) leads_since_ = std::min(now, leads_since_ + by);
}

absl::Time ServedIdentity::ChangesAt() const {
  return leader_ ? leads_since_ + lead_time_ : absl::InfiniteFuture();
}

}  // namespace baton
