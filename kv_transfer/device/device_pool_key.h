#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// Contents of the key of a pool in device memory.
struct DevicePoolKey {
  uint64_t node = 0;   // ThisNode() of the owner
  std::string device;  // DeviceInfo::id of the owner's device
  uint32_t pool = 0;   // index among the pools of the owner's transport
  uint64_t bytes = 0;
  // Handle from DeviceRuntime::ExportMemory. Empty if the runtime could not export the pool.
  std::string handle;
  // Key with which the inner transport (the one below this layer) can read the pool's device memory
  // itself. Empty if the inner transport can't read device memory.
  std::string direct;
};

// Returns a hash of the kernel's `boot_id` file: the same value in all processes on this machine
// until it reboots. If the file is empty or missing, returns a random number, so that no other
// process is mistaken for one on the same machine.
uint64_t ThisNode(const std::string& boot_id = "/proc/sys/kernel/random/boot_id");

std::string EncodeDevicePoolKey(const DevicePoolKey& key);
// Returns InvalidArgument for bytes that are not a key of a device pool.
absl::StatusOr<DevicePoolKey> DecodeDevicePoolKey(absl::string_view bytes);
// Returns true if `bytes` begins as the key of a device pool does. Keys of host memory begin
// differently.
bool IsDevicePoolKey(absl::string_view bytes);

// Returns three things, packed one after another: `magic`, a hash, and `body`. `magic` says what
// kind of bytes these are. The hash shows whether they were damaged.
std::string SealBytes(uint64_t magic, absl::string_view body);
// Returns the body that SealBytes packed, or an empty view if `bytes` were damaged or do not begin
// with `magic`.
absl::string_view UnsealBytes(uint64_t magic, absl::string_view bytes);

}  // namespace baton
