#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"

namespace baton {

// What a peer needs to read one worker's KV: packed into Registration.kv_address.
struct KvAddress {
  WorkerEpoch epoch = 0;
  std::string transport_address;
  std::string pool_key;  // TransportMemory::key of the pool
  std::string meta_key;  // and of its KvMeta
  uint64_t blocks = 0;
  std::string layout_fingerprint;
  std::string numerics_id;
};

std::string PackKvAddress(const KvAddress& address);
// InvalidArgument for bytes that are none, were cut or changed on the way, or have another version.
absl::StatusOr<KvAddress> UnpackKvAddress(absl::string_view bytes);

}  // namespace baton
