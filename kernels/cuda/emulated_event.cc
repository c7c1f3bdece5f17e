#include "kernels/cuda/emulated_event.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr long kWaitNanoseconds = 5'000'000;

absl::Status SystemError(absl::string_view call) {
  return absl::InternalError(absl::StrCat("emulated event: ", call, ": ", strerror(errno)));
}

// A process that has ended, reaped or not.
bool IsGone(pid_t pid) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (process < 0) return errno == ESRCH;
  pollfd ended = {process, POLLIN, 0};
  const bool gone = poll(&ended, 1, 0) == 1;
  close(process);
  return gone;
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedEvent>> SharedEvent::Map(int file) {
  std::shared_ptr<SharedEvent> event(new SharedEvent);
  event->file_ = file;
  struct stat about;
  if (fstat(file, &about) != 0) return SystemError("fstat");
  event->inode_ = about.st_ino;
  void* const page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return SystemError("mmap");
  event->page_ = static_cast<Page*>(page);
  return event;
}

absl::StatusOr<std::shared_ptr<SharedEvent>> SharedEvent::Create() {
  const int file = memfd_create("baton-emulated-event", MFD_CLOEXEC);
  if (file < 0) return SystemError("memfd_create");
  if (ftruncate(file, sizeof(Page)) != 0) {
    close(file);
    return SystemError("ftruncate");
  }
  return Map(file);  // of zeros, which is what the counters begin with
}

absl::StatusOr<std::shared_ptr<SharedEvent>> SharedEvent::Open(int file, uint64_t inode) {
  struct stat about;
  if (fstat(file, &about) != 0) return SystemError("fstat");
  if (about.st_ino != inode || about.st_size != sizeof(Page)) {
    return absl::FailedPreconditionError("the event of this handle is not there any more");
  }
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return SystemError("fcntl");
  return Map(own);
}

SharedEvent::~SharedEvent() {
  if (page_ != nullptr) munmap(page_, sizeof(Page));
  if (file_ >= 0) close(file_);
}

bool SharedEvent::Reached(uint32_t recording) const {
  const uint32_t completed = page_->completed.load(std::memory_order_acquire);
  return static_cast<int32_t>(completed - recording) >= 0;
}

uint32_t SharedEvent::BeginRecording() {
  page_->recorder.store(getpid(), std::memory_order_release);
  return page_->recorded.fetch_add(1, std::memory_order_acq_rel) + 1;
}

void SharedEvent::EndRecording(uint32_t recording) {
  uint32_t completed = page_->completed.load(std::memory_order_acquire);
  while (static_cast<int32_t>(completed - recording) < 0 &&
         !page_->completed.compare_exchange_weak(completed, recording, std::memory_order_acq_rel)) {
  }
  syscall(SYS_futex, &page_->completed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedEvent::WaitBriefly(uint32_t recording) {
  const uint32_t completed = page_->completed.load(std::memory_order_acquire);
  if (static_cast<int32_t>(completed - recording) >= 0) return;
  if (IsGone(page_->recorder.load(std::memory_order_acquire))) {
    EndRecording(recording);
    return;
  }
  const timespec time = {0, kWaitNanoseconds};
  syscall(SYS_futex, &page_->completed, FUTEX_WAIT, completed, &time, nullptr, 0);
}

}  // namespace baton
