#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// One place in a JSON file. Everything that is not as asked for is InvalidArgument naming the file,
// the path of the place ("$.model.vocab"), what stands there and what would be right. A node and
// all views taken from it live as long as their JsonFile.
class JsonNode {
 public:
  JsonNode(absl::string_view file, std::string path, simdjson::dom::element element)
      : file_(file), path_(std::move(path)), element_(element) {}

  const std::string& path() const { return path_; }
  const simdjson::dom::element& element() const { return element_; }

  // The member `key` of this object.
  absl::StatusOr<JsonNode> Get(absl::string_view key) const;
  // Nothing where it is missing or null. InvalidArgument where this is no object.
  absl::StatusOr<std::optional<JsonNode>> Find(absl::string_view key) const;

  absl::StatusOr<absl::string_view> String() const;
  // A string of one character.
  absl::StatusOr<absl::string_view> Char() const;
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<int64_t> Int(int64_t lowest, int64_t highest) const;
  // The elements of this array. For short arrays only, since each element stores its own path.
  absl::StatusOr<std::vector<JsonNode>> Array() const;

  // The member `key`, or `otherwise` where it is missing or null.
  absl::StatusOr<absl::string_view> StringOr(absl::string_view key,
                                             absl::string_view otherwise) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool otherwise) const;

  // "FILE: PATH: MESSAGE".
  absl::Status Error(absl::string_view message) const;
  // The same for a place below this one, "PATH + suffix".
  absl::Status ErrorAt(absl::string_view suffix, absl::string_view message) const;
  // "FILE: PATH is FOUND; supported: SUPPORTED".
  absl::Status Unsupported(absl::string_view supported) const;

  // This value in a few words, for messages: a string in quotes (shortened), a number, "an object".
  std::string Describe() const;
  static std::string Describe(const simdjson::dom::element& element);

 private:
  absl::Status WrongType(absl::string_view wanted) const;

  absl::string_view file_;
  std::string path_;
  simdjson::dom::element element_;
};

// A whole JSON text in memory.
class JsonFile {
 public:
  // InvalidArgument for anything that is no JSON: empty, truncated, nested too deeply, not UTF-8, a
  // byte order mark. `name` stands in messages.
  static absl::StatusOr<std::unique_ptr<const JsonFile>> Parse(absl::string_view text,
                                                               absl::string_view name);

  JsonNode root() const { return JsonNode(name_, "$", root_); }

 private:
  JsonFile() = default;

  std::string name_;
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

}  // namespace baton
