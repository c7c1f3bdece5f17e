#include "kv_transfer/kv_notes.h"

#include <bit>

#include "common/base/check.h"
#include "kv_transfer/transport/byte_packer.h"
#include "kv_transfer/transport/transport.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "notes are little-endian");

constexpr uint16_t kNoteMagic = 0xBA70;
constexpr uint8_t kNoteVersion = 2;

bool ReadFlag(ByteUnpacker* in, bool* flag) {
  const uint8_t value = in->Get<uint8_t>();
  *flag = value == 1;
  return value <= 1;
}

}  // namespace

std::string EncodeNote(const KvNote& note) {
  BytePacker out;
  out.Put<uint16_t>(kNoteMagic);
  out.Put<uint8_t>(kNoteVersion);
  out.Put<uint8_t>(static_cast<uint8_t>(note.type));
  out.Put<uint64_t>(note.from);
  out.Put<uint64_t>(note.to);
  if (note.type == KvNote::Type::kHello || note.type == KvNote::Type::kHelloAck) {
    out.Put<uint64_t>(note.nonce);
    return out.Take();
  }
  BATON_CHECK(note.secret.size() == kSecretBytes) << note.secret.size();
  out.Put<uint64_t>(note.handover_id);
  out.PutFixed(note.secret);
  out.Put<uint32_t>(note.attempt);
  switch (note.type) {
    case KvNote::Type::kState:
      BATON_CHECK(note.payload.size() <= kMaxPayloadBytes) << note.payload.size();
      out.Put<uint32_t>(note.full_blocks);
      out.Put<uint32_t>(note.partial_blocks);
      out.Put<uint32_t>(note.partial_layers);
      out.Put<uint8_t>(note.complete);
      out.PutString(note.payload);
      break;
    case KvNote::Type::kRefused:
      out.Put<uint8_t>(static_cast<uint8_t>(note.reason));
      break;
    case KvNote::Type::kRelease:
      out.Put<uint8_t>(static_cast<uint8_t>(note.outcome));
      break;
    default:
      break;
  }
  return out.Take();
}

std::optional<KvNote> DecodeNote(absl::string_view bytes) {
  ByteUnpacker in(bytes);
  KvNote note;
  if (in.Get<uint16_t>() != kNoteMagic || in.Get<uint8_t>() != kNoteVersion) return std::nullopt;
  const uint8_t type = in.Get<uint8_t>();
  if (type < static_cast<uint8_t>(KvNote::Type::kHello) ||
      type > static_cast<uint8_t>(KvNote::Type::kReleased)) {
    return std::nullopt;
  }
  note.type = static_cast<KvNote::Type>(type);
  note.from = in.Get<uint64_t>();
  note.to = in.Get<uint64_t>();
  bool sane = true;
  if (note.type == KvNote::Type::kHello || note.type == KvNote::Type::kHelloAck) {
    note.nonce = in.Get<uint64_t>();
  } else {
    note.handover_id = in.Get<uint64_t>();
    note.secret = std::string(in.GetFixed(kSecretBytes));
    note.attempt = in.Get<uint32_t>();
    if (note.type == KvNote::Type::kState) {
      note.full_blocks = in.Get<uint32_t>();
      note.partial_blocks = in.Get<uint32_t>();
      note.partial_layers = in.Get<uint32_t>();
      sane = ReadFlag(&in, &note.complete);
      note.payload = std::string(in.GetString());
      sane = sane && note.payload.size() <= kMaxPayloadBytes;
    } else if (note.type == KvNote::Type::kRefused) {
      const uint8_t reason = in.Get<uint8_t>();
      sane = reason >= 1 && reason <= static_cast<uint8_t>(KvNote::Reason::kAborted);
      if (sane) note.reason = static_cast<KvNote::Reason>(reason);
    } else if (note.type == KvNote::Type::kRelease) {
      const uint8_t outcome = in.Get<uint8_t>();
      sane = outcome <= static_cast<uint8_t>(KvNote::Outcome::kCorrupt);
      if (sane) note.outcome = static_cast<KvNote::Outcome>(outcome);
    }
  }
  if (!sane || !in.at_end()) return std::nullopt;
  return note;
}

}  // namespace baton
