#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace baton {

// An event that processes share, in a file without a name. Each recording has a number, and is open
// until the work behind it has run or its process is gone; several may be open, of several
// processes, and end in any order. Who waits for one says that it is wanted, so that whoever
// recorded it runs that work. Thread-safe.
class SharedEvent {
 public:
  static constexpr uint32_t kMostOpen = 64;

  static absl::StatusOr<std::shared_ptr<SharedEvent>> Create();
  // Of another process, by its file, which is checked and stays the caller's.
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Open(int file, uint64_t inode);
  ~SharedEvent();

  // The number of the latest recording; 0: none, which counts as reached.
  uint32_t recorded() const { return page_->recorded.load(std::memory_order_acquire); }
  bool Reached(uint32_t recording) const;
  // A new recording by this process. Nothing while the one of kMostOpen before is open.
  std::optional<uint32_t> BeginRecording();
  void EndRecording(uint32_t recording);

  void Want(uint32_t recording);
  // This one, or a later one, is.
  bool Wanted(uint32_t recording) const;
  // Wants it, and blocks until it is reached, its process is gone (then it counts as reached), or
  // some milliseconds have passed.
  void WaitBriefly(uint32_t recording);

  int file() const { return file_; }
  uint64_t inode() const { return inode_; }

 private:
  struct Page {
    std::atomic<uint32_t> recorded, wanted;
    std::atomic<uint32_t> ends;  // goes up with every end of a recording
    // By number, modulo kMostOpen: the number, its process, and whether it has ended.
    std::atomic<uint64_t> recordings[kMostOpen];
  };
  static_assert(std::atomic<uint32_t>::is_always_lock_free &&
                std::atomic<uint64_t>::is_always_lock_free);

  SharedEvent() = default;
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Map(int file);
  std::atomic<uint64_t>& PlaceOf(uint32_t recording) const {
    return page_->recordings[recording % kMostOpen];
  }

  int file_ = -1;
  uint64_t inode_ = 0;
  Page* page_ = nullptr;
};

}  // namespace baton
