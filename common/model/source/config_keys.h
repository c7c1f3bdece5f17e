#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton {

class JsonReader;

// The effect that a key of a configuration file has.
enum class KeyDecision {
  kObeyed,    // it has the effect that it has in transformers
  kHarmless,  // it can't change an answer here, whatever its value
  kWarned,    // it does not change tokens, but asks for something: a warning unless it is neutral
  kRefused,   // it changes the answer in transformers: the file is refused unless it is neutral
};

// One row of a table of keys. The JSON value `neutral` has no effect, and null has none either.
struct ConfigKey {
  absl::string_view key;
  KeyDecision decision;
  absl::string_view neutral = "null";
  // The values of `model_type` whose models read the key, separated by blanks; empty for all. The
  // others ignore it, as in transformers, with a warning.
  absl::string_view families = "";
};

// Every key of config.json that the configurations of our families read in transformers 5.24.0,
// those that earlier versions wrote, and those that published models have and nothing reads, in the
// order of the alphabet.
// tests/models/check_config_keys compares the table with an installed transformers.
absl::Span<const ConfigKey> ModelConfigKeys();

// Returns the row of a key, or null.
const ConfigKey* FindKey(absl::Span<const ConfigKey> rows, absl::string_view key);
// Returns true if the file has no such key, or if its value has no effect.
bool IsNeutral(const JsonReader& json, const ConfigKey& row);

// Applies the table `rows` to `keys` of a file. Records an error for a key that is refused, with
// `instead` as advice. Appends one warning to `warnings` that names the file, the keys that have no
// effect, and those that the table lacks. `model_type` is the family's; it is empty for a file
// whose table names no families.
void CheckKeys(JsonReader& json, absl::Span<const std::string> keys,
               absl::Span<const ConfigKey> rows, absl::string_view model_type,
               absl::string_view instead, std::vector<std::string>* warnings);

}  // namespace baton
