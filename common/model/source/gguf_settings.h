#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/model/source/gguf_file.h"

namespace baton {

// Reads the settings of a GGUF file one by one. Keeps only the first error, as "FILE: setting KEY
// is FOUND; expected EXPECTED". After an error every read returns a harmless default, so callers
// read everything and check status() once.
class GgufSettings {
 public:
  // `file` must outlive this object.
  explicit GgufSettings(const GgufFile* file) : file_(*file) {}

  const absl::Status& status() const { return status_; }
  bool Has(const std::string& key) const { return file_.settings().count(key) > 0; }
  // In the following functions the key is required if no fallback is given. A list whose values are
  // all equal counts as one value: some files repeat a setting for each layer.
  int Int(const std::string& key, int lowest, int highest, std::optional<int> fallback = {});
  double Number(const std::string& key, double lowest, double highest,
                std::optional<double> fallback = {});
  bool Bool(const std::string& key, bool fallback);
  std::string Text(const std::string& key, std::optional<std::string> fallback = {});
  // Each returns an empty list if the key is absent.
  std::vector<std::string> Texts(const std::string& key);
  std::vector<int64_t> Ints(const std::string& key);
  std::vector<double> Numbers(const std::string& key);

  // Records an error about the value of `key`, unless there was an error before.
  void Fail(const std::string& key, absl::string_view expected);
  // Returns the keys that begin with `prefix` and that nobody has asked for yet, with Has() or a
  // read.
  std::vector<std::string> Unread(absl::string_view prefix) const;
  // Marks a key as known, so that Unread() leaves it out.
  void Know(const std::string& key) { read_.insert(key); }

 private:
  const GgufValue* Find(const std::string& key);

  const GgufFile& file_;
  absl::Status status_;
  std::set<std::string> read_;
};

}  // namespace baton
