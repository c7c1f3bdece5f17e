#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/vocabulary.h"

namespace baton {

// "post_processor" of a tokenizer.json, as far as it concerns ids of a single text: what stands
// before and behind it (BOS, EOS). Supported: nothing, `TemplateProcessing`, `ByteLevel` (which
// only moves offsets), `Sequence` of those.
struct PostProcessor {
  // `node` is nothing where the file has none. Every id is a token of `vocabulary`.
  static absl::StatusOr<PostProcessor> FromJson(const std::optional<JsonNode>& node,
                                                const Vocabulary& vocabulary);

  std::vector<TokenId> before;
  std::vector<TokenId> behind;
};

}  // namespace baton
