#include "router/core/worker_caches.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/rpc/limits.h"
#include "router/core/core_context.h"
#include "router/core/request_metrics.h"

namespace baton {
namespace {

constexpr int kSweepPerTurn = 1000;
// The prompts that were just sent to workers get 1 / kRecentShare of the memory, because there are
// far fewer of them than of all that workers keep.
constexpr size_t kRecentShare = 16;

absl::Status CheckNames(const char* field, const std::string& bytes) {
  if (bytes.size() % kBlockNameBytes == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cache.", field, " has ", bytes.size(), " bytes; names have 16 bytes each"));
}

}  // namespace

absl::StatusOr<CacheUpdate> ReadCacheChanges(const v1::CacheChanges& changes) {
  CacheUpdate update{.after = changes.after(),
                     .last = changes.last(),
                     .age = absl::Microseconds(static_cast<int64_t>(
                         std::min<uint64_t>(changes.age_us(), INT64_MAX / 2000))),
                     .changes = {}};
  if (update.last < update.after) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache.last is ", update.last, ", and cache.after is ", update.after));
  }
  RETURN_IF_ERROR(CheckNames("removed", changes.removed()));
  size_t names = changes.removed().size() / kBlockNameBytes;
  for (const v1::CacheRun& run : changes.added()) {
    RETURN_IF_ERROR(CheckNames("added.names", run.names()));
    if (!run.parent().empty() && run.parent().size() != kBlockNameBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("cache.added.parent has ", run.parent().size(), " bytes; it takes 0 or 16"));
    }
    names += run.names().size() / kBlockNameBytes;
  }
  if (names > kMaxCacheChanges) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache has ", names, " names; at most ", kMaxCacheChanges));
  }
  update.changes.reserve(names);
  for (size_t at = 0; at < changes.removed().size(); at += kBlockNameBytes) {
    update.changes.push_back({.added = false, .name = BlockNameAt(&changes.removed()[at])});
  }
  for (const v1::CacheRun& run : changes.added()) {
    BlockName parent = run.parent().empty() ? BlockName() : BlockNameAt(run.parent().data());
    for (size_t at = 0; at < run.names().size(); at += kBlockNameBytes) {
      const BlockName name = BlockNameAt(&run.names()[at]);
      update.changes.push_back({.added = true, .name = name, .parent = parent});
      parent = name;
    }
  }
  return update;
}

size_t WorkerCaches::MinBytes() {
  return PrefixIndex::MinBytes(PrefixIndex::Options().max_workers) + RecentPrompts::kMinBytes;
}

WorkerCaches::WorkerCaches(CoreContext* core) : core_(core) {
  const size_t bytes = core->options.prefix_index_bytes;
  if (bytes == 0) return;
  BATON_CHECK(bytes >= MinBytes()) << bytes << " bytes; at least " << MinBytes() << " are needed";
  const size_t recent_bytes =
      RecentPrompts::kMinBytes + std::min(bytes / kRecentShare, bytes - MinBytes());
  index_.emplace(PrefixIndex::Options{.max_bytes = bytes - recent_bytes,
                                      .hash_key = core->options.prefix_index_key});
  recent_.emplace(recent_bytes, core->options.prefix_index_key);
}

absl::Status WorkerCaches::Take(AttachKey attach, WorkerKey worker, CacheUpdate update) {
  Stream& stream = streams_[worker];
  if (stream.attach != attach) stream = {.attach = attach};
  if (update.after != 0 && update.after != stream.last) {
    return absl::InvalidArgumentError(absl::StrCat("the worker's cache changes after number ",
                                                   update.after, " came, those after ", stream.last,
                                                   " were expected"));
  }
  stream.last = update.last;
  if (!enabled()) {
    core_->actions.push_back(ReportTaken{attach});
    return absl::OkStatus();
  }
  waiting_.push_back({attach, worker, std::move(update), core_->now});
  return absl::OkStatus();
}

void WorkerCaches::Remove(WorkerKey worker) {
  streams_.erase(worker);
  if (!enabled()) return;
  index_->RemoveWorker(worker);
  sweeps_ = true;
}

void WorkerCaches::RunOnce() {
  if (!enabled()) return;
  size_t budget = kChangesPerTurn;
  while (!waiting_.empty() && budget > 0) {
    Waiting& first = waiting_.front();
    const auto stream = streams_.find(first.worker);
    // A later stream of the same worker tells everything anew.
    if (stream == streams_.end() || stream->second.attach != first.attach) {
      waiting_.pop_front();
      continue;
    }
    if (first.applied == 0 && first.update.after == 0) index_->RemoveWorker(first.worker);
    const auto changes = absl::MakeConstSpan(first.update.changes).subspan(first.applied, budget);
    index_->Apply(first.worker, changes);
    first.applied += changes.size();
    budget -= std::max<size_t>(changes.size(), 1);
    if (first.applied < first.update.changes.size()) continue;
    core_->metrics->cache_event_lag.Observe(first.update.age + (core_->now - first.arrived));
    core_->actions.push_back(ReportTaken{first.attach});
    waiting_.pop_front();
  }
  sweeps_ = index_->Sweep(kSweepPerTurn);
  recent_->Expire(core_->now);
  RequestMetrics& metrics = *core_->metrics;
  metrics.prefix_index_bytes.Set(static_cast<double>(index_->bytes() + recent_->bytes()));
  metrics.prefix_index_names.Set(static_cast<double>(index_->names()));
  metrics.prefix_index_evictions.Add(index_->evictions() -
                                     std::exchange(evictions_counted_, index_->evictions()));
  const uint64_t dropped = index_->dropped() + recent_->dropped();
  metrics.prefix_index_dropped.Add(dropped - std::exchange(dropped_counted_, dropped));
}

absl::Time WorkerCaches::NextWake() const {
  return sweeps_ || !waiting_.empty() ? absl::InfinitePast() : absl::InfiniteFuture();
}

absl::Span<const HeldBlocks> WorkerCaches::Find(absl::Span<const BlockName> prompt) {
  found_.clear();
  if (!enabled()) return found_;
  index_->LeadingBlocks(prompt, &found_);
  recent_->Expire(core_->now);
  recent_->Find(prompt, &found_recent_);
  found_.insert(found_.end(), found_recent_.begin(), found_recent_.end());
  // If a worker is there twice, its larger number comes first, and stays.
  std::sort(found_.begin(), found_.end(), [](const HeldBlocks& a, const HeldBlocks& b) {
    return a.worker != b.worker ? a.worker < b.worker : a.blocks > b.blocks;
  });
  const auto is_same = [](const HeldBlocks& a, const HeldBlocks& b) {
    return a.worker == b.worker;
  };
  found_.erase(std::unique(found_.begin(), found_.end(), is_same), found_.end());
  return found_;
}

void WorkerCaches::NoteRouted(WorkerKey worker, RecentPrompts::Prompt prompt) {
  if (enabled()) {
    recent_->Note(worker, std::move(prompt), core_->now + core_->options.routed_for);
  }
}

}  // namespace baton
