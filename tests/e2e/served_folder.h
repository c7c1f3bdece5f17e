#pragma once

#include "absl/strings/string_view.h"
#include "common/base/scratch_folder.h"

namespace baton {

// A copy of a folder with a tokenizer.json, so that programs can serve it; removed at the end.
class ServedFolder : public ScratchFolder {
 public:
  // A name in common/model/testdata, or an absolute path.
  explicit ServedFolder(absl::string_view folder);
};

}  // namespace baton
