#include "common/tokenizer/json_node.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

std::string_view Std(absl::string_view view) { return {view.data(), view.size()}; }
absl::string_view Absl(std::string_view view) { return {view.data(), view.size()}; }

}  // namespace

absl::StatusOr<JsonNode> JsonNode::Get(absl::string_view key) const {
  if (!element_.is_object()) return WrongType("an object");
  simdjson::dom::element member;
  if (element_.at_key(Std(key)).get(member) != simdjson::SUCCESS) {
    return Error(absl::StrCat("member \"", key, "\" is missing"));
  }
  return JsonNode(file_, absl::StrCat(path_, ".", key), member);
}

absl::StatusOr<std::optional<JsonNode>> JsonNode::Find(absl::string_view key) const {
  if (!element_.is_object()) return WrongType("an object");
  simdjson::dom::element member;
  if (element_.at_key(Std(key)).get(member) != simdjson::SUCCESS || member.is_null()) {
    return std::optional<JsonNode>();
  }
  return std::optional<JsonNode>(JsonNode(file_, absl::StrCat(path_, ".", key), member));
}

absl::StatusOr<absl::string_view> JsonNode::String() const {
  std::string_view value;
  if (element_.get(value) != simdjson::SUCCESS) return WrongType("a string");
  return Absl(value);
}

absl::StatusOr<absl::string_view> JsonNode::Char() const {
  std::string_view value;
  if (element_.get(value) != simdjson::SUCCESS || value.empty() ||
      static_cast<size_t>(DecodeUtf8(value.data()).bytes) != value.size()) {
    return WrongType("a string of one character");
  }
  return Absl(value);
}

absl::StatusOr<bool> JsonNode::Bool() const {
  bool value = false;
  if (element_.get(value) != simdjson::SUCCESS) return WrongType("true or false");
  return value;
}

absl::StatusOr<int64_t> JsonNode::Int(int64_t lowest, int64_t highest) const {
  int64_t value = 0;
  if (element_.get(value) != simdjson::SUCCESS || value < lowest || value > highest) {
    return WrongType(absl::StrCat("an integer from ", lowest, " to ", highest));
  }
  return value;
}

absl::StatusOr<std::vector<JsonNode>> JsonNode::Array() const {
  simdjson::dom::array array;
  if (element_.get(array) != simdjson::SUCCESS) return WrongType("an array");
  std::vector<JsonNode> nodes;
  for (simdjson::dom::element element : array) {
    nodes.emplace_back(file_, absl::StrCat(path_, "[", nodes.size(), "]"), element);
  }
  return nodes;
}

absl::StatusOr<absl::string_view> JsonNode::StringOr(absl::string_view key,
                                                     absl::string_view otherwise) const {
  ASSIGN_OR_RETURN(const auto member, Find(key));
  return member ? member->String() : otherwise;
}

absl::StatusOr<bool> JsonNode::BoolOr(absl::string_view key, bool otherwise) const {
  ASSIGN_OR_RETURN(const auto member, Find(key));
  return member ? member->Bool() : otherwise;
}

absl::Status JsonNode::Error(absl::string_view message) const { return ErrorAt("", message); }

absl::Status JsonNode::ErrorAt(absl::string_view suffix, absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(file_, ": ", path_, suffix, ": ", message));
}

absl::Status JsonNode::Unsupported(absl::string_view supported) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_, ": ", path_, " is ", Describe(), "; supported: ", supported));
}

absl::Status JsonNode::WrongType(absl::string_view wanted) const {
  return Error(absl::StrCat("found ", Describe(), ", expected ", wanted));
}

std::string JsonNode::Describe() const { return Describe(element_); }

std::string JsonNode::Describe(const simdjson::dom::element& element) {
  switch (element.type()) {
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::ARRAY:
      return "an array";
    case simdjson::dom::element_type::STRING: {
      std::string_view value;
      if (element.get(value) != simdjson::SUCCESS) return "a string";
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

absl::StatusOr<std::unique_ptr<const JsonFile>> JsonFile::Parse(absl::string_view text,
                                                                absl::string_view name) {
  if (text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is empty; expected a JSON text"));
  }
  if (absl::StartsWith(text, "\xEF\xBB\xBF")) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": begins with a byte order mark, which JSON does not allow"));
  }
  std::unique_ptr<JsonFile> file(new JsonFile);
  file->name_ = std::string(name);
  // The parser copies the text into padded memory of its own, and root_ refers to this memory.
  const simdjson::error_code error = file->parser_.parse(text.data(), text.size()).get(file->root_);
  if (error != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is not valid JSON (", text.size(),
                                                   " bytes): ", simdjson::error_message(error)));
  }
  return std::unique_ptr<const JsonFile>(std::move(file));
}

}  // namespace baton
