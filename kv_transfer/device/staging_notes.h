#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Notes that device transports send to one another, in addition to the notes that their users send.
// StageNote and StagedNote bring device memory to a reader that can't reach it. MappedNote and
// UnmapNote are about pools that a reader has mapped. Each note begins with a magic number that no
// KvNote begins with, and ends with a hash.

// Request of a reader: "Copy this run of your pool into my slot."
struct StageNote {
  uint64_t reader = 0;  // Random id of the reader's transport. The slots belong to that transport.
  uint64_t id = 0;      // id of the request, never used again by that reader
  uint32_t slot = 0;
  uint32_t pool = 0;  // index among the owner's pools
  uint64_t offset = 0, bytes = 0;
  std::string address;  // address of the reader, for the answer
};
// Answer of a pool's owner to a StageNote: "The bytes are in your slot", or the reason why not. A
// slot is host memory of the owner that is kept for one reader.
struct StagedNote {
  uint64_t reader = 0;
  uint64_t id = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;  // cut to kMaxStagedMessage bytes when encoded
  std::string key;      // key of the owner's host memory that holds the slots
  uint64_t offset = 0;  // offset of the slot in the memory of `key`
};
constexpr size_t kMaxStagedMessage = 512;

// Report of a reader: "I have pools of yours mapped" or "I have none mapped any more".
struct MappedNote {
  uint64_t id = 0;  // random id of one connection of the reader
  bool mapped = false;
  std::string address;  // address of the reader
};
// Request of an owner: "My pools are about to be freed: close them."
struct UnmapNote {
  uint64_t id = 0;  // id of the reader's MappedNote
};

bool IsStagingNote(absl::string_view note);
std::string EncodeStage(const StageNote& note);
std::string EncodeStaged(const StagedNote& note);
std::string EncodeMapped(const MappedNote& note);
std::string EncodeUnmap(const UnmapNote& note);
// Each decoder returns nullopt for bytes that are not a note of its type.
std::optional<StageNote> DecodeStage(absl::string_view note);
std::optional<StagedNote> DecodeStaged(absl::string_view note);
std::optional<MappedNote> DecodeMapped(absl::string_view note);
std::optional<UnmapNote> DecodeUnmap(absl::string_view note);

}  // namespace baton
