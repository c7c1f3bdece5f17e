#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/source/gguf_file.h"

namespace baton {

// A model as a GGUF file, or as the parts of a split one (gguf-split.cpp of llama.cpp). The first
// part has the settings; a tensor may be in any.
class GgufParts {
 public:
  // Opens the file, and all other parts if it is the first one. Returns InvalidArgument for another
  // part, and the errors of GgufFile::Open.
  static absl::StatusOr<GgufParts> Open(const std::string& path);

  const GgufFile& first() const { return *files_.front(); }
  const std::vector<std::unique_ptr<const GgufFile>>& files() const { return files_; }
  // Returns null if no part has a tensor of this name.
  const WeightTensor* FindTensor(const std::string& name) const;

 private:
  std::vector<std::unique_ptr<const GgufFile>> files_;
};

}  // namespace baton
