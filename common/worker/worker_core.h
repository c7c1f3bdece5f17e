#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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
#include "common/model/model.h"
#include "kv_transfer/kv_plane.h"

namespace baton {

// The base class of the cores of prefill and decode workers. It has what both need: how jobs
// arrive, how many there are, what they compute with, and how busy the worker is. One loop thread
// drives a core. A core starts no thread, and RunOnce reads no clock.
class WorkerCore {
 public:
  using JobId = uint64_t;
  // Runs closures on the KV thread, in the order given. It runs them at once where all is one
  // thread.
  using KvThread = std::function<void(std::function<void()>)>;

  virtual ~WorkerCore() = default;
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  // Any thread, in any state of the job. The job ends with Cancelled, unless it has ended before.
  // Unknown jobs are ignored.
  virtual void Cancel(JobId job) = 0;
  // Loop thread. Takes what has arrived, runs at most one step, and returns true if anything
  // happened. What a step found is handed out by the next call, whose `now` is when the step had
  // ended; so the loop calls again at once while this returns true.
  virtual bool RunOnce(absl::Time now) = 0;

  // Any thread. New jobs are refused from now on; jobs that have been taken go on.
  void Drain();
  // Any thread. As of the last RunOnce, but for jobs that wait, which are counted as of now.
  WorkerLoad Load() const;
  // Any thread. Jobs submitted and not ended; 0 after Drain means that the worker may go.
  int jobs() const;
  // Any thread but the loop's. Waits until there are no jobs, or until `limit` has passed, and
  // returns true if there are none.
  bool AwaitNoJobs(absl::Duration limit) const;

 protected:
  struct Parts {
    int context = 0;                // longest prompt and answer together, tokens
    bool reuse_last_freed = false;  // for tests: blocks are reused last in, first out
    Pulse* pulse = nullptr;         // beats while a step gets on; may be null
    const Model* model = nullptr;
    KvPlane* plane = nullptr;
    KvThread on_kv_thread;
    std::unique_ptr<Engine> engine;
  };
  explicit WorkerCore(Parts parts);

  // Decides `*context`, where 0 takes the model's, and makes the engine. InvalidArgument if the
  // model or the pool does not reach so far, with the arithmetic. `most`: called with the context.
  static absl::StatusOr<Parts> MakeParts(int context, bool reuse_last_freed, Pulse* pulse,
                                         const Model* model, Backend* backend, KvPlane* plane,
                                         KvThread on_kv_thread,
                                         absl::FunctionRef<StepSize(int context)> most);

  // Any thread. InvalidArgument for token ids outside the vocabulary, and for a number of prompt
  // tokens that the job can't have.
  absl::Status CheckTokens(const std::vector<TokenId>& tokens, int original_prompt_tokens) const;
  // Any thread. Counts a job that is about to arrive, of which `tokens` are to be computed.
  // Unavailable once the worker drains; ResourceExhausted, in the words of `full`, if
  // `max_waiting` jobs wait.
  absl::StatusOr<JobId> TakePlace(int max_waiting, size_t tokens, const char* worker,
                                  absl::FunctionRef<std::string()> full);
  // Loop thread. A job no longer takes a place among those that wait, whatever becomes of it.
  void LeavePlace() { --waiting_; }
  // Loop thread. So many tokens need not be computed any more.
  void Computed(int tokens) { waiting_tokens_ -= tokens; }
  // Loop thread. After the last update of a job.
  void Ended();
  // Loop thread. What Load() returns, but for what this class counts itself.
  void ReportLoad(WorkerLoad load);

  const int context_;
  const int vocab_;
  const RopeConfig rope_;
  const KvLayout layout_;
  const KvThread on_kv_thread_;
  const std::unique_ptr<Engine> engine_;
  BlockPool pool_;

 private:
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
