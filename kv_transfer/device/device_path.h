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

// Which way pools in device memory are read.
enum class DevicePath {
  kAuto,     // the first of the others that there is
  kIpc,      // copies from device to device on a stream of our own, without the peer's help
  kDirect,   // by the transport below, which reads device memory itself
  kBounced,  // through host memory of both sides
};
// auto, ipc, direct or bounced, as flags have it. InvalidArgument.
absl::StatusOr<DevicePath> DevicePathFromName(absl::string_view name);

// A peer's pool, as it is read.
struct DevicePool {
  uint32_t index = 0;  // among its owner's
  uint64_t bytes = 0;
  DevicePath path = DevicePath::kBounced;
  const std::byte* imported = nullptr;  // kIpc; to be closed
  std::string direct;                   // kDirect: the key of the transport below
  std::string link;  // as Transport::Link names it; empty: that of the transport below
  std::string why;   // what stood against the ways before this one
};

// What a reader is and has.
struct DeviceReader {
  DeviceRuntime* runtime = nullptr;
  uint64_t node = 0;           // see DevicePoolKey
  std::string below;           // name of the transport below
  absl::Status reads_devices;  // whether that reads into our device's memory
};

// Finds the way: the first there is of IPC, direct and bounced, or the one that is asked for.
// FailedPrecondition with what stands against it.
absl::StatusOr<DevicePool> OpenDevicePool(const DevicePoolKey& key, const DeviceReader& reader,
                                          DevicePath asked);

}  // namespace baton
