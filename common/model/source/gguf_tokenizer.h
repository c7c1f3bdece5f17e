#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/model/source/gguf_file.h"

namespace baton {

// Returns a tokenizer.json (common/tokenizer) for the tokeniser of a GGUF file. It gives the ids of
// the file that the model was published with. Tokenisers `gpt2`, whose patterns follow from the
// name in tokenizer.ggml.pre, and `llama` (SentencePiece), whose merges follow from the scores as
// in convert_slow_tokenizer.py of transformers. A file without a name is read as `default`: it gets
// the ids of llama.cpp, which can be others than those of the published file. Returns
// InvalidArgument for another tokeniser, a name that is not known, and a wrong value; the message
// names the file, the setting, what was found and what was expected.
absl::StatusOr<std::string> TokenizerJsonOfGguf(const GgufFile& file);

}  // namespace baton
