#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "kernels/backend/kv_layout.h"

namespace baton {

class DeviceEvent;

// One layer of one block of a pool, and its checksum.
struct KvSlice {
  BlockId block = 0;
  int layer = 0;
  uint64_t seed = 0;  // KvSeed of where it lies at its owner
  uint64_t checksum = 0;
};

// Takes checksums of slices of one pool, where that pool lies. KV thread only.
class KvChecksums {
 public:
  // OK: with their checksums. Internal: the device failed, for good.
  using Done = std::function<void(absl::Status status, absl::Span<const KvSlice> slices)>;

  // Without a call of `done` for what is still to be reported; the pool is no longer read.
  virtual ~KvChecksums() = default;

  // Checksums of `slices` as they are once the work that `written` recorded has run; null: as they
  // are. `done` is called once, from here, Progress or Finish, in the order of the calls; it may
  // call Take. None of the slices may be written to before.
  virtual void Take(std::vector<KvSlice> slices, std::shared_ptr<DeviceEvent> written,
                    Done done) = 0;
  // Reports what is ready; true when something was.
  virtual bool Progress() = 0;
  // Something is still to be reported.
  virtual bool busy() const = 0;
  // Waits for all of it, and reports it.
  virtual void Finish() = 0;
};

// For a pool in host memory: taken and reported by Take itself.
std::unique_ptr<KvChecksums> CreateHostKvChecksums(const std::byte* pool, const KvLayout& layout);

}  // namespace baton
