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
  uint64_t seed = 0;  // KvSeed of the slice's place in its owner's pool
  uint64_t checksum = 0;
};

// Computes checksums of slices of one pool, on the host or on the device where the pool lies. KV
// thread only.
class KvChecksums {
 public:
  // If `status` is OK, `slices` hold their checksums. Internal means that the device failed and
  // will not recover.
  using Done = std::function<void(absl::Status status, absl::Span<const KvSlice> slices)>;

  // Drops the calls of Take whose `done` has not been called, and never calls it. Afterwards the
  // pool is no longer read.
  virtual ~KvChecksums() = default;

  // Computes the checksums of `slices` after the work that `written` recorded has run. A null
  // `written` means that the slices are already written. Calls `done` once, during this call or a
  // later call of Take, Progress or Finish. Results come in the order of the calls of Take. `done`
  // may call Take. The slices must not be written to before `done` is called.
  virtual void Take(std::vector<KvSlice> slices, std::shared_ptr<DeviceEvent> written,
                    Done done) = 0;
  // Calls `done` for the calls of Take whose checksums are ready. Returns true if there were any.
  virtual bool Progress() = 0;
  // Returns true if some call of Take has not called its `done` yet.
  virtual bool busy() const = 0;
  // Waits for the checksums of all calls of Take, and calls their `done`.
  virtual void Finish() = 0;
};

// Creates the implementation for a pool in host memory. Its Take computes the checksums itself and
// reports them before it returns.
std::unique_ptr<KvChecksums> CreateHostKvChecksums(const std::byte* pool, const KvLayout& layout);

}  // namespace baton
