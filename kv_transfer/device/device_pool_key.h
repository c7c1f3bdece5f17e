#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// What the key of a pool in device memory says.
struct DevicePoolKey {
  uint64_t node = 0;   // ThisNode() of its owner
  std::string device;  // DeviceInfo::id
  uint32_t pool = 0;   // which of its transport's
  uint64_t bytes = 0;
  std::string handle;  // of DeviceRuntime::ExportMemory; empty: it gave none
  std::string direct;  // of the transport below, which reads that memory itself; empty: it doesn't
};

// The same for all processes of one boot of one machine: a hash of what the kernel keeps in
// `boot_id`. Where that says nothing a random number, so that nobody is taken for a neighbour.
uint64_t ThisNode(const std::string& boot_id = "/proc/sys/kernel/random/boot_id");

std::string EncodeDevicePoolKey(const DevicePoolKey& key);
// InvalidArgument for bytes that are no such key.
absl::StatusOr<DevicePoolKey> DecodeDevicePoolKey(absl::string_view bytes);
// By its first bytes alone: those of a key of host memory are others.
bool IsDevicePoolKey(absl::string_view bytes);

// `body` as bytes that tell what they are and whether they are whole.
std::string SealBytes(uint64_t magic, absl::string_view body);
// The body, or nothing where these bytes are none of `magic`.
absl::string_view UnsealBytes(uint64_t magic, absl::string_view bytes);

}  // namespace baton
