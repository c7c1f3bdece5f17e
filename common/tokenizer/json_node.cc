#include "common/tokenizer/json_node.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"

namespace baton {
absl::StatusOr<JsonNode> JsonNode::Get(absl::string_view key) const {
  if (!value_.IsObject()) return WrongType("an object");
  const auto member = value_.Member(key);
  if (!member) return Error(absl::StrCat("member \"", key, "\" is missing"));
  return JsonNode(file_, absl::StrCat(path_, ".", key), *member);
}

absl::StatusOr<std::optional<JsonNode>> JsonNode::Find(absl::string_view key) const {
  if (!value_.IsObject()) return WrongType("an object");
  const auto member = value_.Member(key);
  if (!member || member->IsNull()) return std::optional<JsonNode>();
  return std::optional<JsonNode>(JsonNode(file_, absl::StrCat(path_, ".", key), *member));
}

absl::StatusOr<absl::string_view> JsonNode::String() const {
  const auto text = value_.String();
  if (!text) return WrongType("a string");
  return *text;
}

absl::StatusOr<absl::string_view> JsonNode::Char() const {
  const auto text = value_.String();
  if (!text || text->empty() ||
      static_cast<size_t>(DecodeUtf8(text->data()).bytes) != text->size()) {
    return WrongType("a string of one character");
  }
  return *text;
}

absl::StatusOr<bool> JsonNode::Bool() const {
  const auto value = value_.Bool();
  if (!value) return WrongType("true or false");
  return *value;
}

absl::StatusOr<int64_t> JsonNode::Int(int64_t lowest, int64_t highest) const {
  const auto value = value_.Int();
  if (!value || *value < lowest || *value > highest) {
    return WrongType(absl::StrCat("an integer from ", lowest, " to ", highest));
  }
  return *value;
}

absl::StatusOr<std::vector<JsonNode>> JsonNode::Array() const {
  if (!value_.IsArray()) return WrongType("an array");
  std::vector<JsonNode> nodes;
  RETURN_IF_ERROR(value_.ForEachElement([&](JsonValue element) {
    nodes.emplace_back(file_, absl::StrCat(path_, "[", nodes.size(), "]"), element);
    return absl::OkStatus();
  }));
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

absl::StatusOr<std::unique_ptr<const JsonFile>> JsonFile::Parse(absl::string_view text,
                                                                absl::string_view name) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is empty; expected a JSON text, fetch it again"));
  }
  if (absl::StartsWith(text, "\xEF\xBB\xBF")) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     ": begins with a byte order mark, which JSON does not allow; save it as "
                     "UTF-8 without one"));
  }
  auto parsed = JsonText::Parse(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is not valid JSON (", text.size(),
                                                   " bytes): ", parsed.status().message(),
                                                   "; fetch it again"));
  }
  return std::unique_ptr<const JsonFile>(new JsonFile(name, *std::move(parsed)));
}

}  // namespace baton
