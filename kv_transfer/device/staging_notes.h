#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Notes of the device transports' own, which they send to one another beside the notes of their
// users. StageNote and StagedNote bring device memory to a reader that can't reach it. MappedNote
// and UnmapNote are about pools that a reader has mapped. All begin with a mark that no KvNote
// begins with, and end with a hash.

// "Copy this run of your pool into my slot."
struct StageNote {
  uint64_t reader = 0;  // which reader's slots: random, of one transport
  uint64_t id = 0;      // of the request: never used again by that reader
  uint32_t slot = 0;
  uint32_t pool = 0;  // which of the owner's pools
  uint64_t offset = 0, bytes = 0;
  std::string address;  // of the reader, for the answer
};
// "It is there", or why not.
struct StagedNote {
  uint64_t reader = 0;
  uint64_t id = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;  // at most kMaxStagedMessage bytes of it go
  std::string key;      // of host memory of the owner
  uint64_t offset = 0;  // there
};
constexpr size_t kMaxStagedMessage = 512;

// "I have pools of yours mapped", or none of them any more.
struct MappedNote {
  uint64_t id = 0;  // random, of one connection of the reader's
  bool mapped = false;
  std::string address;  // of the reader
};
// "They are about to be freed: close them."
struct UnmapNote {
  uint64_t id = 0;  // of the MappedNote
};

bool IsStagingNote(absl::string_view note);
std::string EncodeStage(const StageNote& note);
std::string EncodeStaged(const StagedNote& note);
std::string EncodeMapped(const MappedNote& note);
std::string EncodeUnmap(const UnmapNote& note);
// Nothing for bytes that are not such a note.
std::optional<StageNote> DecodeStage(absl::string_view note);
std::optional<StagedNote> DecodeStaged(absl::string_view note);
std::optional<MappedNote> DecodeMapped(absl::string_view note);
std::optional<UnmapNote> DecodeUnmap(absl::string_view note);

}  // namespace baton
