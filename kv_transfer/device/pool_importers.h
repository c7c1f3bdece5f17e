#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "kv_transfer/device/staging_notes.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// The readers that have pools of ours mapped, by CUDA IPC, as far as they have told. CUDA leaves
// undefined what comes of memory that is freed while another process has it mapped, so an owner
// asks them to close it first. KV thread only.
class PoolImporters {
 public:
  // Those that told first are forgotten: their process may be gone, which nobody tells.
  static constexpr size_t kMost = 64;

  // `inner` carries the notes, and must outlive it.
  explicit PoolImporters(Transport* inner) : inner_(inner) {}

  void OnMapped(const MappedNote& note);
  // Asks those that have not been asked. Who can't be reached has nothing mapped any more. Not from
  // callbacks of the transport.
  void AskToClose();
  size_t open() const { return importers_.size(); }

 private:
  struct Importer {
    uint64_t id;
    std::string address;
    bool asked = false;
  };

  Transport* const inner_;
  std::deque<Importer> importers_;  // in the order in which they told
};

}  // namespace baton
