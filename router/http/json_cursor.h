#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// The place of a value in a JSON text, such as "prompt[3][17]" or "logit_bias.50256". Made while
// the text is read, and turned into a text only for a message. The parent and the key outlive it.
struct JsonPath {
  const JsonPath* parent = nullptr;
  absl::string_view key;  // Name of a member; empty if this is an element.
  size_t index = 0;       // Place of an element in its list.

  std::string ToString() const;
};

// Reads a JSON text (RFC 8259) from its begin to its end, value by value, so a list needs no memory
// beyond what the caller keeps of it. (JsonText of common/base takes up to 13 bytes for each byte
// of a list of ids, and does not say where an error is.) All functions except Peek() and Describe()
// return InvalidArgument with the line, the column and what stands there if the text is not valid.
// After an error, the cursor can't be used. Used by one thread at a time. The text outlives it.
class JsonCursor {
 public:
  // Deeper values are refused.
  static constexpr int kMaxDepth = 64;

  // A number as it stands in the text.
  struct Number {
    absl::string_view text;
    // Returns the value if it is an integer of this range; 3.0 and 2e2 are integers. Beyond 2^53,
    // only a number without fraction and exponent counts as an integer.
    std::optional<int64_t> Int() const;
    std::optional<uint64_t> UInt() const;
    // Returns the nearest double, or nullopt if the value is too large for one, such as 1e400.
    std::optional<double> Double() const;
  };

  enum class Kind { kObject, kArray, kString, kNumber, kBool, kNull, kNothing };

  explicit JsonCursor(absl::string_view text) : text_(text) {}

  // Checks that the whole text is UTF-8. Call it first: the other functions rely on it.
  absl::Status CheckUtf8() const;
  // Returns the kind of the value that comes next, judged by its first byte. kNothing: the end of
  // the text, or a byte that begins no value.
  Kind Peek();
  // Describes the next value for messages: a string in quotes and a number, both shortened, or "an
  // object". Does not move the cursor.
  std::string Describe();

  // Read one value of this kind. Another kind is an error, so callers that take several kinds look
  // at Peek() first.
  absl::Status ReadString(std::string* value);
  absl::Status ReadNumber(Number* value);
  absl::Status ReadBool(bool* value);
  absl::Status ReadNull();
  // Call `visit` for each member or element; it has to read the value. Stop at the first error of
  // `visit` and return it. A key that occurs twice is visited twice.
  absl::Status ReadObject(absl::FunctionRef<absl::Status(absl::string_view key)> visit);
  absl::Status ReadArray(absl::FunctionRef<absl::Status(size_t index)> visit);
  // Reads a value of any kind, and drops it.
  absl::Status Skip();
  // The same. Sets `text` to the value as it is written, from its first to its last byte.
  absl::Status Skip(absl::string_view* text);
  // Checks that no further value follows.
  absl::Status ReadEnd();

 private:
  void SkipSpace();
  // Returns an error that says where the cursor is, and `message`.
  absl::Status Error(absl::string_view message) const;
  // Returns an error that says that `wanted` was expected at the cursor.
  absl::Status Expected(absl::string_view wanted) const;
  absl::Status Enter(char bracket, absl::string_view name);
  // Reads a comma or the closing bracket. Sets `*more` to true for a comma.
  absl::Status ReadSeparator(char closing, bool* more);
  // Reads the word `word`, such as "true".
  absl::Status ReadWord(absl::string_view word);
  absl::Status ReadEscape(std::string* value);
  std::optional<uint32_t> ReadHex4();
  bool At(char byte) const { return at_ < text_.size() && text_[at_] == byte; }
  bool AtDigit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }

  const absl::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace baton
