#include "kernels/device/emulated/device_pages.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>

#include <unistd.h>

namespace baton {
namespace {

constexpr int kSlots = 256;

// The signal handler reads the slots, so every field is lock-free. A slot with `end` 0 is free.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0}, end{0};
};
Slot slots[kSlots];
struct sigaction previous;

void Print(const char* text) {
  // An error here cannot be reported anywhere.
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

void OnFault(int number, siginfo_t* info, void*) {
  if (info->si_code <= 0) {  // no access faulted: a process sent this signal
    sigaction(SIGSEGV, &previous, nullptr);
    raise(number);
    return;
  }
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    if (at < slot.begin.load() || at >= slot.end.load()) continue;
    char digits[] = "0x0000000000000000";
    for (int i = 0; i < 16; ++i) digits[17 - i] = "0123456789abcdef"[(at >> (4 * i)) & 15];
    Print("the host touched memory of the emulated device at ");
    Print(digits);
    Print("; only copies and kernels may\n");
    break;
  }
  // When this handler returns, the access is tried again and faults again. The previous handler
  // then takes the signal.
  sigaction(SIGSEGV, &previous, nullptr);
}

void Install() {
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous);
}

}  // namespace

DevicePages::DevicePages(const std::byte* begin, size_t bytes) {
  [[maybe_unused]] static const bool installed = (Install(), true);
  for (int i = 0; i < kSlots && slot_ < 0; ++i) {
    bool free = false;
    if (slots[i].taken.compare_exchange_strong(free, true)) slot_ = i;
  }
  if (slot_ < 0) return;
  slots[slot_].begin = reinterpret_cast<uintptr_t>(begin);
  slots[slot_].end = reinterpret_cast<uintptr_t>(begin) + bytes;
}

DevicePages::~DevicePages() {
  if (slot_ < 0) return;
  slots[slot_].end = 0;
  slots[slot_].taken = false;
}

}  // namespace baton
