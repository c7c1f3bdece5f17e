#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"

namespace baton {

// The "decoder" of a tokenizer.json: turns the texts of tokens into the text of an answer. Knows
// ByteLevel, Replace (of a String), ByteFallback, Fuse, Strip, Metaspace, and a Sequence of them;
// after ByteLevel or Fuse only Strip and Metaspace may follow. Constant once built; any thread.
//
// Decoding has four stages:
//   1. `each` changes tokens one by one.
//   2. ByteFallback joins runs of byte tokens such as <0x41>: to their text, or to one U+FFFD for
//      each byte where the bytes are not UTF-8.
//   3. `each_behind` changes the tokens that ByteFallback gave.
//   4. All tokens are joined (by ByteLevel from bytes), and `whole` changes the ends of the text.
class Decoder {
 public:
  struct Step {
    enum class Kind { kReplace, kStrip, kMetaspace };
    Kind kind;
    std::string from;  // kReplace: what to replace; otherwise the one character it is about
    std::string with;
    size_t start = 0, stop = 0;   // kStrip: how many characters at most
    bool drops_in_first = false;  // kMetaspace: marks in the first token give nothing
  };

  static absl::StatusOr<Decoder> FromJson(const JsonNode& node);

  bool byte_fallback() const { return byte_fallback_; }
  bool byte_level() const { return byte_level_; }
  const std::vector<Step>& whole() const { return whole_; }
  // How many times as long as a token its text can become, at most: 1 to 512.
  double growth() const { return growth_; }

  // The text of a token through the steps before ByteFallback, or those behind it. `first` for the
  // first token that comes there.
  std::string BeforeFallback(absl::string_view token, bool first) const;
  std::string BehindFallback(absl::string_view token, bool first) const;
  // What a token that came through both adds to the joined text.
  std::string BytesOf(std::string token) const;
  // Whether being the first makes a difference there.
  bool first_differs_before() const { return FirstDiffers(each_); }
  bool first_differs_behind() const { return FirstDiffers(each_behind_); }

  // The byte that ByteFallback reads in such a token.
  static std::optional<unsigned char> ByteOf(absl::string_view token);
  // `text` without up to `most` times `mark` at its beginning or end.
  static absl::string_view StripStart(absl::string_view text, absl::string_view mark, size_t most);
  static absl::string_view StripStop(absl::string_view text, absl::string_view mark, size_t most);

 private:
  absl::Status Read(const JsonNode& node, int depth);
  absl::Status Add(const JsonNode& node, absl::StatusOr<Step> step);
  static absl::StatusOr<Step> ReadReplace(const JsonNode& node);
  static absl::StatusOr<Step> ReadStrip(const JsonNode& node);
  static absl::StatusOr<Step> ReadMetaspace(const JsonNode& node);
  static std::string Apply(const std::vector<Step>& steps, absl::string_view token, bool first);
  static bool FirstDiffers(const std::vector<Step>& steps);

  std::vector<Step> each_, each_behind_, whole_;
  double growth_ = 1;
  bool byte_fallback_ = false;
  bool joined_ = false;  // by Fuse or ByteLevel
  bool byte_level_ = false;
};

}  // namespace baton
