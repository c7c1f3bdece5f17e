#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// Reads a JSON object of a configuration file key by key. Keeps only the first error, as "FILE: KEY
// is FOUND; expected EXPECTED". After an error, every read returns a harmless default, so callers
// read everything and check status() once. A key whose value is null counts as absent.
class JsonReader {
 public:
  // Returns NotFound if the file does not exist, and InvalidArgument unless it holds one JSON
  // object and has at most `max_bytes`.
  static absl::StatusOr<JsonReader> Open(const std::string& path, size_t max_bytes);

  const absl::Status& status() const;
  const std::string& path() const;
  bool Has(absl::string_view key) const;
  // Returns all keys of the object, in order of the alphabet.
  std::vector<std::string> Keys() const;
  // Returns true if the value of the key, which must be present, equals the JSON text `value`. 1
  // and 1.0 are equal.
  bool Is(absl::string_view key, absl::string_view value) const;
  // Returns true if the key is present with the value null. Use it where null and an absent key
  // mean different things.
  bool HasNull(absl::string_view key) const;

  // In the following functions that have a parameter `fallback`, the key is required if no fallback
  // is given.
  int Int(absl::string_view key, int lowest, int highest, std::optional<int> fallback = {});
  double Number(absl::string_view key, double lowest, double highest,
                std::optional<double> fallback = {});
  bool Bool(absl::string_view key, bool fallback);
  std::string String(absl::string_view key, std::optional<std::string> fallback = {});
  std::vector<std::string> Strings(absl::string_view key);  // the key is required
  // Reads a string or a list of strings. The key is required.
  std::vector<std::string> StringOrStrings(absl::string_view key);
  // Reads an integer or a list of integers. Returns an empty list if the key is absent.
  std::vector<int> Ints(absl::string_view key, int lowest, int highest);
  // Reads a list of at most `max` lists, each of 1 to `longest` integers. Returns an empty list if
  // the key is absent.
  std::vector<std::vector<int>> IntLists(absl::string_view key, int lowest, int highest, size_t max,
                                         size_t longest);
  std::vector<float> Numbers(absl::string_view key, double lowest, double highest,
                             size_t count);                             // the key is required
  std::map<std::string, std::string> StringMap(absl::string_view key);  // the key is required
  // Returns a reader of the object that is the value of `key`. The key is required. Both readers
  // share one status.
  JsonReader Object(absl::string_view key);

  // Records an error about the value of `key`, unless there was an error before.
  void Fail(absl::string_view key, absl::string_view expected);

 private:
  struct File;
  JsonReader(std::shared_ptr<File> file, const nlohmann::json* object, std::string prefix);
  const nlohmann::json* Find(absl::string_view key) const;
  const nlohmann::json* Require(absl::string_view key, absl::string_view expected);

  std::shared_ptr<File> file_;
  const nlohmann::json* object_;  // points into `file_`
  std::string prefix_;            // prefix of keys in messages, such as "rope_scaling."
};

// Returns the contents of a regular file. Returns NotFound if it does not exist, and
// InvalidArgument if it is not a regular file or is larger than `max_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace baton
