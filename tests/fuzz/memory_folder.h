#pragma once

#include <filesystem>

#include "common/base/scratch_folder.h"

namespace baton {

// In memory where there is such a folder, for readers that take a path.
class MemoryFolder : public ScratchFolder {
 public:
  MemoryFolder()
      : ScratchFolder(std::filesystem::is_directory("/dev/shm")
                          ? "/dev/shm"
                          : std::filesystem::temp_directory_path()) {}
};

}  // namespace baton
