#pragma once

#include "absl/time/time.h"
#include "baton/v1/membership.pb.h"
#include "common/kv_cache/name_log.h"

namespace baton {

// Returns the message that tells routers these changes. `now` is the time at which it is sent.
v1::CacheChanges CacheChangesToProto(const NameChanges& changes, absl::Time now);

}  // namespace baton
