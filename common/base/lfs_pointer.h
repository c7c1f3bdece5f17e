#pragma once

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton {

// Returns true if `bytes` begins a Git LFS pointer: the short text that Git LFS leaves in place of
// a large file that has not been fetched. https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
inline bool IsLfsPointer(absl::string_view bytes) {
  return absl::StartsWith(bytes, "version https://git-lfs.github.com/spec/");
}

// Returns the error message for a file that is only a Git LFS pointer.
inline std::string LfsPointerMessage(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return absl::StrCat(path, ": is a Git LFS pointer, not the file itself; fetch it: git -C ",
                      slash == path.npos ? "." : path.substr(0, slash), " lfs pull");
}

}  // namespace baton
