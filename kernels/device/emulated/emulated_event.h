#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace baton {

// An event shared between processes, in a file without a name. Each call of Record makes one
// recording, and each recording has a number. A recording is open until the work before it has run
// or its process is gone. Several recordings may be open, from several processes, and they may end
// in any order. A process that waits for a recording marks it as wanted. The process that made the
// recording then runs the work before it. Thread-safe.
class SharedEvent {
 public:
  static constexpr uint32_t kMaxOpen = 64;

  static absl::StatusOr<std::shared_ptr<SharedEvent>> Create();
  // Opens another process's event through its file. Checks that `file` is the event's file; the
  // caller still has to close it.
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Open(int file, uint64_t inode);
  ~SharedEvent();

  // Returns the number of the latest recording. If the event was never recorded, this is 0, and
  // Reached(0) is true.
  uint32_t recorded() const { return page_->recorded.load(std::memory_order_acquire); }
  bool Reached(uint32_t recording) const;
  // Begins a recording by this process and returns its number. An event has kMaxOpen slots for
  // recordings, which are used in turn. Returns nullopt while the recording in the next slot is
  // still open.
  std::optional<uint32_t> BeginRecording();
  void EndRecording(uint32_t recording);

  void Want(uint32_t recording);
  // Returns true if Want has been called for this recording or a later one, by any process.
  bool Wanted(uint32_t recording) const;
  // Marks the recording as wanted. Then blocks until the recording is reached, or its process is
  // gone (the recording then counts as reached), or some milliseconds have passed.
  void WaitBriefly(uint32_t recording);

  int file() const { return file_; }
  uint64_t inode() const { return inode_; }

 private:
  struct Page {
    std::atomic<uint32_t> recorded, wanted;
    std::atomic<uint32_t> ends;  // incremented each time a recording ends
    // The latest recordings of the event. Recording number n is in slot n modulo kMaxOpen, which
    // holds n, the process that made the recording, and whether the recording has ended.
    std::atomic<uint64_t> recordings[kMaxOpen];
  };
  static_assert(std::atomic<uint32_t>::is_always_lock_free &&
                std::atomic<uint64_t>::is_always_lock_free);

  SharedEvent() = default;
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Map(int file);
  std::atomic<uint64_t>& PlaceOf(uint32_t recording) const {
    return page_->recordings[recording % kMaxOpen];
  }

  int file_ = -1;
  uint64_t inode_ = 0;
  Page* page_ = nullptr;
};

}  // namespace baton
