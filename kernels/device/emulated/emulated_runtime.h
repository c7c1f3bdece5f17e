#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

struct EmulatedOptions {
  // Of every choice that a device leaves open: which stream gets on, which thread of a block, what
  // Query finds. A program of one thread runs the same with it again.
  uint64_t seed = 1;
  // Of the device. Pages are taken from the machine when they are allocated.
  size_t memory_bytes = size_t{1} << 30;
  // Which of the node's emulated devices. Memory of another one is imported only with peer_access.
  int device = 0;
  bool peer_access = true;
  // Kernels that were compiled with checks run with them, and report reads of memory that nobody
  // wrote; all kernels that write it must have been compiled so. Costs an eighth of memory_bytes.
  bool check = false;
  // Told of every call of Allocate and AllocatePinned; may not call the device.
  std::function<void(absl::string_view call, size_t bytes)> on_allocate;
  // False: a device whose library of dense products is missing, as a GPU without cuBLASLt.
  bool products = true;
  // After so many kernels the next one fails, and with it the device for good. 0: never.
  int64_t fails_after_kernels = 0;
  // What Replay says instead of replaying, unless that is OK.
  std::function<absl::Status()> on_replay;
};

// A device on the CPU: a test tool, made to show mistakes that a GPU hides most of the time. Runs
// kernels of emulated_kernels.
//
//  - The host cannot touch device memory: it faults, and says so, unless device work is running on
//    another thread just then. What is allocated holds 0xff.
//    Copies and products are refused where they leave an allocation; a kernel that writes just
//    after one is reported by the next call that waits.
//  - Work runs on the thread that waits for it (Synchronize, Query, Free, a copy to plain host
//    memory), as late as allowed, in an order drawn from the seed (StreamScheduler). So pinned
//    memory is read and written late, too.
//  - Query of work that could run answers false about every other time.
//  - A graph's nodes run in a random order that their dependencies allow, mixed with the work of
//    other streams.
//  - Interprocess events and memory work between processes of one user on one machine. When another
//    process waits for an interprocess event, a thread of the recording process runs the work that
//    stands before the event, so no process waits for one that sleeps. A process that forgets to
//    wait sees memory that has not been written. If the recording process dies, the wait ends as
//    if the event had completed.
absl::StatusOr<std::unique_ptr<DeviceRuntime>> CreateEmulatedRuntime(
    const EmulatedOptions& options = {});

}  // namespace baton
