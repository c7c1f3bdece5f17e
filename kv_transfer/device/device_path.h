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
  kAuto,     // the first of kIpc, kDirect and kBounced that works
  kIpc,      // Device-to-device copies on this process's own stream, without the peer's help.
  kDirect,   // Reads by the inner transport, which accesses device memory itself.
  kBounced,  // Copies through host memory of both processes.
};
// Parses the value of a flag: auto, ipc, direct or bounced. Returns InvalidArgument for any other
// name.
absl::StatusOr<DevicePath> DevicePathFromName(absl::string_view name);

// A peer's pool, opened for reading.
struct DevicePool {
  uint32_t index = 0;  // index among its owner's pools
  uint64_t bytes = 0;
  DevicePath path = DevicePath::kBounced;
  // For kIpc: the address at which the pool is mapped here. The mapping must be closed again.
  const std::byte* imported = nullptr;
  std::string direct;  // for kDirect: the inner transport's key of the pool
  // Name of the link, as Transport::Link returns it. If empty, the inner transport is asked for the
  // name.
  std::string link;
  std::string why;  // reasons why the ways tried before `path` do not work
};

// Properties of the reader that decide how it can read a peer's pool in device memory.
struct DeviceReader {
  DeviceRuntime* runtime = nullptr;
  uint64_t node = 0;  // ThisNode() of the reader's process
  std::string below;  // name of the inner transport
  // OK if the inner transport can read into our device's memory, otherwise the reason
  absl::Status reads_devices;
};

// Opens a pool for reading in the first way that works: kIpc, kDirect or kBounced (see DevicePath).
// If `asked` is not kAuto, tries only the way `asked`. Returns FailedPrecondition, with the
// reasons, if no way works.
absl::StatusOr<DevicePool> OpenDevicePool(const DevicePoolKey& key, const DeviceReader& reader,
                                          DevicePath asked);

}  // namespace baton
