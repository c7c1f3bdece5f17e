#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Explains why `name` can't be read in what the user gave as the folder of a model, and what to do:
// the folder does not exist, is a file, a hub's cache, a LoRA adapter, in another format, or has
// not been fetched completely. Looks at the names of the files there, and into the small ones that
// say more. `name` is config.json, tokenizer.json or model.safetensors. NotFound, one line.
absl::Status MissingModelFile(const std::string& folder, absl::string_view name);

// Why opening or reading `path` failed with `error`, an errno, and what to do.
absl::Status ModelFileError(int error, const std::string& path);

}  // namespace baton
