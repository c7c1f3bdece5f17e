#pragma once

#include <filesystem>

#include "common/base/scratch_folder.h"

namespace baton {

// A scratch folder for parsers that read a file from a path. The folder lies in memory if the
// machine has /dev/shm.
class MemoryFolder : public ScratchFolder {
 public:
  MemoryFolder()
      : ScratchFolder(std::filesystem::is_directory("/dev/shm")
                          ? "/dev/shm"
                          : std::filesystem::temp_directory_path()) {}
};

}  // namespace baton
