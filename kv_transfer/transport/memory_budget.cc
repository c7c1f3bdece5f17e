#include "kv_transfer/transport/memory_budget.h"

#include "absl/strings/str_cat.h"
#include "common/base/byte_size.h"
#include "common/base/usable_memory.h"

namespace baton {

absl::Status CheckMemoryFor(size_t bytes) {
  const UsableMemory memory = ReadUsableMemory();
  if (bytes <= memory.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "KV memory of ", bytes, " bytes (", RoundedBytes(bytes), ") does not fit: ", memory.bytes,
      " bytes (", RoundedBytes(memory.bytes), ") are available of the ", memory.limit_bytes,
      " bytes of ", memory.limit, "; lower --kv-bytes, or raise that limit"));
}

}  // namespace baton
