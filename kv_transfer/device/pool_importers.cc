#include "kv_transfer/device/pool_importers.h"

#include <algorithm>
#include <utility>

namespace baton {

void PoolImporters::OnMapped(const MappedNote& note) {
  const auto it = std::find_if(importers_.begin(), importers_.end(),
                               [&](const Importer& importer) { return importer.id == note.id; });
  if (it != importers_.end()) importers_.erase(it);
  if (!note.mapped) return;
  if (importers_.size() == kMax) importers_.pop_front();
  importers_.push_back({note.id, note.address});
}

void PoolImporters::AskToClose() {
  for (auto it = importers_.begin(); it != importers_.end();) {
    if (it->asked) {
      ++it;
      continue;
    }
    const auto peer = inner_->Connect(it->address);
    const absl::Status sent =
        peer.ok() ? inner_->SendNote(*peer, EncodeUnmap({.id = it->id})) : peer.status();
    it->asked = sent.ok();
    it = sent.ok() ? it + 1 : importers_.erase(it);
  }
}

}  // namespace baton
