#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/sampling/sampled_token.h"

namespace baton {

// Tells the reader of a prompt's KV which token follows the prompt. The prefill worker sends it as
// the payload of KvPublisher::Complete, when all KV is there. Little-endian:
//   u8 version (1) | u8 flags (1: has logprob) | u8 alternatives (<= 20) | i32 id | i32 position |
//   f32 logprob, if any | alternatives x { i32 id, f32 logprob }
struct HandoverNote {
  SampledToken first_token;

  std::string Encode() const;
  // Returns InvalidArgument for anything that Encode does not write, such as bytes from a peer of
  // another version or from a program that is no peer.
  static absl::StatusOr<HandoverNote> Decode(absl::string_view bytes);
};

}  // namespace baton
