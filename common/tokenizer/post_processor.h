#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/vocabulary.h"

namespace baton {

// The tokens that the "post_processor" of a tokenizer.json puts before and after a single text,
// such as BOS and EOS. Supports no post-processor, `TemplateProcessing`, `ByteLevel` (which only
// changes offsets), and a `Sequence` of these.
struct PostProcessor {
  // Reads the post-processor. `node` must be nullopt if tokenizer.json has none. Every id must be a
  // token of `vocabulary`.
  static absl::StatusOr<PostProcessor> FromJson(const std::optional<JsonNode>& node,
                                                const Vocabulary& vocabulary);

  std::vector<TokenId> before;
  std::vector<TokenId> behind;
};

}  // namespace baton
