#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"

namespace baton {

// Reads one JSON object key by key. The first key that is missing or has the wrong type sets
// *status ("targets.ttft_ms is a string, not a number"). After an error, all functions return empty
// values. The JSON and the status must outlive the reader.
class ObjectReader {
 public:
  ObjectReader(const nlohmann::ordered_json* object, std::string path, absl::Status* status);

  // Returns true if the key exists and is not null.
  bool Has(const char* key) const;
  int64_t Int(const char* key);
  uint32_t Uint(const char* key);
  uint64_t Uint64(const char* key);
  double Double(const char* key);
  bool Bool(const char* key);
  std::string String(const char* key);
  std::vector<double> Numbers(const char* key);
  std::vector<std::vector<double>> Rows(const char* key);
  std::vector<std::string> Strings(const char* key);
  std::map<std::string, std::string> StringMap(const char* key);
  ObjectReader Object(const char* key);
  std::vector<ObjectReader> Objects(const char* key);

  // Sets the status to InvalidArgument "PATH.key: why", unless the status is already an error.
  void Refuse(absl::string_view key, absl::string_view why);
  // Refuses every key of the object that is not in `known`.
  void RefuseOthers(const std::vector<absl::string_view>& known);

 private:
  const nlohmann::ordered_json* Find(const char* key, const char* kind,
                                     bool (nlohmann::ordered_json::*is)() const noexcept);
  std::string PathOf(absl::string_view key) const;

  const nlohmann::ordered_json* object_;
  std::string path_;
  absl::Status* status_;
};

}  // namespace baton
