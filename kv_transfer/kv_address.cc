#include "kv_transfer/kv_address.h"

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "kv_transfer/transport/byte_packer.h"

namespace baton {
namespace {

constexpr uint32_t kAddressMagic = 0xBA70ADD2;
constexpr uint32_t kAddressVersion = 1;

}  // namespace

std::string PackKvAddress(const KvAddress& address) {
  BytePacker out;
  out.Put<uint32_t>(kAddressMagic);
  out.Put<uint32_t>(kAddressVersion);
  out.Put<uint64_t>(address.epoch);
  out.Put<uint64_t>(address.blocks);
  out.PutString(address.transport_address);
  out.PutString(address.pool_key);
  out.PutString(address.meta_key);
  out.PutString(address.layout_fingerprint);
  out.PutString(address.numerics_id);
  std::string bytes = out.Take();
  BytePacker sum;
  sum.Put<uint64_t>(Hash64(bytes));
  return bytes + sum.Take();
}

absl::StatusOr<KvAddress> UnpackKvAddress(absl::string_view bytes) {
  if (bytes.size() < sizeof(uint64_t)) {
    return absl::InvalidArgumentError(absl::StrCat("a KV address of ", bytes.size(), " bytes"));
  }
  const absl::string_view body = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  ByteUnpacker in(body);
  const uint32_t magic = in.Get<uint32_t>();
  const uint32_t version = in.Get<uint32_t>();
  if (!in.ok() || magic != kAddressMagic) return absl::InvalidArgumentError("not a KV address");
  if (version != kAddressVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV address of version ", version, "; this is ", kAddressVersion));
  }
  if (ByteUnpacker(bytes.substr(body.size())).Get<uint64_t>() != Hash64(body)) {
    return absl::InvalidArgumentError("KV address: the checksum is wrong");
  }
  KvAddress address;
  address.epoch = in.Get<uint64_t>();
  address.blocks = in.Get<uint64_t>();
  address.transport_address = std::string(in.GetString());
  address.pool_key = std::string(in.GetString());
  address.meta_key = std::string(in.GetString());
  address.layout_fingerprint = std::string(in.GetString());
  address.numerics_id = std::string(in.GetString());
  if (!in.at_end()) return absl::InvalidArgumentError("KV address: fields do not add up");
  return address;
}

}  // namespace baton
