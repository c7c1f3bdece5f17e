#include "common/worker/cache_proto.h"

#include <algorithm>
#include <cstdint>

namespace baton {

v1::CacheChanges CacheChangesToProto(const NameChanges& changes, absl::Time now) {
  v1::CacheChanges proto;
  proto.set_after(changes.after);
  proto.set_last(changes.last);
  for (const BlockName& name : changes.removed) AppendBytes(name, proto.mutable_removed());
  const NameChanges::Addition* before = nullptr;
  for (const NameChanges::Addition& one : changes.added) {
    if (before == nullptr || one.parent != before->name) {
      v1::CacheRun* run = proto.add_added();
      if (one.parent != BlockName()) AppendBytes(one.parent, run->mutable_parent());
    }
    AppendBytes(one.name, proto.mutable_added()->rbegin()->mutable_names());
    before = &one;
  }
  proto.set_age_us(
      static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(now - changes.since))));
  return proto;
}

}  // namespace baton
