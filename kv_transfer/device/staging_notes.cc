#include "kv_transfer/device/staging_notes.h"

#include "absl/strings/match.h"
#include "common/base/hash.h"
#include "kv_transfer/transport/byte_packer.h"

namespace baton {
namespace {

constexpr absl::string_view kMark =
    "\x9b"
    "baton-staging\x01\xe7";
constexpr uint8_t kStage = 1, kStaged = 2, kMapped = 3, kUnmap = 4;

std::string Sealed(BytePacker packer) {
  std::string body = packer.Take();
  BytePacker whole;
  whole.PutFixed(kMark);
  whole.Put<uint64_t>(Hash64(body));
  whole.PutFixed(body);
  return whole.Take();
}

// Returns the content of the note, without its mark and its hash. Returns an empty view if the note
// is damaged or of another kind.
absl::string_view Unsealed(absl::string_view note) {
  ByteUnpacker in(note);
  if (in.GetFixed(kMark.size()) != kMark) return {};
  const uint64_t hash = in.Get<uint64_t>();
  if (!in.ok()) return {};
  const absl::string_view body = note.substr(kMark.size() + sizeof(hash));
  return hash == Hash64(body) ? body : absl::string_view();
}

}  // namespace

bool IsStagingNote(absl::string_view note) { return absl::StartsWith(note, kMark); }

std::string EncodeStage(const StageNote& note) {
  BytePacker out;
  out.Put<uint8_t>(kStage);
  out.Put<uint64_t>(note.reader);
  out.Put<uint64_t>(note.id);
  out.Put<uint32_t>(note.slot);
  out.Put<uint32_t>(note.pool);
  out.Put<uint64_t>(note.offset);
  out.Put<uint64_t>(note.bytes);
  out.PutString(note.address);
  return Sealed(std::move(out));
}

std::string EncodeStaged(const StagedNote& note) {
  BytePacker out;
  out.Put<uint8_t>(kStaged);
  out.Put<uint64_t>(note.reader);
  out.Put<uint64_t>(note.id);
  out.Put<uint32_t>(static_cast<uint32_t>(note.code));
  out.PutString(absl::string_view(note.message).substr(0, kMaxStagedMessage));
  out.PutString(note.key);
  out.Put<uint64_t>(note.offset);
  return Sealed(std::move(out));
}

std::string EncodeMapped(const MappedNote& note) {
  BytePacker out;
  out.Put<uint8_t>(kMapped);
  out.Put<uint64_t>(note.id);
  out.Put<uint8_t>(note.mapped ? 1 : 0);
  out.PutString(note.address);
  return Sealed(std::move(out));
}

std::string EncodeUnmap(const UnmapNote& note) {
  BytePacker out;
  out.Put<uint8_t>(kUnmap);
  out.Put<uint64_t>(note.id);
  return Sealed(std::move(out));
}

std::optional<StageNote> DecodeStage(absl::string_view note) {
  ByteUnpacker in(Unsealed(note));
  if (in.Get<uint8_t>() != kStage) return std::nullopt;
  StageNote decoded;
  decoded.reader = in.Get<uint64_t>();
  decoded.id = in.Get<uint64_t>();
  decoded.slot = in.Get<uint32_t>();
  decoded.pool = in.Get<uint32_t>();
  decoded.offset = in.Get<uint64_t>();
  decoded.bytes = in.Get<uint64_t>();
  decoded.address = std::string(in.GetString());
  if (!in.at_end()) return std::nullopt;
  return decoded;
}

std::optional<StagedNote> DecodeStaged(absl::string_view note) {
  ByteUnpacker in(Unsealed(note));
  if (in.Get<uint8_t>() != kStaged) return std::nullopt;
  StagedNote decoded;
  decoded.reader = in.Get<uint64_t>();
  decoded.id = in.Get<uint64_t>();
  const uint32_t code = in.Get<uint32_t>();
  decoded.message = std::string(in.GetString());
  decoded.key = std::string(in.GetString());
  decoded.offset = in.Get<uint64_t>();
  if (!in.at_end() || code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) {
    return std::nullopt;
  }
  decoded.code = static_cast<absl::StatusCode>(code);
  return decoded;
}

std::optional<MappedNote> DecodeMapped(absl::string_view note) {
  ByteUnpacker in(Unsealed(note));
  if (in.Get<uint8_t>() != kMapped) return std::nullopt;
  MappedNote decoded;
  decoded.id = in.Get<uint64_t>();
  decoded.mapped = in.Get<uint8_t>() != 0;
  decoded.address = std::string(in.GetString());
  if (!in.at_end()) return std::nullopt;
  return decoded;
}

std::optional<UnmapNote> DecodeUnmap(absl::string_view note) {
  ByteUnpacker in(Unsealed(note));
  if (in.Get<uint8_t>() != kUnmap) return std::nullopt;
  UnmapNote decoded;
  decoded.id = in.Get<uint64_t>();
  if (!in.at_end()) return std::nullopt;
  return decoded;
}

}  // namespace baton
