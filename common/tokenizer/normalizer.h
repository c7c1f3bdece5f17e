#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"

namespace baton {

// Canonical composition (NFC) as the reference library does it: by the tables of Unicode 9, so that
// combining marks added since then are not reordered. `text` is well-formed UTF-8. O(n log n) for
// any input.
std::string ComposeNfc(absl::string_view text);

// "normalizer" of a tokenizer.json: nothing, NFC, or a Sequence of those. Constant once built; any
// thread.
class Normalizer {
 public:
  // `node` is nothing where the file has none.
  static absl::StatusOr<Normalizer> FromJson(const std::optional<JsonNode>& node);

  // False where text always comes back as it was.
  bool active() const { return nfc_; }
  // The view is of `text` itself or of `*buffer`.
  absl::string_view Normalize(absl::string_view text, std::string* buffer) const;

 private:
  bool nfc_ = false;
};

}  // namespace baton
