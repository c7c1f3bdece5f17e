#include "kv_transfer/device/device_path.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

absl::Status TryIpc(const DevicePoolKey& key, const DeviceReader& reader, DevicePool* pool) {
  if (key.handle.empty()) return absl::FailedPreconditionError("the owner can't export its pool");
  if (key.node != reader.node) return absl::FailedPreconditionError("the pool is on another node");
  ASSIGN_OR_RETURN(const auto imported, reader.runtime->ImportMemory(key.handle));
  pool->imported = imported;
  const std::string between = reader.runtime->LinkTo(key.device);
  pool->link = between == "same" ? "cuda-ipc" : between.empty() ? "peer-device" : between;
  return absl::OkStatus();
}

absl::Status TryDirect(const DevicePoolKey& key, const DeviceReader& reader, DevicePool* pool) {
  RETURN_IF_ERROR(reader.reads_devices);
  if (key.direct.empty())
    return absl::FailedPreconditionError("the owner has not registered its pool");
  pool->direct = key.direct;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DevicePath> DevicePathFromName(absl::string_view name) {
  if (name == "auto") return DevicePath::kAuto;
  if (name == "ipc") return DevicePath::kIpc;
  if (name == "direct") return DevicePath::kDirect;
  if (name == "bounced") return DevicePath::kBounced;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is not a path to device memory; it takes auto, ipc, direct or bounced"));
}

absl::StatusOr<DevicePool> OpenDevicePool(const DevicePoolKey& key, const DeviceReader& reader,
                                          DevicePath asked) {
  DevicePool pool;
  pool.index = key.pool;
  pool.bytes = key.bytes;
  const auto against = [&pool](absl::string_view way, const absl::Status& status) {
    absl::StrAppend(&pool.why, pool.why.empty() ? "" : "; ", "not by ", way, ": ",
                    status.message());
  };
  for (const DevicePath path : {DevicePath::kIpc, DevicePath::kDirect, DevicePath::kBounced}) {
    if (asked != DevicePath::kAuto && asked != path) continue;
    pool.path = path;
    absl::Status status;
    if (path == DevicePath::kIpc) {
      status = TryIpc(key, reader, &pool);
      if (!status.ok()) against("cuda ipc", status);
    } else if (path == DevicePath::kDirect) {
      status = TryDirect(key, reader, &pool);
      if (!status.ok()) against(reader.below, status);
    }
    if (status.ok()) return pool;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("device memory can't be read by the path asked for: ", pool.why));
}

}  // namespace baton
