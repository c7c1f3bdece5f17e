#include "common/engine/handover_note.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/sampling/sampling_options.h"

namespace baton {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kHasLogprob = 1;
constexpr size_t kHeaderBytes = 3 + 4 + 4;

void Append32(uint32_t value, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(value >> shift));
}

uint32_t Read32(absl::string_view* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>((*bytes)[i])} << (8 * i);
  bytes->remove_prefix(4);
  return value;
}

}  // namespace

std::string HandoverNote::Encode() const {
  BATON_CHECK(first_token.top.size() <= SamplingOptions::kMaxLogprobs) << first_token.top.size();
  std::string out;
  out.push_back(kVersion);
  out.push_back(first_token.logprob ? kHasLogprob : 0);
  out.push_back(static_cast<char>(first_token.top.size()));
  Append32(first_token.id, &out);
  Append32(first_token.position, &out);
  if (first_token.logprob) Append32(std::bit_cast<uint32_t>(*first_token.logprob), &out);
  for (const TokenLogprob& alternative : first_token.top) {
    Append32(alternative.id, &out);
    Append32(std::bit_cast<uint32_t>(alternative.logprob), &out);
  }
  return out;
}

absl::StatusOr<HandoverNote> HandoverNote::Decode(absl::string_view bytes) {
  const size_t size = bytes.size();
  const auto bad = [size](absl::string_view what, int64_t value) {
    return absl::InvalidArgumentError(
        absl::StrCat("hand-over note of ", size, " bytes: ", what, " ", value));
  };
  if (size < kHeaderBytes) return bad("shortest is", kHeaderBytes);
  const uint8_t version = bytes[0], flags = bytes[1], alternatives = bytes[2];
  if (version != kVersion) return bad("version", version);
  if ((flags & ~kHasLogprob) != 0) return bad("flags", flags);
  if (alternatives > SamplingOptions::kMaxLogprobs) return bad("alternatives", alternatives);
  const size_t expected = kHeaderBytes + (flags & kHasLogprob ? 4 : 0) + 8 * alternatives;
  if (size != expected) return bad("expected", expected);
  bytes.remove_prefix(3);
  HandoverNote note;
  SampledToken& token = note.first_token;
  token.id = static_cast<TokenId>(Read32(&bytes));
  token.position = static_cast<int>(Read32(&bytes));
  if (token.id < 0) return bad("token", token.id);
  if (token.position < 0) return bad("position", token.position);
  if (flags & kHasLogprob) token.logprob = std::bit_cast<float>(Read32(&bytes));
  for (int i = 0; i < alternatives; ++i) {
    TokenLogprob alternative;
    alternative.id = static_cast<TokenId>(Read32(&bytes));
    alternative.logprob = std::bit_cast<float>(Read32(&bytes));
    if (alternative.id < 0) return bad("token", alternative.id);
    token.top.push_back(alternative);
  }
  return note;
}

}  // namespace baton
