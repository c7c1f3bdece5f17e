#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Writes a Hugging Face folder of a Llama shape with random weights in bf16, unless it is there
// already: "100m" (12 layers of 768, 12 heads over 4, 32,000 tokens; 105 million parameters) or
// "1b" (that of Llama 3.2 1B: 16 layers of 2048, 32 heads over 8, 128,256 tokens; 1.24 billion).
// Both have a tied head, and the tokenizer of the demo model, so that they can be served: ids
// beyond its own stand for nothing. InvalidArgument for another name; an error of the file system as it is.
absl::Status MakeShapeFolder(absl::string_view shape, const std::string& folder);

}  // namespace baton
