#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace baton {

// The keys that clients need. Without any key, everybody may enter. Keys are never logged.
class ApiKeys {
 public:
  // Everybody may enter.
  ApiKeys() = default;
  // Takes the key of $BATON_API_KEY, and those of a file with one key a line; "" means no file.
  // Empty lines, and lines that begin with #, are no keys. Returns InvalidArgument for a file that
  // can't be read or has no key, for a variable that is set but empty, and for a key that is not 1
  // to 512 characters of visible ASCII without spaces. The error names the line, but not the key.
  static absl::StatusOr<std::unique_ptr<ApiKeys>> Load(const std::string& file,
                                                       const char* variable);

  bool required() const;
  // Returns Unauthenticated unless `authorization`, which is the value of the header or metadata
  // "authorization", is "Bearer KEY" with one of the keys. Takes the same time whichever key it
  // is, and wherever a wrong one differs. Any thread.
  absl::Status Check(absl::string_view authorization) const;
  // Reads the file again if it has changed. A file that is bad now changes nothing, and its fault
  // is logged once. Call it about once a second, on one thread.
  void ReadIfChanged();

 private:
  struct FileState {
    int64_t modified_ns = 0, size = 0, inode = 0;
    bool operator==(const FileState&) const = default;
  };
  static FileState StateOf(const std::string& file);

  std::string file_;
  FileState state_;  // The state of the file when it was read last.
  std::vector<std::string> of_variable_;
  mutable Mutex mutex_;
  std::vector<std::string> keys_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
