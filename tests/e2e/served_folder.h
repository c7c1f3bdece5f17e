#pragma once

#include "absl/strings/string_view.h"
#include "common/base/scratch_folder.h"

namespace baton {

// A copy of a model's folder with a tokenizer.json, so that programs can serve it. The destructor
// removes the copy.
class ServedFolder : public ScratchFolder {
 public:
  // `folder` is a name in common/model/testdata, or an absolute path.
  explicit ServedFolder(absl::string_view folder);
};

}  // namespace baton
