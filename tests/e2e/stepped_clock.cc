// A library for LD_PRELOAD that sets the system clock of a process back or forward.
// BATON_CLOCK_STEP names a file with two numbers of 8 bytes. The first is the step in seconds,
// which the test changes while the process runs. The second counts how often a clock with a step
// was read.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

struct Shared {
  std::atomic<int64_t> step;
  std::atomic<int64_t> reads;
};
Shared* shared = nullptr;

__attribute__((constructor)) void Open() {
  const char* path = std::getenv("BATON_CLOCK_STEP");
  if (path == nullptr) return;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* mapped = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped != MAP_FAILED) shared = static_cast<Shared*>(mapped);
  close(fd);
}

}  // namespace

// The functions of the C library through which programs read the system clock.
extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && shared != nullptr &&
      (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    const int64_t step = shared->step;
    now->tv_sec += step;
    if (step != 0) ++shared->reads;
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
