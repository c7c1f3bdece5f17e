#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Explains why the file `name` is missing from the folder that the user gave as the model, and what
// to do. For example, the folder does not exist, is a file, is a hub's cache or a LoRA adapter, has
// another format, or was not downloaded completely. Looks at the names of the files in the folder,
// and reads small files that say more. `name` is config.json, tokenizer.json or model.safetensors.
// Returns NotFound with a message of one line.
absl::Status MissingModelFile(const std::string& folder, absl::string_view name);

// Explains why opening or reading `path` failed with the errno `error`, and what to do.
absl::Status ModelFileError(int error, const std::string& path);

}  // namespace baton
