#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/vocabulary.h"

namespace baton {

// The "post_processor" of a tokenizer.json, limited to the ids of a single text: the tokens before
// and after it (BOS, EOS). Supports nothing, `TemplateProcessing`, `ByteLevel` (which only moves
// offsets), and a `Sequence` of these.
struct PostProcessor {
  // `node` is empty if the file has no post-processor. Every id must be a token of `vocabulary`.
  static absl::StatusOr<PostProcessor> FromJson(const std::optional<JsonNode>& node,
                                                const Vocabulary& vocabulary);

  std::vector<TokenId> before;
  std::vector<TokenId> behind;
};

}  // namespace baton
