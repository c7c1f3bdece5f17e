#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/split_behavior.h"
#include "common/tokenizer/text_pattern.h"

namespace baton {

// Spelling of the words that a PreTokenizer returns.
enum class WordSpelling {
  kText,          // the text itself
  kByteAlphabet,  // one character of byte_alphabet.h for each byte of the text
  kBytes,         // the text's bytes; the receiver must treat them like kByteAlphabet
};

// The "pre_tokenizer" of a tokenizer.json: cuts text into the words that BPE works on. Supports the
// steps Split, Digits, Punctuation, WhitespaceSplit, Metaspace, ByteLevel, and a Sequence of these.
// Each step works on the pieces that the previous step returns. Steps after ByteLevel may only cut.
// Constant once built; any thread.
class PreTokenizer {
 public:
  // Reads the pre-tokeniser of tokenizer.json. `node` is nullopt if that file has no pre-tokeniser:
  // the whole text is then one word.
  static absl::StatusOr<PreTokenizer> FromJson(const std::optional<JsonNode>& node);

  // Calls `word` for each word of `text` (well-formed UTF-8), in order. `at_start` is true if
  // `text` is the beginning of the input to encode. The view that `word` gets is valid only during
  // the call. Stops at the first status of `word` that is not OK, and returns it. Returns
  // InvalidArgument if a pattern exceeds its limits (see SplitRegex).
  absl::Status Split(absl::string_view text, bool at_start,
                     absl::FunctionRef<absl::Status(absl::string_view word)> word) const;

  WordSpelling spelling() const;
  // Returns true if the result of Split depends on `at_start`.
  bool asks_for_start() const;

 private:
  struct Cut {
    TextPattern pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
  };
  struct ByteLevel {
    std::optional<TextPattern> pattern;
    bool add_prefix_space = true;
  };
  struct Metaspace {
    enum class Prepend { kAlways, kFirst, kNever };
    std::string mark;  // character that replaces each space
    TextPattern pattern;
    Prepend prepend = Prepend::kAlways;
    bool split = true;
  };
  using Step = std::variant<Cut, ByteLevel, Metaspace>;

  static absl::Status Read(const JsonNode& node, int depth, std::vector<Step>* steps);
  static absl::StatusOr<Step> ReadStep(const JsonNode& node);
  static absl::StatusOr<Step> ReadSplit(const JsonNode& node);
  static absl::StatusOr<Step> ReadByteLevel(const JsonNode& node);
  static absl::StatusOr<Step> ReadMetaspace(const JsonNode& node);

  using Word = absl::FunctionRef<absl::Status(absl::string_view)>;
  absl::Status Run(size_t step, absl::string_view text, bool at_start, Word word) const;
  absl::Status RunPieces(size_t step, const TextPattern& pattern, bool invert,
                         SplitBehavior behavior, absl::string_view text, bool at_start,
                         Word word) const;
  absl::Status RunByteLevel(size_t step, absl::string_view text, Word word) const;
  absl::Status RunMetaspace(size_t step, absl::string_view text, bool at_start, Word word) const;

  std::vector<Step> steps_;
};

}  // namespace baton
