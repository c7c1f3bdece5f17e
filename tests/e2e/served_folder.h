#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/scratch_folder.h"

namespace baton {

// Folder of the model that lies in the repository.
inline constexpr char kDemoModel[] = BATON_SOURCE_DIR "/common/model/demo";
inline constexpr uint32_t kE2eSeed = 20261121;  // Seed of random prompts and options.
// Time limit for what happens at once. It only ends a hang.
inline constexpr absl::Duration kSoon = absl::Seconds(60);

// A copy of a model's folder with a tokenizer.json, so that programs can serve it. The destructor
// removes the copy.
class ServedFolder : public ScratchFolder {
 public:
  // `folder` is a name in common/model/testdata, or an absolute path.
  explicit ServedFolder(absl::string_view folder);
};

}  // namespace baton
