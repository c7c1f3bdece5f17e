#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace baton {

// Threads that turn long texts into tokens. gRPC's threads must not do it: a few callers with long
// texts would occupy all of them, and every other call would wait.
//
// Callers take turns, weighed by bytes: the next text is that of the caller that has had the fewest
// bytes since it began to wait (start-time fair queueing, Goyal et al., 1996). What a caller has
// had counts until the others have had as much or no text is left, also if the caller sends its
// texts one at a time. At most all threads but one work on large texts, so a shorter text never
// waits for a large one to end. The bytes of these texts are limited, because encoding takes up to
// twelve times the bytes of a text.
//
// The number and the bytes of the texts that wait are limited, too. If a new text finds no room,
// the newest texts of the caller that has the most make room for it, as long as that caller has
// more than the caller of the new text would have. So no caller can keep the others out. Any
// thread.
class EncodePool {
 public:
  struct Options {
    int threads = 2;            // at least 2
    size_t max_waiting = 1024;  // texts that wait
    // Bytes of all texts that wait. A single one may have more.
    size_t max_bytes = 40 << 20;
    size_t large_bytes = 256 << 10;  // a text with more bytes is large
    // Bytes of all large texts that are worked on at the same time. A single one may have more.
    size_t max_large_bytes = 8 << 20;
    // Callers without waiting texts for which the pool remembers what they have had. Of more, it
    // forgets those that have had the least.
    size_t max_remembered = 1024;
  };
  explicit EncodePool(Options options);
  // Waits for work that has begun. The caller must have seen to it that no other work is left.
  ~EncodePool();
  EncodePool(const EncodePool&) = delete;
  EncodePool& operator=(const EncodePool&) = delete;

  // Work on a text. It gets OK when its turn has come, on a thread of the pool. If it made room for
  // the text of another caller, it gets ResourceExhausted with a time to try again, on the thread
  // that submitted the other text.
  using Work = std::function<void(const absl::Status&)>;
  // Queues `work` on a text that takes `bytes` bytes of memory. Returns ResourceExhausted with a
  // time to try again, and drops the work without a call, if too much waits already.
  absl::Status Submit(const std::string& caller, size_t bytes, Work work);
  // Number of texts that wait.
  size_t waiting();

 private:
  struct Job {
    size_t bytes;
    Work work;
  };
  // A caller with waiting work.
  struct Caller {
    std::deque<Job> jobs;
    size_t bytes = 0;    // Sum over `jobs`.
    uint64_t start = 0;  // virtual time, in bytes, at which its next job may begin
  };
  using CallerMap = std::map<std::string, Caller>;
  void Run();
  // Makes room for a text of this caller, and moves the work that has to go to `evicted`. Returns
  // false, and changes nothing, if there is no room.
  bool MakeRoom(const std::string& caller, size_t bytes, std::vector<Job>* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds a job behind the others of its caller.
  void Add(Caller* caller, Job job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts a job that was taken out of its caller's jobs.
  void NoteLeft(Caller* caller, const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Large(const Job& job) const { return job.bytes > options_.large_bytes; }
  // Returns true if a large text of this number of bytes may begin.
  bool LargeMayBegin(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the caller whose turn it is; callers_.end() if no waiting job may begin.
  CallerMap::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes a caller without jobs out of callers_, and remembers its virtual time.
  void Remember(CallerMap::iterator caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  CallerMap callers_ ABSL_GUARDED_BY(mutex_);
  // Virtual times at which callers without waiting jobs may begin their next one.
  std::map<std::string, uint64_t> remembered_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0, bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0, large_running_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t large_bytes_running_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t virtual_time_ ABSL_GUARDED_BY(mutex_) = 0;  // start of the job that began last
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
