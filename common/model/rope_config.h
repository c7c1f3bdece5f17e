#pragma once

#include <vector>

namespace baton {

class JsonReader;

// Rotary embedding (Su et al. 2021) and how its frequencies are stretched for long contexts, as
// config.json says it. Field by field what modeling_rope_utils of transformers reads.
struct RopeConfig {
  enum class Type {
    kDefault,
    kLinear,    // all frequencies divided by `factor` (Chen et al. 2023)
    kDynamic,   // "dynamic NTK": theta grows with the length of the sequence
    kYarn,      // by wavelength: kept, divided, or between (Peng et al. 2023)
    kLongRope,  // a divisor for each frequency, another set for long sequences (Ding et al. 2024)
    kLlama3,    // by wavelength, as the Llama 3.1 model card
  };
  Type type = Type::kDefault;
  int dims = 0;  // of a head, its first ones, are rotated: two for each frequency
  double theta = 10000;
  int original_context = 0;  // tokens of training; every type but kDefault and kLinear
  double factor = 1;         // kLinear, kDynamic, kYarn, kLlama3
  double low_freq_factor = 1, high_freq_factor = 4;  // kLlama3
  double beta_fast = 32, beta_slow = 1;              // kYarn
  bool truncate = true;                              // kYarn
  std::vector<float> short_factor, long_factor;      // kLongRope, [dims / 2]
  double attention_factor = 1;                       // multiplies cosines and sines

  bool operator==(const RopeConfig&) const = default;
};

// What reading a RopeConfig takes from elsewhere in config.json.
struct RopeSizes {
  int head_dim = 0;
  int max_position_embeddings = 0;
  bool partial = false;       // whether a part of a head may be rotated
  bool yarn_is_long = false;  // Phi-3: old folders say "su" or "yarn" for longrope
  int original_context = 0;   // where the file names none; 0 for max_position_embeddings
};

// Reads `rope_theta` and `rope_scaling` as transformers 4 writes them, or `rope_parameters` as
// transformers 5 does. Complaints go to `json`.
RopeConfig ReadRopeConfig(JsonReader& json, const RopeSizes& sizes);

// Tokens that the scaling is made for: what max_position_embeddings means with it. May be more than
// an int holds.
double ScaledContext(const RopeConfig& rope, int max_position_embeddings);

// Some types rotate by the length of the sequence, and KV of different tables do not mix. So that
// every path to the same tokens gives the same bits, the table is a function of the original prompt
// and of the number of tokens whose KV is computed with it: of a prompt, all of it, whatever its
// chunks. The table is named by its reach, the most tokens that a sequence may have under it; one
// that grows further is computed anew from its first token, under the table of its new length.
//   kLongRope  original_context, and beyond it no end: as one forward pass of transformers
//   kDynamic   the smallest max(original_context, prompt) * 2^k >= tokens: of a prompt its own
//              length, as transformers; then recomputed a few times instead of at every token
//   others     no end
int RopeReach(const RopeConfig& rope, int prompt_tokens, int tokens);
constexpr int kEndlessReach = 1 << 30;

// inverse_frequency of every rotated pair of a head, [dims / 2], in the table of that reach.
std::vector<float> RopeInverseFrequency(const RopeConfig& rope, int reach);

}  // namespace baton
