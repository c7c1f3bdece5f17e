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

// Reads a JSON object of a configuration file key by key. The first complaint sticks, as "FILE: KEY
// is FOUND; expected EXPECTED", and every later value is a harmless default: so callers read
// everything and look at status() once. A key whose value is null counts as absent.
class JsonReader {
 public:
  // NotFound for no such file; InvalidArgument for anything but one JSON object of at most
  // `max_bytes`.
  static absl::StatusOr<JsonReader> Open(const std::string& path, size_t max_bytes);

  const absl::Status& status() const;
  bool Has(absl::string_view key) const;
  // Whether the key is there with the value null, for files where that is not the same as absent.
  bool HasNull(absl::string_view key) const;

  // Without a fallback the key is required.
  int Int(absl::string_view key, int lowest, int highest, std::optional<int> fallback = {});
  double Number(absl::string_view key, double lowest, double highest,
                std::optional<double> fallback = {});
  bool Bool(absl::string_view key, bool fallback);
  std::string String(absl::string_view key, std::optional<std::string> fallback = {});
  std::vector<std::string> Strings(absl::string_view key);  // required
  // One integer or a list of them; empty when absent.
  std::vector<int> Ints(absl::string_view key, int lowest, int highest);
  // At most `most` lists of 1 to `longest` integers; empty when absent.
  std::vector<std::vector<int>> IntLists(absl::string_view key, int lowest, int highest,
                                         size_t most, size_t longest);
  std::vector<float> Numbers(absl::string_view key, double lowest, double highest,
                             size_t count);                             // required
  std::map<std::string, std::string> StringMap(absl::string_view key);  // required
  // A required object inside this one. Shares its status.
  JsonReader Object(absl::string_view key);

  // Complains about the value of `key`, unless something was wrong before.
  void Fail(absl::string_view key, absl::string_view expected);

 private:
  struct File;
  JsonReader(std::shared_ptr<File> file, const nlohmann::json* object, std::string prefix);
  const nlohmann::json* Find(absl::string_view key) const;
  const nlohmann::json* Require(absl::string_view key, absl::string_view expected);

  std::shared_ptr<File> file_;
  const nlohmann::json* object_;  // inside `file_`
  std::string prefix_;            // of keys in messages: "rope_scaling."
};

// All of a regular file. NotFound for no such file, InvalidArgument when it is none or larger.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace baton
