#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Large JSON texts, such as a tokeniser's vocabulary or the header of a weight file, parsed by
// simdjson. Only json_value.cc includes simdjson.h, because compilers need seconds to read it.
namespace baton {

// One value of a JsonText: an object, array, string, number, true, false or null. A view that is
// cheap to copy. It and all texts taken from it are valid as long as the JsonText.
class JsonValue {
 public:
  bool IsObject() const;
  bool IsArray() const;
  bool IsNull() const;
  // Return the value, or nullopt if the value has another type. A number with a fraction or an
  // exponent has neither Int nor UInt, and one that is outside of the type does not have it either.
  std::optional<absl::string_view> String() const;
  std::optional<bool> Bool() const;
  std::optional<int64_t> Int() const;
  std::optional<uint64_t> UInt() const;
  // Returns the first member `key` of this object, or nullopt if there is none or this is no
  // object.
  std::optional<JsonValue> Member(absl::string_view key) const;
  // Number of members or elements, for reserving memory: a value above 16,777,215 counts as that.
  // 0 for other types.
  size_t size() const;
  // Call `visit` for each member of this object, or each element of this array, in the order of the
  // text. A key that occurs twice is visited twice. Stop at the first error of `visit` and return
  // it. For other types, never call it and return Ok.
  absl::Status ForEachMember(
      absl::FunctionRef<absl::Status(absl::string_view key, JsonValue value)> visit) const;
  absl::Status ForEachElement(absl::FunctionRef<absl::Status(JsonValue value)> visit) const;
  // Describes this value for messages: a string in quotes (shortened), a number, "an object".
  std::string Describe() const;

 private:
  friend class JsonText;
  friend struct JsonStorage;
  JsonValue() = default;

  // The bytes of a simdjson::dom::element. json_value.cc checks that they have its size.
  alignas(void*) std::array<std::byte, 2 * sizeof(void*)> element_ = {};
};

// A JSON text that was parsed. Owns a copy of the text.
class JsonText {
 public:
  // Returns InvalidArgument with simdjson's message if `text` is not one valid JSON value in UTF-8.
  static absl::StatusOr<std::unique_ptr<const JsonText>> Parse(absl::string_view text);
  ~JsonText();

  JsonValue root() const { return root_; }

 private:
  struct Parser;
  JsonText();

  const std::unique_ptr<Parser> parser_;
  JsonValue root_;
};

// Returns true if `text` is valid UTF-8. Reads several bytes at a time.
bool IsUtf8(absl::string_view text);

}  // namespace baton
