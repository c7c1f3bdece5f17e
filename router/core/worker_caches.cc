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

absl::Status CheckCacheChanges(const v1::CacheChanges& changes) {
  if (changes.last() < changes.after()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache.last is ", changes.last(), ", and cache.after is ", changes.after()));
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
  return absl::OkStatus();
}

bool CacheChangeReader::more() const { return !removals_read_ || run_ < message_.added_size(); }

void CacheChangeReader::Read(size_t max, std::vector<PrefixIndex::Change>* out) {
  out->clear();
  while (out->size() < max && more()) {
    const v1::CacheRun* run = removals_read_ ? &message_.added(run_) : nullptr;
    const std::string& names = run == nullptr ? message_.removed() : run->names();
    if (run != nullptr && offset_ == 0) {
      parent_ = run->parent().empty() ? BlockName() : BlockNameAt(run->parent().data());
    }
    const size_t count = std::min(max - out->size(), (names.size() - offset_) / kBlockNameBytes);
    for (size_t i = 0; i < count; ++i, offset_ += kBlockNameBytes) {
      const BlockName name = BlockNameAt(&names[offset_]);
      out->push_back({.added = run != nullptr, .name = name, .parent = parent_});
      parent_ = run != nullptr ? name : BlockName();
    }
    if (offset_ < names.size()) return;
    run_ += run != nullptr ? 1 : 0;
    removals_read_ = true;
    offset_ = 0;
  }
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

absl::Status WorkerCaches::Take(AttachKey attach, WorkerKey worker, v1::CacheChanges changes) {
  Stream& stream = streams_[worker];
  if (stream.attach != attach) stream = {.attach = attach};
  if (changes.after() != 0 && changes.after() != stream.last) {
    return absl::InvalidArgumentError(absl::StrCat("the worker's cache changes after number ",
                                                   changes.after(), " came, those after ",
                                                   stream.last, " were expected"));
  }
  stream.last = changes.last();
  if (!enabled()) {
    core_->actions.push_back(ReportTaken{attach});
    return absl::OkStatus();
  }
  waiting_.push_back({attach, worker, CacheChangeReader(std::move(changes)), core_->now});
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
    const v1::CacheChanges& message = first.changes.message();
    if (!std::exchange(first.begun, true) && message.after() == 0) {
      index_->RemoveWorker(first.worker);
      sweeps_ = true;
    }
    first.changes.Read(budget, &next_);
    index_->Apply(first.worker, next_);
    budget -= std::max<size_t>(next_.size(), 1);
    if (first.changes.more()) continue;
    const absl::Duration age = absl::Microseconds(
        static_cast<int64_t>(std::min<uint64_t>(message.age_us(), INT64_MAX / 2000)));
    core_->metrics->cache_event_lag.Observe(age + (core_->now - first.arrived));
    core_->actions.push_back(ReportTaken{first.attach});
    waiting_.pop_front();
  }
  if (sweeps_) sweeps_ = index_->Sweep(kSweepPerTurn);
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

void WorkerCaches::NoteRouted(WorkerKey worker, absl::Span<const BlockName> prompt) {
  if (enabled()) {
    recent_->Note(worker, prompt, core_->now + core_->options.routed_for);
  }
}

}  // namespace baton
