#include "kv_transfer/device/device_pool_key.h"

#include <fstream>

#include "common/base/hash.h"
#include "common/base/random.h"
#include "kv_transfer/transport/byte_packer.h"

namespace baton {
namespace {

constexpr uint64_t kKeyMagic = 0xBA70ADE71CE90014ull;

}  // namespace

std::string SealBytes(uint64_t magic, absl::string_view body) {
  BytePacker out;
  out.Put<uint64_t>(magic);
  out.Put<uint64_t>(Hash64(body));
  out.PutFixed(body);
  return out.Take();
}

absl::string_view UnsealBytes(uint64_t magic, absl::string_view bytes) {
  ByteUnpacker in(bytes);
  const bool ours = in.Get<uint64_t>() == magic;
  const uint64_t hash = in.Get<uint64_t>();
  if (!ours || !in.ok()) return {};
  const absl::string_view body = bytes.substr(2 * sizeof(uint64_t));
  return Hash64(body) == hash ? body : absl::string_view();
}

uint64_t ThisNode(const std::string& boot_id) {
  std::ifstream file(boot_id);
  std::string id;
  std::getline(file, id);
  return id.empty() ? RandomU64() : Hash64(id);
}

std::string EncodeDevicePoolKey(const DevicePoolKey& key) {
  BytePacker out;
  out.Put<uint64_t>(key.node);
  out.PutString(key.device);
  out.Put<uint32_t>(key.pool);
  out.Put<uint64_t>(key.bytes);
  out.PutString(key.handle);
  out.PutString(key.direct);
  return SealBytes(kKeyMagic, out.Take());
}

absl::StatusOr<DevicePoolKey> DecodeDevicePoolKey(absl::string_view bytes) {
  ByteUnpacker in(UnsealBytes(kKeyMagic, bytes));
  DevicePoolKey key;
  key.node = in.Get<uint64_t>();
  key.device = std::string(in.GetString());
  key.pool = in.Get<uint32_t>();
  key.bytes = in.Get<uint64_t>();
  key.handle = std::string(in.GetString());
  key.direct = std::string(in.GetString());
  if (!in.at_end()) return absl::InvalidArgumentError("not a key of device memory");
  return key;
}

bool IsDevicePoolKey(absl::string_view bytes) {
  return ByteUnpacker(bytes).Get<uint64_t>() == kKeyMagic;
}

}  // namespace baton
