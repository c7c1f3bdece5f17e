#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/pulse.h"
#include "common/engine/engine.h"
#include "common/engine/step_size.h"
#include "common/engine/worker_load.h"
#include "common/kv_cache/block_pool.h"
#include "common/kv_cache/name_log.h"
#include "common/kv_cache/prefix_cache.h"
#include "common/model/model.h"
#include "kv_transfer/kv_plane.h"

namespace baton {

// Use of the worker's prefix cache by a sequence. Its KV is the same in every case.
enum class CacheUse {
  kOn,  // finds its leading blocks, and leaves its own blocks for others
  // Finds nothing, because all its KV is needed anew: logprobs of the prompt are wanted. Leaves its
  // blocks for others.
  kNoHits,
  // Removes what it would have found, and computes everything. An earlier attempt at the same
  // request ended with DataLoss or Internal, and these blocks may be the reason.
  kRefresh,
  kOff,     // finds nothing and leaves nothing
  kForget,  // only removes what the cache has of it (WorkerCore::Forget); never given to a job
};

// True if the KV of a sequence that ended with this status may be wrong. Its blocks must not be
// found again.
bool MakesKvSuspect(const absl::Status& status);

// Settings of a worker's prefix cache.
struct PrefixCacheSettings {
  bool enabled = true;
  std::string secret;             // the cluster's shared token; empty: none
  std::string model_fingerprint;  // hash of the weights and configuration that are served
  // For tests: the process aborts if a block with a name was written to. This reads every block
  // again, and needs a pool in host memory. Debug and sanitized builds always do it for such pools.
  bool check_content = false;
  uint64_t hash_key = 0;  // PrefixCache::Options::hash_key
};

// A sequence's wait for a block that is being computed or pulled for another sequence. The wait is
// bounded: the other sequence may be slow, and the KV can always be computed here.
struct NameWait {
  static constexpr absl::Duration kLimit = absl::Seconds(5);
  // False: kLimit is the max time for one more block. True: it is the max time for all blocks
  // together. A sequence with a ticket must not wait for longer, because the ticket expires.
  bool for_all_blocks = false;
  std::optional<absl::Time> since;  // set while the sequence waits
  size_t found = 0;  // leading blocks that were found when the wait began
  bool over = false;

  // Returns true if the sequence has to wait now. `now_found` is the number of leading blocks that
  // are found now. `coming` is true if another sequence is going to give the next block its name.
  bool GoesOn(bool coming, size_t now_found, absl::Time now) {
    if (!coming || over) {
      since.reset();
      return false;
    }
    if (!since || (now_found > found && !for_all_blocks)) {
      since = now;
      found = now_found;
    }
    over = now - *since >= kLimit;
    if (over) since.reset();
    return !over;
  }
};

// Base class of the cores of prefill and decode workers. It holds what both cores need: the way
// jobs arrive, their number, the engine they compute with, and the load of the worker. One loop
// thread drives a core. A core starts no thread, and RunOnce reads no clock.
class WorkerCore {
 public:
  using JobId = uint64_t;
  // Runs closures on the KV thread, in the given order. A program with only one thread passes a
  // function that runs each closure immediately.
  using KvThread = std::function<void(std::function<void()>)>;

  virtual ~WorkerCore() = default;
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  // Any thread, in any state of the job. Returns before the job has ended. The job ends with
  // Cancelled, unless it ends first for another reason: with OK if its last step has already run,
  // or with an error that the loop has already found. Unknown jobs are ignored.
  virtual void Cancel(JobId job) = 0;
  // Loop thread. Takes what has arrived, runs at most one step, and returns true if anything
  // happened. The results of a step are handed out by the next call, whose `now` is the time when
  // the step ended. So while this function returns true, the loop must call it again without
  // waiting.
  virtual bool RunOnce(absl::Time now) = 0;

  // Any thread. Removes what the prefix cache has of a sequence, and of all sequences that begin
  // with the same blocks. Jobs that are submitted after the return find nothing of it. Running
  // sequences go on, and leave nothing in the cache from the first block on that was removed. The
  // arguments are those of a job. Returns InvalidArgument for tokens that no job can have.
  absl::Status Forget(std::vector<TokenId> tokens, int original_prompt_tokens,
                      const std::string& salt);
  // Any thread. From now on new jobs are refused. Jobs that were taken before go on.
  void Drain();
  // Any thread. Returns the load as of the last RunOnce; only the waiting jobs are counted as of
  // now.
  WorkerLoad Load() const;
  // Any thread. Returns the number of jobs submitted and not ended. 0 after Drain means that the
  // worker may exit.
  int jobs() const;
  // Any thread. Returns the log of the names that the prefix cache's blocks get and lose.
  NameLog* name_log() { return &name_log_; }
  // Any thread but the loop's. Waits until there are no jobs, or until `limit` has passed. Returns
  // true if there are none: the last update of each job has then returned. New jobs may still come
  // unless Drain was called before.
  bool AwaitNoJobs(absl::Duration limit) const;

 protected:
  struct Parts {
    int context = 0;                // longest prompt plus answer, in tokens
    bool reuse_last_freed = false;  // for tests: blocks are reused last in, first out
    PrefixCacheSettings cache;
    Pulse* pulse = nullptr;  // beats while a step makes progress; may be null
    const Model* model = nullptr;
    KvPlane* plane = nullptr;
    KvThread on_kv_thread;
    std::unique_ptr<Engine> engine;
  };
  // A sequence whose blocks have to lose their names.
  struct ForgetAsked {
    std::vector<TokenId> tokens;
    PrefixChain chain;
  };
  explicit WorkerCore(Parts parts);

  // Makes the engine and the other parts of a core. A `context` of 0 means the model's context.
  // Returns InvalidArgument, with the arithmetic, if the model or the pool can't hold `context`
  // tokens. `max` returns the largest step for a given context.
  static absl::StatusOr<Parts> MakeParts(int context, bool reuse_last_freed,
                                         PrefixCacheSettings cache, Pulse* pulse,
                                         const Model* model, Backend* backend, KvPlane* plane,
                                         KvThread on_kv_thread,
                                         absl::FunctionRef<StepSize(int context)> max);

  // Any thread. Puts a message into the core's mailbox, behind all jobs that have been submitted.
  // When the loop takes the message out, it must call HandleForget().
  virtual void SendForget(ForgetAsked message) = 0;
  // Loop thread. Removes the names of the blocks of a sequence, and of their descendants.
  void HandleForget(const ForgetAsked& message) {
    FindPrefix(message.chain, message.tokens, CacheUse::kRefresh);
  }
  // Any thread. Returns InvalidArgument for token ids outside the vocabulary, and for an impossible
  // number of original prompt tokens.
  absl::Status CheckTokens(const std::vector<TokenId>& tokens, int original_prompt_tokens) const;
  // Any thread. Returns the names of the full blocks of `tokens`, for a sequence that uses the
  // cache as `use` says. Empty if the cache is off.
  PrefixChain ChainFor(absl::Span<const TokenId> tokens, int original_prompt_tokens,
                       const std::string& salt, CacheUse use) const;
  // Returns the max number of leading blocks that a sequence of `tokens` tokens may find: never the
  // block of the last token, so that there is something left to compute.
  int MaxHit(int tokens) const { return (tokens - 1) / layout_.block_tokens; }
  // Loop thread. Finds the leading blocks, at most MaxHit(), of a sequence that has not begun, and
  // adds a reference to each.
  std::vector<BlockId> FindPrefix(const PrefixChain& chain, absl::Span<const TokenId> tokens,
                                  CacheUse use);
  // Loop thread. Returns the number of tokens at the beginning of a sequence of `tokens` tokens
  // that FindPrefix() would find now.
  int CachedTokens(const PrefixChain& chain, int tokens, CacheUse use) const;
  // Loop thread. Releases the blocks of a sequence that has ended with `status`. After Internal or
  // DataLoss nothing will be found in these blocks any more.
  void ReleaseBlocks(absl::Span<const BlockId> blocks, const absl::Status& status);
  // Any thread. Counts a job that is about to be submitted and that has `tokens` tokens to compute.
  // Returns Unavailable once the worker drains. Returns ResourceExhausted, with the message of
  // `full`, if `max_waiting` jobs already wait.
  absl::StatusOr<JobId> TakePlace(int max_waiting, size_t tokens, const char* worker,
                                  absl::FunctionRef<std::string()> full);
  // Loop thread. Counts a job as no longer waiting, whatever happens to it next.
  void LeavePlace() { --waiting_; }
  // Loop thread. Subtracts `tokens` tokens, which need no computing any more, from the waiting
  // tokens.
  void Computed(int tokens) { waiting_tokens_ -= tokens; }
  // Loop thread. Counts a job as ended. Call it after the last update of the job.
  void Ended();
  // Loop thread. Returns the number of blocks that the prefix cache has evicted since the last
  // call.
  uint64_t TakeEvictions() {
    return cache_.counters().evicted_blocks -
           std::exchange(evictions_taken_, cache_.counters().evicted_blocks);
  }
  // Loop thread. Must be called first in each RunOnce.
  void BeginTurn(absl::Time now) { name_log_.BeginTurn(now); }
  // Loop thread. Stores the load that Load() returns. This class adds the values that it counts
  // itself.
  void ReportLoad(WorkerLoad load);

  const int context_;
  const int vocab_;
  const RopeConfig rope_;
  const KvLayout layout_;
  const KvThread on_kv_thread_;
  const std::unique_ptr<Engine> engine_;

 private:
  const PrefixScope scope_;  // the scope of sequences without a salt; its rope_reach is not set
  BlockPool pool_;
  NameLog name_log_;

 protected:
  PrefixCache cache_;  // lends the blocks of pool_

 private:
  uint64_t evictions_taken_ = 0;
  std::atomic<int> waiting_{0};
  std::atomic<int64_t> waiting_tokens_{0};
  mutable Mutex mutex_;
  mutable CondVar no_jobs_;
  JobId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  int jobs_ ABSL_GUARDED_BY(mutex_) = 0;
  WorkerLoad load_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
