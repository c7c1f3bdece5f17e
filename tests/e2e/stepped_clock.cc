// A library for LD_PRELOAD that sets the system clock of a process back or forward.
// BATON_CLOCK_STEP names a file with the step in seconds, a number of 8 bytes. The test changes it
// while the process runs.

#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

const volatile int64_t* step = nullptr;

__attribute__((constructor)) void Open() {
  const char* path = std::getenv("BATON_CLOCK_STEP");
  if (path == nullptr) return;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void* mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  if (mapped != MAP_FAILED) step = static_cast<const int64_t*>(mapped);
  close(fd);
}

}  // namespace

// The functions of the C library through which programs read the system clock.
extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && step != nullptr &&
      (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += *step;
  }
  return result;
}

int gettimeofday(timeval* now, void*) noexcept {
  timespec precise = {};
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* now) noexcept {
  timespec precise = {};
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}

}  // extern "C"
