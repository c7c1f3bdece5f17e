#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"

namespace baton {

// The "decoder" of a tokenizer.json: turns the texts of tokens into the text of an answer. Supports
// ByteLevel, Replace (of a String), ByteFallback, Fuse, Strip, Metaspace, and a Sequence of these.
// After ByteLevel or Fuse only Strip and Metaspace may follow. Constant once built; any thread.
//
// Decoding has four stages:
//   1. `each` changes tokens one by one.
//   2. ByteFallback joins runs of byte tokens such as <0x41>. They become their text, or one U+FFFD
//      per byte if the bytes are not UTF-8.
//   3. `each_behind` changes the tokens that come out of ByteFallback.
//   4. All tokens are joined (ByteLevel joins bytes), and `whole` changes the ends of the text.
class Decoder {
 public:
  struct Step {
    enum class Kind { kReplace, kStrip, kMetaspace };
    Kind kind;
    std::string from;  // kReplace: text to replace; otherwise the character to strip or replace
    std::string with;
    size_t start = 0, stop = 0;  // kStrip: max characters to remove at each end
    // For kMetaspace: in the first token, the marks that stand for spaces are removed instead of
    // becoming spaces.
    bool drops_in_first = false;
  };

  static absl::StatusOr<Decoder> FromJson(const JsonNode& node);

  bool byte_fallback() const { return byte_fallback_; }
  bool byte_level() const { return byte_level_; }
  const std::vector<Step>& whole() const { return whole_; }
  // Max factor by which decoding can lengthen a token's text, from 1 to 512.
  double growth() const { return growth_; }

  // BeforeFallback runs a token through the steps before ByteFallback, and BehindFallback through
  // the steps after it. Both return the text that the steps make. `first` is true for the first
  // token that reaches these steps.
  std::string BeforeFallback(absl::string_view token, bool first) const;
  std::string BehindFallback(absl::string_view token, bool first) const;
  // Returns the bytes that `token` adds to the joined text. `token` must be a result of
  // BehindFallback.
  std::string BytesOf(std::string token) const;
  // Returns true if a step before ByteFallback treats the first token differently.
  // first_differs_behind returns this for the steps after ByteFallback.
  bool first_differs_before() const { return FirstDiffers(each_); }
  bool first_differs_behind() const { return FirstDiffers(each_behind_); }
  // Returns true if the steps after ByteFallback treat a text as they treat its characters.
  bool behind_by_character() const;

  // Returns the byte if ByteFallback reads the token as a byte, otherwise nullopt.
  static std::optional<unsigned char> ByteOf(absl::string_view token);
  // StripStart removes up to `max` copies of `mark` from the beginning of `text`, and StripStop
  // from its end.
  static absl::string_view StripStart(absl::string_view text, absl::string_view mark, size_t max);
  static absl::string_view StripStop(absl::string_view text, absl::string_view mark, size_t max);

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
  bool joined_ = false;  // true after Fuse or ByteLevel
  bool byte_level_ = false;
};

}  // namespace baton
