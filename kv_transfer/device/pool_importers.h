#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "kv_transfer/device/staging_notes.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// The readers that have our pools mapped by CUDA IPC, as far as they have told us. CUDA does not
// define what happens if memory is freed while another process has it mapped. So an owner first
// asks the readers to close their mappings. KV thread only.
class PoolImporters {
 public:
  // Max number of readers that are remembered. When one more reports a mapping, the oldest is
  // forgotten: its process may be gone, and nothing reports that.
  static constexpr size_t kMax = 64;

  // `inner` is the transport that carries messages to the readers. It must outlive this object.
  explicit PoolImporters(Transport* inner) : inner_(inner) {}

  void OnMapped(const MappedNote& note);
  // Asks the readers that have not been asked yet to close their mappings. Forgets readers that
  // can't be reached: they have nothing mapped any more. Do not call it from callbacks of the
  // transport.
  void AskToClose();
  size_t open() const { return importers_.size(); }

 private:
  struct Importer {
    uint64_t id;
    std::string address;
    bool asked = false;
  };

  Transport* const inner_;
  std::deque<Importer> importers_;  // in the order in which the readers reported
};

}  // namespace baton
