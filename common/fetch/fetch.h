#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

struct FetchOptions {
  std::string name;               // ORGANISATION/MODEL
  std::string revision = "main";  // a branch, a tag or a commit
  std::string folder;             // folder for the files; created if it does not exist
  std::string endpoint = "https://huggingface.co";
  std::string token;                 // empty if no token is sent
  std::vector<std::string> include;  // shell patterns; if empty, the files that Baton reads
  std::string gguf;                  // a GGUF file or a quantisation (ChooseGguf); may be empty
  int attempts = 8;                  // max failed attempts in a row that brought no byte
  absl::Duration first_pause =
      // Pause before the second attempt; doubles with each further attempt, up to 30 s.
      absl::Seconds(1);
  // Called with each line of progress.
  std::function<void(absl::string_view)> say = [](absl::string_view) {};
};

// Name of the file that marks a folder as complete and lists its content. It is written last.
inline constexpr absl::string_view kCompleteFile = ".baton-fetch.json";

// Fills `folder` with a model from a hub that speaks Hugging Face's protocol. Without `include`, it
// fetches the safetensors files and what belongs to them. If `gguf` is set, or the hub lists no
// safetensors, it fetches one GGUF file instead, with all its parts.
//
// Guarantees:
// - A file gets its name only when its size and its hash (SHA-256, or git's hash for small files)
//   are those that the hub lists. Until then it is NAME.part, and a later call continues that file.
// - All files are of one commit, even if the branch moves meanwhile.
// - A folder that has all that is asked for is left alone. The hub is then not asked, unless `gguf`
//   is a quantisation such as Q4_K_M: only the hub knows all names that end so.
// - Further GGUF files come into the same folder, of the commit that it holds already.
//
// Errors:
// - NotFound, PermissionDenied, Unauthenticated: the hub's answer, and what to do.
// - DataLoss: a file's bytes were wrong twice.
// - Unavailable: the hub could not be reached.
// - ResourceExhausted: the disk is too small.
// - FailedPrecondition: the folder holds another model, another process is filling it, or the hub
//   lists several GGUF files for `gguf`.
absl::Status Fetch(const FetchOptions& options);

}  // namespace baton
