#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace baton {

// An event that processes share: counters in a file without a name. Every recording of it is run at
// once by the process that records (EmulatedRuntime::Record), so a wait for it ends without further
// calls of that process, or with the process itself. Thread-safe.
class SharedEvent {
 public:
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Create();
  // Of another process, by its file, which is checked and stays the caller's.
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Open(int file, uint64_t inode);
  ~SharedEvent();

  // Recordings so far, and whether the work behind that one has run. 0 has.
  uint32_t recorded() const { return page_->recorded.load(std::memory_order_acquire); }
  bool Reached(uint32_t recording) const;
  // The number of a new recording, by this process.
  uint32_t BeginRecording();
  void EndRecording(uint32_t recording);

  // Blocks until `recording` is reached, its recorder is gone (then it counts as reached), or some
  // milliseconds have passed.
  void WaitBriefly(uint32_t recording);

  int file() const { return file_; }
  uint64_t inode() const { return inode_; }

 private:
  struct Page {
    std::atomic<uint32_t> recorded, completed;
    std::atomic<pid_t> recorder;  // of the last recording
  };
  static_assert(std::atomic<uint32_t>::is_always_lock_free &&
                std::atomic<pid_t>::is_always_lock_free);

  SharedEvent() = default;
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Map(int file);

  int file_ = -1;
  uint64_t inode_ = 0;
  Page* page_ = nullptr;
};

}  // namespace baton
