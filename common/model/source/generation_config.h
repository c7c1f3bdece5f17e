#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/model/source/config_keys.h"

namespace baton {

class JsonReader;
struct ModelConfig;

// Settings of generation_config.json. They are used for everything that a request leaves open. A
// missing `do_sample` means greedy, as in transformers.
struct GenerationDefaults {
  float temperature = 0;
  // The file's temperature, whatever `do_sample` is; not set if it is 1, or if there is none.
  std::optional<float> given_temperature;
  float top_p = 1;
  int top_k = 0;
  float min_p = 0;
  std::vector<TokenId> end_tokens;  // any of them ends the answer
  float repetition_penalty = 1;
  // Limits of the answer's length, in tokens. As in transformers, max_length and min_length include
  // the prompt, and hold only without the limits of the new tokens alone.
  std::optional<int> max_new_tokens, max_length, min_new_tokens;
  int min_length = 0;
  std::vector<std::string> stop_strings;
  // The token lists of bad_words_ids. As in transformers, a list that is a single end token is
  // dropped.
  std::vector<std::vector<TokenId>> bad_words;

  bool operator==(const GenerationDefaults&) const = default;
};

// Every key that GenerationConfig of transformers 5.24.0 or of an earlier version reads, in the
// order of the alphabet. tests/models/check_config_keys compares the table with an installed
// transformers.
absl::Span<const ConfigKey> GenerationConfigKeys();

// Returns `eos_token_id` of a configuration file, which is one id or a list of them.
std::vector<TokenId> EndTokens(JsonReader& json, int vocab);

// Reads generation_config.json of a model's folder into config->generation. If the file does not
// exist, reads the same keys from config.json, as transformers does. Appends a warning to
// config->warnings that names the keys that have no effect here, and those that the table lacks.
// Returns InvalidArgument for a wrong value, and for a key that is refused; the message names the
// file, the key, the value, and what to do.
absl::Status ReadGenerationConfig(const std::string& folder, ModelConfig* config);

}  // namespace baton
