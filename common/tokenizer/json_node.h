#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_value.h"

namespace baton {

// One value in a JSON file, with its path. Anything unexpected gives InvalidArgument with the file,
// the path of the value ("$.model.vocab"), the value found and the value expected. A node and all
// views taken from it are valid as long as their JsonFile.
class JsonNode {
 public:
  JsonNode(absl::string_view file, std::string path, JsonValue value)
      : file_(file), path_(std::move(path)), value_(value) {}

  const std::string& path() const { return path_; }
  const JsonValue& value() const { return value_; }

  // Returns the member `key` of this object.
  absl::StatusOr<JsonNode> Get(absl::string_view key) const;
  // Returns the member `key`, or nullopt if it is missing or null. Returns InvalidArgument if this
  // is not an object.
  absl::StatusOr<std::optional<JsonNode>> Find(absl::string_view key) const;

  absl::StatusOr<absl::string_view> String() const;
  // Returns the text of this value, which must be a string of exactly one character.
  absl::StatusOr<absl::string_view> Char() const;
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<int64_t> Int(int64_t lowest, int64_t highest) const;
  // Returns the elements of this array. Meant only for short arrays, because each element stores
  // its own path.
  absl::StatusOr<std::vector<JsonNode>> Array() const;

  // Returns the member `key`, or `otherwise` if it is missing or null.
  absl::StatusOr<absl::string_view> StringOr(absl::string_view key,
                                             absl::string_view otherwise) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool otherwise) const;

  // Returns an error "FILE: PATH: MESSAGE".
  absl::Status Error(absl::string_view message) const;
  // Returns an error "FILE: PATH: MESSAGE" for a value inside this one: PATH is the path of this
  // value plus `suffix`.
  absl::Status ErrorAt(absl::string_view suffix, absl::string_view message) const;
  // Returns an error "FILE: PATH is FOUND; supported: SUPPORTED".
  absl::Status Unsupported(absl::string_view supported) const;

  // Describes this value for messages: a string in quotes (shortened), a number, "an object".
  std::string Describe() const { return value_.Describe(); }

 private:
  absl::Status WrongType(absl::string_view wanted) const;

  absl::string_view file_;
  std::string path_;
  JsonValue value_;
};

// A whole JSON text in memory.
class JsonFile {
 public:
  // Parses `text`. Returns InvalidArgument if it is not valid JSON, for example if it is empty,
  // truncated, nested too deeply or not UTF-8, or begins with a byte order mark. `name` is used in
  // messages.
  static absl::StatusOr<std::unique_ptr<const JsonFile>> Parse(absl::string_view text,
                                                               absl::string_view name);

  JsonNode root() const { return JsonNode(name_, "$", text_->root()); }

 private:
  JsonFile(absl::string_view name, std::unique_ptr<const JsonText> text)
      : name_(name), text_(std::move(text)) {}

  const std::string name_;
  const std::unique_ptr<const JsonText> text_;
};

}  // namespace baton
