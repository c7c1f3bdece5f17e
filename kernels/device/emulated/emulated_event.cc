#include "kernels/device/emulated/emulated_event.h"

#include <cerrno>
#include <climits>
#include <csignal>
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

absl::Status EventError(absl::string_view call) {
  return absl::InternalError(absl::StrCat("emulated event: ", call, ": ", strerror(errno)));
}

// A slot holds one recording of an event as 64 bits: the number of the recording, the process that
// made it, and the bit kEnded. The functions below read these fields.
constexpr uint64_t kEnded = 1;
uint32_t NumberOf(uint64_t held) { return static_cast<uint32_t>(held >> 32); }
pid_t ProcessOf(uint64_t held) { return static_cast<pid_t>((held & 0xffffffff) >> 1); }
bool IsLater(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }

// Returns true if the process has ended, even if it is not reaped yet. On systems without
// pidfd_open, returns true only once the process is reaped.
bool IsGone(pid_t pid) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (process < 0) return kill(pid, 0) != 0 && errno == ESRCH;
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
  if (fstat(file, &about) != 0) return EventError("fstat");
  event->inode_ = about.st_ino;
  void* const page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return EventError("mmap");
  event->page_ = static_cast<Page*>(page);
  return event;
}

absl::StatusOr<std::shared_ptr<SharedEvent>> SharedEvent::Create() {
  const int file = memfd_create("baton-emulated-event", MFD_CLOEXEC);
  if (file < 0) return EventError("memfd_create");
  if (ftruncate(file, sizeof(Page)) != 0) {
    close(file);
    return EventError("ftruncate");
  }
  return Map(file);  // zero-filled: the initial value of the counters
}

absl::StatusOr<std::shared_ptr<SharedEvent>> SharedEvent::Open(int file, uint64_t inode) {
  struct stat about;
  if (fstat(file, &about) != 0) return EventError("fstat");
  if (about.st_ino != inode || about.st_size != sizeof(Page)) {
    return absl::FailedPreconditionError("the event of this handle no longer exists");
  }
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return EventError("fcntl");
  return Map(own);
}

SharedEvent::~SharedEvent() {
  if (page_ != nullptr) munmap(page_, sizeof(Page));
  if (file_ >= 0) close(file_);
}

bool SharedEvent::Reached(uint32_t recording) const {
  const uint64_t held = PlaceOf(recording).load(std::memory_order_acquire);
  if (recording == 0) return true;
  if (NumberOf(held) == recording) return (held & kEnded) != 0;
  return IsLater(NumberOf(held), recording);  // only an ended recording gives up its slot
}

std::optional<uint32_t> SharedEvent::BeginRecording() {
  while (true) {
    uint32_t latest = recorded();
    const uint32_t next = latest + 1;
    std::atomic<uint64_t>& place = PlaceOf(next);
    uint64_t held = place.load(std::memory_order_acquire);
    if (NumberOf(held) == next) {  // another process took this number but has not published it yet
      page_->recorded.compare_exchange_strong(latest, next, std::memory_order_acq_rel);
      continue;
    }
    if (IsLater(NumberOf(held), next)) continue;  // other processes used this slot meanwhile
    if (held != 0 && (held & kEnded) == 0) return std::nullopt;
    const uint64_t open = uint64_t{next} << 32 | static_cast<uint64_t>(getpid()) << 1;
    if (!place.compare_exchange_strong(held, open, std::memory_order_acq_rel)) continue;
    page_->recorded.compare_exchange_strong(latest, next, std::memory_order_acq_rel);
    return next;
  }
}

void SharedEvent::EndRecording(uint32_t recording) {
  std::atomic<uint64_t>& place = PlaceOf(recording);
  uint64_t held = place.load(std::memory_order_acquire);
  while (NumberOf(held) == recording && (held & kEnded) == 0 &&
         !place.compare_exchange_weak(held, held | kEnded, std::memory_order_acq_rel)) {
  }
  page_->ends.fetch_add(1, std::memory_order_acq_rel);
  syscall(SYS_futex, &page_->ends, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedEvent::Want(uint32_t recording) {
  uint32_t wanted = page_->wanted.load(std::memory_order_acquire);
  while (IsLater(recording, wanted) &&
         !page_->wanted.compare_exchange_weak(wanted, recording, std::memory_order_acq_rel)) {
  }
}

bool SharedEvent::Wanted(uint32_t recording) const {
  return !IsLater(recording, page_->wanted.load(std::memory_order_acquire));
}

void SharedEvent::WaitBriefly(uint32_t recording) {
  const uint32_t ends = page_->ends.load(std::memory_order_acquire);
  if (Reached(recording)) return;
  Want(recording);
  const uint64_t held = PlaceOf(recording).load(std::memory_order_acquire);
  if (NumberOf(held) == recording && IsGone(ProcessOf(held))) {
    EndRecording(recording);
    return;
  }
  const timespec time = {0, kWaitNanoseconds};
  syscall(SYS_futex, &page_->ends, FUTEX_WAIT, ends, &time, nullptr, 0);
}

}  // namespace baton
