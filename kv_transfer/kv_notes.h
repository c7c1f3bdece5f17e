#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/types.h"

namespace baton {

inline constexpr size_t kSecretBytes = 16;

// One control note of the KV plane. Which fields travel depends on the type; the rest stay zero.
// Every note can be lost and sent again: each says the whole state of what it speaks about.
struct KvNote {
  enum class Type : uint8_t {
    kHello = 1,     // reader -> owner: are you there? (nonce)
    kHelloAck = 2,  // owner -> reader: yes (the same nonce)
    kOpen = 3,      // reader -> owner: I pull this hand-over; again while pulling, as a renewal
    kState = 4,     // owner -> reader: what is ready (full_blocks .. payload)
    kRefused = 5,   // owner -> reader: not, or no longer, for you (reason)
    kRelease = 6,   // reader -> owner: I am through with it (ok), or give up (not ok)
    kReleased = 7,  // owner -> reader: heard your release
  };
  enum class Reason : uint8_t {
    kUnknown = 1,     // no such hand-over, or not with this secret
    kSuperseded = 2,  // a later attempt has taken over
    kAborted = 3,     // the owner gave it up
  };

  Type type = Type::kHello;
  WorkerEpoch from = 0;
  WorkerEpoch to = 0;
  uint64_t nonce = 0;

  uint64_t handover_id = 0;
  std::string secret;  // kSecretBytes
  uint32_t attempt = 0;

  uint32_t full_blocks = 0;     // of the sequence's blocks, all layers are ready
  uint32_t partial_blocks = 0;  // of the sequence's blocks, layers [0, partial_layers) are ready
  uint32_t partial_layers = 0;
  bool complete = false;
  std::string payload;  // once complete

  Reason reason = Reason::kUnknown;
  bool ok = false;
};

// At most Transport::kMaxNoteBytes for payloads up to kMaxPayloadBytes.
inline constexpr size_t kMaxPayloadBytes = 3072;
std::string EncodeNote(const KvNote& note);
// Nothing for anything that EncodeNote does not write: truncated, padded, unknown type or value.
std::optional<KvNote> DecodeNote(absl::string_view bytes);

}  // namespace baton
