#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"

namespace baton {

// Everything that a peer needs to read one worker's KV. Registration.kv_address carries it in
// packed form.
struct KvAddress {
  WorkerEpoch epoch = 0;
  std::string transport_address;
  std::string pool_key;  // TransportMemory::key of the pool
  std::string meta_key;  // TransportMemory::key of the KvMeta
  uint64_t blocks = 0;
  std::string layout_fingerprint;
  std::string numerics_id;
};

std::string PackKvAddress(const KvAddress& address);
// Returns InvalidArgument for bytes that are not a KV address, are damaged, or have another
// version.
absl::StatusOr<KvAddress> UnpackKvAddress(absl::string_view bytes);

}  // namespace baton
