#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/sampling/sampled_token.h"

namespace baton {

// What the prefill worker tells the reader of its KV when all is there: the token that follows. It
// is the payload of KvPublisher::Complete. Little-endian:
//   u8 version (1) | u8 flags (1: has logprob) | u8 alternatives (<= 20) | i32 id | i32 position |
//   f32 logprob, if any | alternatives x { i32 id, f32 logprob }
struct HandoverNote {
  SampledToken first_token;

  std::string Encode() const;
  // InvalidArgument for anything that Encode does not write: from a peer of another version, or no
  // peer at all.
  static absl::StatusOr<HandoverNote> Decode(absl::string_view bytes);
};

}  // namespace baton
