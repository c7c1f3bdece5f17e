#include "common/base/json_value.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <simdjson.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

namespace dom = simdjson::dom;

std::string_view Std(absl::string_view view) { return {view.data(), view.size()}; }
absl::string_view Absl(std::string_view view) { return {view.data(), view.size()}; }

}  // namespace

// Converts between a JsonValue and what it stores.
struct JsonStorage {
  static dom::element Get(const JsonValue& value) {
    static_assert(sizeof(dom::element) == sizeof(value.element_) &&
                  alignof(dom::element) <= alignof(JsonValue) &&
                  std::is_trivially_copyable_v<dom::element>);
    dom::element element;
    std::memcpy(static_cast<void*>(&element), value.element_.data(), sizeof element);
    return element;
  }
  static JsonValue Make(const dom::element& element) {
    JsonValue value;
    std::memcpy(value.element_.data(), static_cast<const void*>(&element), sizeof element);
    return value;
  }
  // Returns the element as a T, or nullopt if it has another type.
  template <typename T>
  static std::optional<T> As(const JsonValue& value) {
    T result;
    if (Get(value).get(result) != simdjson::SUCCESS) return std::nullopt;
    return result;
  }
};

bool JsonValue::IsObject() const { return JsonStorage::Get(*this).is_object(); }
bool JsonValue::IsArray() const { return JsonStorage::Get(*this).is_array(); }
bool JsonValue::IsNull() const { return JsonStorage::Get(*this).is_null(); }

std::optional<absl::string_view> JsonValue::String() const {
  const auto text = JsonStorage::As<std::string_view>(*this);
  return text ? std::optional(Absl(*text)) : std::nullopt;
}

std::optional<bool> JsonValue::Bool() const { return JsonStorage::As<bool>(*this); }
std::optional<int64_t> JsonValue::Int() const { return JsonStorage::As<int64_t>(*this); }
std::optional<uint64_t> JsonValue::UInt() const { return JsonStorage::As<uint64_t>(*this); }

std::optional<JsonValue> JsonValue::Member(absl::string_view key) const {
  dom::element member;
  if (JsonStorage::Get(*this).at_key(Std(key)).get(member) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return JsonStorage::Make(member);
}

size_t JsonValue::size() const {
  if (const auto object = JsonStorage::As<dom::object>(*this)) return object->size();
  if (const auto array = JsonStorage::As<dom::array>(*this)) return array->size();
  return 0;
}

absl::Status JsonValue::ForEachMember(
    absl::FunctionRef<absl::Status(absl::string_view key, JsonValue value)> visit) const {
  const auto object = JsonStorage::As<dom::object>(*this);
  if (!object) return absl::OkStatus();
  for (const auto& [key, value] : *object) {
    absl::Status status = visit(Absl(key), JsonStorage::Make(value));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status JsonValue::ForEachElement(
    absl::FunctionRef<absl::Status(JsonValue value)> visit) const {
  const auto array = JsonStorage::As<dom::array>(*this);
  if (!array) return absl::OkStatus();
  for (const dom::element element : *array) {
    absl::Status status = visit(JsonStorage::Make(element));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string JsonValue::Describe() const {
  const dom::element element = JsonStorage::Get(*this);
  switch (element.type()) {
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::STRING: {
      const std::string_view value = *JsonStorage::As<std::string_view>(*this);
      size_t shown = std::min<size_t>(value.size(), 60);
      // Moves back to the beginning of a character, so that no character is cut in two.
      while (shown < value.size() && (value[shown] & 0xC0) == 0x80) --shown;
      return absl::StrCat("\"", absl::Utf8SafeCEscape(Absl(value.substr(0, shown))),
                          shown < value.size() ? "\"..." : "\"");
    }
    default:
      return simdjson::to_string(element);
  }
}

struct JsonText::Parser {
  dom::parser parser;
};

JsonText::JsonText() : parser_(std::make_unique<Parser>()) {}
JsonText::~JsonText() = default;

absl::StatusOr<std::unique_ptr<const JsonText>> JsonText::Parse(absl::string_view text) {
  std::unique_ptr<JsonText> parsed(new JsonText);
  dom::element root;
  // The parser copies the text into padded memory of its own, and the root refers to this memory.
  const auto error = parsed->parser_->parser.parse(text.data(), text.size()).get(root);
  if (error != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(simdjson::error_message(error));
  }
  parsed->root_ = JsonStorage::Make(root);
  return std::unique_ptr<const JsonText>(std::move(parsed));
}

bool IsUtf8(absl::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

}  // namespace baton
