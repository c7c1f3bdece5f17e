#include "common/rpc/retry_after.h"

#include <cstdint>
#include <random>
#include <utility>

#include "absl/strings/cord.h"
#include "baton/v1/error_details.pb.h"
#include "common/base/random.h"

namespace baton {
namespace {

constexpr char kTypeUrl[] = "type.googleapis.com/google.rpc.RetryInfo";

}  // namespace

absl::Duration WithJitter(absl::Duration delay) {
  thread_local std::minstd_rand random(static_cast<uint32_t>(RandomU64()));
  return delay * std::uniform_real_distribution<double>(0.75, 1.25)(random);
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  v1::RetryInfo info;
  absl::Duration rest;
  info.mutable_retry_delay()->set_seconds(absl::IDivDuration(delay, absl::Seconds(1), &rest));
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  status.SetPayload(kTypeUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kTypeUrl);
  v1::RetryInfo info;
  if (!payload || !info.ParseFromString(std::string(*payload))) return std::nullopt;
  return absl::Seconds(info.retry_delay().seconds()) +
         absl::Nanoseconds(info.retry_delay().nanos());
}

}  // namespace baton
