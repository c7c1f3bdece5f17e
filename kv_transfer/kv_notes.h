#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/types.h"

namespace baton {

inline constexpr size_t kSecretBytes = 16;

// One control note of the KV plane. Its type decides which fields are sent; the others stay zero.
// Any note may be lost and sent again, so a note contains a whole state, not a change of it.
struct KvNote {
  enum class Type : uint8_t {
    kHello = 1,     // reader -> owner: "Are you there?" (nonce)
    kHelloAck = 2,  // owner -> reader: "Yes." (the same nonce)
    kOpen = 3,      // reader -> owner: "I pull this hand-over."; repeated to renew the lease
    // owner -> reader: the blocks and layers that are ready, in the fields from `full_blocks` to
    // `payload`
    kState = 4,
    // owner -> reader: the reader may not pull the hand-over, or must stop pulling it; `reason`
    // says why
    kRefused = 5,
    kRelease = 6,   // reader -> owner: the reader has ended its pull; `outcome` says how
    kReleased = 7,  // owner -> reader: the release has arrived
  };
  enum class Reason : uint8_t {
    kUnknown = 1,     // no such hand-over, or the secret is wrong
    kSuperseded = 2,  // a later attempt has taken over
    kAborted = 3,     // the owner has aborted the hand-over
  };
  enum class Outcome : uint8_t {
    kGaveUp = 0,   // another reader may pull the hand-over
    kTaken = 1,    // the reader has everything, and its checksums were right
    kCorrupt = 2,  // the reader got other bytes than the owner wrote
  };

  Type type = Type::kHello;
  WorkerEpoch from = 0;
  WorkerEpoch to = 0;
  uint64_t nonce = 0;

  uint64_t handover_id = 0;
  std::string secret;  // kSecretBytes long
  uint32_t attempt = 0;

  uint32_t full_blocks = 0;  // number of leading blocks whose layers are all ready
  // Number of leading blocks whose layers [0, partial_layers) are ready.
  uint32_t partial_blocks = 0;
  uint32_t partial_layers = 0;
  bool complete = false;
  std::string payload;  // set once `complete` is true

  Reason reason = Reason::kUnknown;
  Outcome outcome = Outcome::kGaveUp;
};

// Max size of `payload`. An encoded note then stays within Transport::kMaxNoteBytes.
inline constexpr size_t kMaxPayloadBytes = 3072;
std::string EncodeNote(const KvNote& note);
// Returns nullopt for bytes that EncodeNote never writes: truncated, padded, or with an unknown
// type or value.
std::optional<KvNote> DecodeNote(absl::string_view bytes);

}  // namespace baton
