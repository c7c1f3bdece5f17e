#include "kv_transfer/testing/device_reading_transport.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr char kKeyPrefix[] = "device memory ";

absl::Status CopyNow(DeviceRuntime& device, void* to, const void* from, size_t bytes) {
  ASSIGN_OR_RETURN(const auto stream, device.CreateStream(StreamKind::kCopy));
  absl::Status status = device.Copy(to, from, bytes, *stream);
  status.Update(device.Synchronize(*stream));
  return status;
}

}  // namespace

DeviceReadingTransport::~DeviceReadingTransport() {
  MutexLock lock(&registry_->mutex_);
  for (const auto& [key, memory] : own_) registry_->memory_.erase(key);
}

absl::StatusOr<TransportMemory> DeviceReadingTransport::RegisterDeviceMemory(std::byte* data,
                                                                             size_t bytes) {
  RETURN_IF_ERROR(options_.registering);
  MutexLock lock(&registry_->mutex_);
  const std::string key = absl::StrCat(kKeyPrefix, ++registry_->last_);
  own_[key] = registry_->memory_[key] = {device_, data, bytes};
  return TransportMemory{data, bytes, key, true};
}

void DeviceReadingTransport::Read(ReadOperation operation) {
  if (!absl::StartsWith(operation.key, kKeyPrefix)) {
    inner_->Read(std::move(operation));
    return;
  }
  absl::Status status = ReadDevice(operation);
  operation.key = {};
  ended_.Add(std::move(operation), std::move(status));
}

absl::Status DeviceReadingTransport::ReadDevice(const ReadOperation& operation) {
  ++device_reads_;
  RETURN_IF_ERROR(options_.reading);
  std::vector<std::byte> bytes(operation.bytes);
  {
    MutexLock lock(&registry_->mutex_);
    const auto found = registry_->memory_.find(operation.key);
    if (found == registry_->memory_.end()) return absl::UnavailableError("the peer is gone");
    const Registry::Memory& theirs = found->second;
    if (operation.offset > theirs.bytes || operation.bytes > theirs.bytes - operation.offset) {
      return absl::InvalidArgumentError("outside the memory");
    }
    RETURN_IF_ERROR(
        CopyNow(*theirs.device, bytes.data(), theirs.data + operation.offset, operation.bytes));
  }
  for (const auto& [key, ours] : own_) {
    if (operation.local >= ours.data && operation.local < ours.data + ours.bytes) {
      return CopyNow(*device_, operation.local, bytes.data(), bytes.size());
    }
  }
  std::memcpy(operation.local, bytes.data(), bytes.size());
  return absl::OkStatus();
}

void DeviceReadingTransport::Disconnect(PeerId peer) {
  inner_->Disconnect(peer);
  ended_.Report(peer);
}

absl::StatusOr<std::string> DeviceReadingTransport::Link(PeerId peer) {
  if (device_reads_ > 0) return "rdma";
  return inner_->Link(peer);
}

bool DeviceReadingTransport::Progress() {
  const bool moved = inner_->Progress();
  return ended_.Report(EndedReads::kAll) || moved;
}

}  // namespace baton
