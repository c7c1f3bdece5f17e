#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kv_transfer/device/device_pool_key.h"

namespace baton {

// Ways to read a peer's pool that lies in device memory.
enum class DevicePath {
  kAuto,     // the first of the other three that works
  kIpc,      // Device-to-device copies on this process's own stream, without the peer's help.
  kDirect,   // Reads by the inner transport, which accesses device memory itself.
  kBounced,  // through host memory on both sides
};
// Parses the value of a flag: auto, ipc, direct or bounced. Returns InvalidArgument for any other
// name.
absl::StatusOr<DevicePath> DevicePathFromName(absl::string_view name);

// A peer's pool, opened for reading.
struct DevicePool {
  uint32_t index = 0;  // index among its owner's pools
  uint64_t bytes = 0;
  DevicePath path = DevicePath::kBounced;
  const std::byte* imported = nullptr;  // For kIpc: the mapped memory, which must be closed again.
  std::string direct;                   // for kDirect: the inner transport's key of the pool
  std::string link;  // As Transport::Link names it. Empty: the link of the inner transport.
  std::string why;   // why the ways that come before `path` do not work
};

// Properties of the reader that decide which ways it can use.
struct DeviceReader {
  DeviceRuntime* runtime = nullptr;
  uint64_t node = 0;  // as in DevicePoolKey
  std::string below;  // name of the inner transport
  // OK if the inner transport can read into our device's memory, otherwise the reason
  absl::Status reads_devices;
};

// Opens a pool by the first way that works, in the order IPC, direct, bounced; or only by `asked`
// if it is not kAuto. Returns FailedPrecondition, with the reasons, if none works.
absl::StatusOr<DevicePool> OpenDevicePool(const DevicePoolKey& key, const DeviceReader& reader,
                                          DevicePath asked);

}  // namespace baton
