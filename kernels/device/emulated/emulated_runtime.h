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
  // Seed of every choice that a device leaves open: which stream runs next, which thread of a block
  // runs next, what Query answers. A program with one thread does exactly the same again if it uses
  // the same seed.
  uint64_t seed = 1;
  // Size of the device's memory. Its pages are taken from the machine only when they are allocated.
  size_t memory_bytes = size_t{1} << 30;
  // Index of this device in the node. Memory of another device can be imported only with
  // peer_access.
  int device = 0;
  bool peer_access = true;
  // If true, kernels that were compiled with checks run with them, and reads of device memory that
  // was never written are reported. Then every kernel that writes device memory must be compiled
  // with checks, because other writes are not seen. Costs an eighth of memory_bytes.
  bool check = false;
  // Called for every Allocate and AllocatePinned. Must not call the runtime.
  std::function<void(absl::string_view call, size_t bytes)> on_allocate;
  // False simulates a device without the library for GEMMs, like a GPU without cuBLASLt.
  bool gemms = true;
  // Number of kernels that run before one fails. The device then fails for good. 0: no kernel
  // fails.
  int64_t fails_after_kernels = 0;
  // Called by Replay. If it returns an error, Replay returns that error instead of replaying.
  std::function<absl::Status()> on_replay;
};

// Creates a device on the CPU. It is a test tool that exposes mistakes which a GPU hides most of
// the time. Runs kernels of emulated_kernels.
//
// - The host cannot touch device memory: the access faults with an explanation, unless another
//   thread runs device work at that moment. New memory holds 0xff. Copies and GEMMs that go beyond
//   an allocation are refused. If a kernel writes to the bytes right behind an allocation, the next
//   call that waits reports it.
// - Work runs on the thread that waits for it (Synchronize, Query, Free, a copy to plain host
//   memory). It runs as late as allowed, in an order sampled from the seed (StreamScheduler). So
//   pinned memory is read and written late, too.
// - If the work before an event has not run but could run, Query answers false about every other
//   time.
// - A graph's nodes run in a random order that their dependencies allow, mixed with the work of
//   other streams.
// - Interprocess events and memory work between processes of one user on one machine. When another
//   process waits for an interprocess event, a thread of the recording process runs the work before
//   the event. So the wait ends even if the recording process's other threads are asleep. A process
//   that forgets to wait sees memory that has not been written. If the recording process dies, the
//   wait ends as if the event had completed.
absl::StatusOr<std::unique_ptr<DeviceRuntime>> CreateEmulatedRuntime(
    const EmulatedOptions& options = {});

}  // namespace baton
