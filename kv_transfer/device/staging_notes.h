#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Notes that device transports send to one another, beside the notes of their users. StageNote and
// StagedNote bring device memory to a reader that can't reach it. MappedNote and UnmapNote are
// about pools that a reader has mapped. Each note begins with a mark that no KvNote begins with,
// and ends with a hash.

// Request of a reader: "Copy this run of your pool into my slot."
struct StageNote {
  uint64_t reader = 0;  // Random id of the reader's transport; it says whose slots are meant.
  uint64_t id = 0;      // id of the request, never used again by that reader
  uint32_t slot = 0;
  uint32_t pool = 0;  // index among the owner's pools
  uint64_t offset = 0, bytes = 0;
  std::string address;  // address of the reader, for the answer
};
// Answer of the owner: "The run is in your slot", or the reason why not.
struct StagedNote {
  uint64_t reader = 0;
  uint64_t id = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;  // cut to kMaxStagedMessage bytes when encoded
  std::string key;      // key of the owner's host memory with the slots
  uint64_t offset = 0;  // offset of the slot in that memory
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
  uint64_t id = 0;  // id of the MappedNote
};

bool IsStagingNote(absl::string_view note);
std::string EncodeStage(const StageNote& note);
std::string EncodeStaged(const StagedNote& note);
std::string EncodeMapped(const MappedNote& note);
std::string EncodeUnmap(const UnmapNote& note);
// Return nullopt for bytes that are not a note of this type.
std::optional<StageNote> DecodeStage(absl::string_view note);
std::optional<StagedNote> DecodeStaged(absl::string_view note);
std::optional<MappedNote> DecodeMapped(absl::string_view note);
std::optional<UnmapNote> DecodeUnmap(absl::string_view note);

}  // namespace baton
