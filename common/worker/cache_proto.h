#pragma once

#include "absl/time/time.h"
#include "baton/v1/membership.pb.h"
#include "common/kv_cache/name_log.h"

namespace baton {

// Converts changes of a prefix cache to the message that routers get. `now` is the time at which
// the message is sent: the message holds the age of the oldest change at that time. Any thread.
v1::CacheChanges CacheChangesToProto(const NameChanges& changes, absl::Time now);

}  // namespace baton
