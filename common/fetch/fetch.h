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
  std::string folder;             // where the files go; is made
  std::string endpoint = "https://huggingface.co";
  std::string token;                 // empty: none is sent
  std::vector<std::string> include;  // patterns as a shell has them; empty: what Baton reads
  int attempts = 8;                  // in a row without a byte, before it gives up
  absl::Duration first_pause =
      absl::Seconds(1);  // before the second attempt; then twice as long each, up to 30 s
  std::function<void(absl::string_view)> say = [](absl::string_view) {};  // progress, a line each
};

// The file that says that a folder is complete, and what is in it. Written last.
inline constexpr absl::string_view kCompleteFile = ".baton-fetch.json";

// Fills `folder` with a model of a hub that speaks Hugging Face's protocol.
//
// Guarantees:
// - A file appears under its name once its size and its hash (SHA-256, or git's of small files) are
//   those that the hub lists. Until then it is NAME.part, which a later call goes on with.
// - All files are of one commit, also where the branch moves meanwhile.
// - A folder that is complete is left alone without asking the hub.
//
// NotFound, PermissionDenied, Unauthenticated: as the hub says, and what to do. DataLoss: a file's
// bytes were wrong twice. Unavailable: the hub could not be reached. ResourceExhausted: the disk is
// too small. FailedPrecondition: the folder holds another model, or another process fills it.
absl::Status Fetch(const FetchOptions& options);

}  // namespace baton
